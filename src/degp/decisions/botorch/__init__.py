"""Bayesian optimisation with BoTorch: a deep ensemble as a model for all of its acquisition functions."""

from degp.decisions.botorch.draws import FunctionDraws
from degp.decisions.botorch.fitting import FitConfig
from degp.decisions.botorch.model import DEGPModel

__all__ = ["DEGPModel", "FitConfig", "FunctionDraws"]
