"""Priors over functions and over weights, and exact Gaussian-process regression under them."""

from degp.priors.analytic import NNGP as NNGP
from degp.priors.analytic import erf as erf
from degp.priors.analytic import relu as relu
from degp.priors.centred import Centred as Centred
from degp.priors.exact import ExactGP as ExactGP
from degp.priors.kernel import Kernel as Kernel
from degp.priors.kernel import KernelPrior as KernelPrior
from degp.priors.kernel import Prior as Prior
from degp.priors.kernel import as_prior as as_prior
from degp.priors.monte_carlo import MonteCarloBank as MonteCarloBank
from degp.priors.monte_carlo import MonteCarloNNGP as MonteCarloNNGP
from degp.priors.penalty import WeightPenalty as WeightPenalty
from degp.priors.penalty import draw_anchors as draw_anchors
from degp.priors.penalty import no_penalty as no_penalty
from degp.priors.weights import WeightPrior as WeightPrior
