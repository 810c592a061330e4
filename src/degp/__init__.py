"""Deep ensembles read as Gaussian processes: reliable uncertainty for deep networks.

The walk: an `Ensemble` gives outputs, `posterior` reads them as a Gaussian, an objective of `objectives` scores it
against a prior and a likelihood, `fit` trains it, `predict` says what it knows, `metrics` says how well.
"""

from degp import data as data
from degp import distributed as distributed
from degp import metrics as metrics
from degp import nets as nets
from degp import objectives as objectives
from degp import priors as priors
from degp.ensemble import Ensemble as Ensemble
from degp.gaussian import Coefficients as Coefficients
from degp.gaussian import KroneckerGaussian as KroneckerGaussian
from degp.gaussian import LowRankGaussian as LowRankGaussian
from degp.gaussian import NumericalWarning as NumericalWarning
from degp.gaussian import kl_divergence as kl_divergence
from degp.likelihoods import Bernoulli as Bernoulli
from degp.likelihoods import Categorical as Categorical
from degp.likelihoods import Gaussian as Gaussian
from degp.likelihoods import HeteroscedasticGaussian as HeteroscedasticGaussian
from degp.measurement import BatchRegion as BatchRegion
from degp.measurement import UniformBox as UniformBox
from degp.measurement import no_points as no_points
from degp.posterior import AverageEigenvalue as AverageEigenvalue
from degp.posterior import PointwiseAverage as PointwiseAverage
from degp.posterior import posterior as posterior
from degp.prediction import predict as predict
from degp.prediction import predict_mixture as predict_mixture
from degp.training import CheckpointError as CheckpointError
from degp.training import Checkpoints as Checkpoints
from degp.training import History as History
from degp.training import NonFiniteLossError as NonFiniteLossError
from degp.training import fit as fit
from degp.typing import Batch as Batch
from degp.typing import Loss as Loss
from degp.uncertainty import ClassPredictive as ClassPredictive
from degp.uncertainty import RegressionPredictive as RegressionPredictive

__version__ = "0.1.0"
