"""Validation after an epoch: the method's loss on other data, or the scores of a function."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from degp.data.batches import batches_of, population_of
from degp.ensemble import Ensemble
from degp.methods import batch_loss
from degp.training.sources import Data
from degp.training.step import TrainState
from degp.typing import Batch

__all__ = ["Validation", "validate"]

Validation = Data | Callable[[Ensemble], Mapping[str, float]]


def validate(state: TrainState, validation: Validation | None, device: torch.device) -> dict[str, float]:
    """The results by name, in evaluation mode; draws nothing from torch's own random state."""
    if validation is None:
        return {}
    state.ensemble.eval()
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        if isinstance(validation, Batch):
            loss = batch_loss(state.ensemble, validation[:], state.method, generator=state.generator.clone_state())
            results: Mapping[str, Any] = {"loss": loss.total, **loss.terms}
        elif callable(validation):
            results = validation(state.ensemble)
        else:
            results = _mean_loss(state, validation, device)
    state.ensemble.train()
    return {f"validation/{name}": float(value) for name, value in results.items()}


def _mean_loss(state: TrainState, data: Data, device: torch.device) -> dict[str, float]:
    """The method's loss and its terms on data in batches: the mean over the points of each batch's."""
    sums: dict[str, float] = {}
    population, count = _points_of(data), 0
    for batch in batches_of(data, device=device):
        own = replace(batch, population=population, stated=True)
        loss = batch_loss(state.ensemble, own, state.method, generator=state.generator.clone_state())
        for name, value in {"loss": loss.total, **loss.terms}.items():
            sums[name] = sums.get(name, 0.0) + len(batch) * float(value)
        count += len(batch)
    if not count:
        raise ValueError("validation must have at least one point, but the data gave none")
    return {name: value / count for name, value in sums.items()}


def _points_of(data: Data) -> int:
    """The number of validation points; counted by a pass over a stream that does not have its length."""
    if isinstance(data, Iterator):
        raise ValueError(
            "validation data are read after each epoch, but a generator can be read only once; pass a list or a "
            "DataLoader"
        )
    try:
        return population_of(data)
    except ValueError:
        return sum(len(batch) for batch in batches_of(data))
