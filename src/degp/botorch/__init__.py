"""Bayesian optimisation with BoTorch: a deep ensemble as a model for every acquisition function it has."""

from degp.botorch.draws import FunctionDraws as FunctionDraws
from degp.botorch.model import DEGPModel as DEGPModel
from degp.botorch.training import Training as Training
