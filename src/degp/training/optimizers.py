"""The optimisers of a run: checked, or Adam."""

import warnings
from collections.abc import Sequence

import torch
from torch.optim import Optimizer

from degp.ensemble import Ensemble
from degp.methods import Method
from degp.methods.contract import as_module
from degp.runtime.optimizers import Adam

__all__ = ["optimizers_for"]


def optimizers_for(given: list[Optimizer], ensemble: Ensemble, method: Method) -> list[Optimizer]:
    """Those given, if they can train the ensemble; Adam for everything that trains, where there are none."""
    trained = [p for part in (ensemble, as_module(method)) for p in part.parameters() if p.requires_grad]
    if not trained:
        raise ValueError(
            "some weights must train, but all of the ensemble and of the method are frozen; call requires_grad_(True) "
            "on the parts to train"
        )
    if not given:
        return [Adam(trained, lr=1e-3)]
    _require_steps_of_one_gradient(given)
    _check_held(ensemble, method, given)
    return given


def _require_steps_of_one_gradient(optimizers: Sequence[Optimizer]) -> None:
    for optimizer in optimizers:
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(
                f"an optimizer must be made for the ensemble's parameters, as torch.optim.Adam(ensemble.parameters()), "
                f"but it is {optimizer!r}"
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError(
                "an optimizer must take its step from one gradient, but LBFGS evaluates the loss several times per "
                "step; use Adam or SGD, or call degp.batch_loss in the closure of your own loop"
            )


def _check_held(ensemble: Ensemble, method: Method, optimizers: Sequence[Optimizer]) -> None:
    """Raises where no optimiser holds a weight of the ensemble; warns where one of the likelihood is left out."""
    held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    trained = [p for p in ensemble.parameters() if p.requires_grad]
    if trained and not any(id(p) in held for p in trained):
        raise ValueError(
            "the optimizer must hold the ensemble's parameters, but it holds none, and nothing would be learned: an "
            "ensemble copies its members; pass ensemble.parameters() to the optimizer"
        )
    named = as_module(method.likelihood).named_parameters()
    forgotten = [name for name, p in named if p.requires_grad and id(p) not in held]
    if forgotten:
        warnings.warn(
            f"the likelihood is to learn {', '.join(forgotten)}, but no optimizer holds it, and it will not change; "
            f"pass optimizer=[yours, torch.optim.Adam(method.likelihood.parameters(), lr=1e-3)], or learned=False",
            stacklevel=4,
        )
