"""Deep ensembles trained and used as Gaussian processes: reliable uncertainty for deep networks.

The pipeline: an `Ensemble` maps inputs to outputs, a method of `methods` trains it (`fit`) and turns its outputs into
a predictive distribution (`predict`), and `metrics` scores that distribution.
"""

from degp import data, methods, metrics, nets, priors
from degp.attached import attach
from degp.ensemble import Ensemble, Unpacked, lora, rank_one
from degp.features import cache_features
from degp.gaussian import Coefficients, KroneckerGaussian, LowRankGaussian, kl_divergence
from degp.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian
from degp.measurement import BatchPart, BatchRegion, Combined, MeasurementAlone, UniformBox, Unlabelled, no_points
from degp.methods import batch_loss
from degp.posterior import AverageEigenvalue, PointwiseAverage, ensemble_posterior
from degp.prediction import predict
from degp.predictive import BinaryPredictive, ClassPredictive, RegressionPredictive, TransformedPredictive
from degp.roots import NumericalWarning
from degp.runtime import distributed
from degp.training import (
    CheckpointError,
    Checkpoints,
    EachStep,
    EarlyStopping,
    History,
    NonFiniteLossError,
    Plan,
    fit,
)
from degp.typing import Batch, Loss

__version__ = "0.2.0"
__all__ = [
    "AverageEigenvalue",
    "Batch",
    "BatchPart",
    "BatchRegion",
    "Bernoulli",
    "BinaryPredictive",
    "Categorical",
    "CheckpointError",
    "Checkpoints",
    "ClassPredictive",
    "Coefficients",
    "Combined",
    "EachStep",
    "EarlyStopping",
    "Ensemble",
    "Gaussian",
    "HeteroscedasticGaussian",
    "History",
    "KroneckerGaussian",
    "Loss",
    "LowRankGaussian",
    "MeasurementAlone",
    "NonFiniteLossError",
    "NumericalWarning",
    "Plan",
    "PointwiseAverage",
    "RegressionPredictive",
    "TransformedPredictive",
    "UniformBox",
    "Unlabelled",
    "Unpacked",
    "attach",
    "batch_loss",
    "cache_features",
    "data",
    "distributed",
    "ensemble_posterior",
    "fit",
    "kl_divergence",
    "lora",
    "methods",
    "metrics",
    "nets",
    "no_points",
    "predict",
    "priors",
    "rank_one",
]
