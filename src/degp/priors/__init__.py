"""Priors over functions and over weights, and exact Gaussian-process regression under them."""

from degp.priors.analytic import NNGP
from degp.priors.centred import Centred
from degp.priors.duals import erf, relu
from degp.priors.exact import ExactGP
from degp.priors.kernel import Kernel, KernelPrior, Prior, as_prior
from degp.priors.monte_carlo import MonteCarloBank, MonteCarloNNGP
from degp.priors.penalty import WeightPenalty, draw_anchors, no_penalty
from degp.priors.weights import WeightPrior

__all__ = [
    "NNGP",
    "Centred",
    "ExactGP",
    "Kernel",
    "KernelPrior",
    "MonteCarloBank",
    "MonteCarloNNGP",
    "Prior",
    "WeightPenalty",
    "WeightPrior",
    "as_prior",
    "draw_anchors",
    "erf",
    "no_penalty",
    "relu",
]
