"""Checkpoints of distributed members: gather the blocks of all ranks for one file, and split a file into blocks."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from degp.ensemble import Ensemble

__all__ = ["collected", "collected_optimizer", "forms", "own", "own_optimizer"]

State = dict[str, Any]


def forms(ensemble: Ensemble) -> dict[str, Tensor]:
    """Tensors with the shapes and dtypes of the whole ensemble's state, by name; their values are undefined."""
    return {
        name: torch.empty(len(ensemble), *value.shape[1:], dtype=value.dtype, device="meta")
        if ensemble.has_member_axis(name)
        else value
        for name, value in ensemble.state_dict().items()
    }


def collected(ensemble: Ensemble, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state of all members, on the first rank; `state` is this rank's, such as `ensemble.state_dict()`."""
    mesh, M = ensemble.mesh, len(ensemble)
    return {
        name: mesh.collected(value, M) if ensemble.has_member_axis(name) else value for name, value in state.items()
    }


def own(ensemble: Ensemble, saved: dict[str, Tensor]) -> dict[str, Tensor]:
    """The part of a state of all members that belongs to this rank."""
    rows = ensemble.mesh.block(len(ensemble))
    return {name: value[rows] if ensemble.has_member_axis(name) else value for name, value in saved.items()}


def collected_optimizer(optimizer: Optimizer, ensemble: Ensemble) -> State:
    """The optimiser's state for the weights of all members, on the first rank.

    Its entries for a weight must be scalars or have the weight's shape, as moments do.
    """
    state, mesh, M = optimizer.state_dict(), ensemble.mesh, len(ensemble)
    if mesh.members.alone:
        return state
    for index, parameter in _members(optimizer, ensemble):
        entries = state["state"].get(index, {})
        _require_collectable(optimizer, entries, parameter)
        state["state"][index] = {key: mesh.collected(v, M) if _is_moment(v) else v for key, v in entries.items()}
    return state


def own_optimizer(optimizer: Optimizer, ensemble: Ensemble, saved: State) -> State:
    """The part of an optimiser's state for all members that belongs to this rank."""
    if ensemble.mesh.members.alone:
        return saved
    rows, state = ensemble.mesh.block(len(ensemble)), dict(saved["state"])
    for index, _ in _members(optimizer, ensemble):
        entries = state.get(index, {})
        state[index] = {key: v[rows].clone() if _is_moment(v) else v for key, v in entries.items()}
    return saved | {"state": state}


def _members(optimizer: Optimizer, ensemble: Ensemble) -> list[tuple[int, Tensor]]:
    """The optimiser's parameters that belong to members, with their indices in its state."""
    stacked = {id(parameter) for parameter in ensemble.own_parameters()}
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [(index, parameter) for index, parameter in enumerate(trained) if id(parameter) in stacked]


def _require_collectable(optimizer: Optimizer, entries: State, parameter: Tensor) -> None:
    for key, value in entries.items():
        if _is_moment(value) and value.shape != parameter.shape:
            raise ValueError(
                f"a checkpoint of several ranks needs an optimiser whose state has the shapes of the weights, but "
                f"{type(optimizer).__name__} has {key} of shape {tuple(value.shape)} for weights of shape "
                f"{tuple(parameter.shape)}; use another optimiser, or train on one rank"
            )


def _is_moment(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0
