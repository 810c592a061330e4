"""Execution strategies: how M members run at once. They change speed, never numbers."""

from degp.runtime.execution.choice import (
    Choice,
    candidates_for,
    fastest,
    is_groupable,
    kept_randomness,
    prior_strategy,
    strategy_for,
    workable,
)
from degp.runtime.execution.compiled import Compiled, CompiledForTraining, compiled_forward
from degp.runtime.execution.grouped import Grouped, NotGroupable, grouped_program
from degp.runtime.execution.recomputed import Recomputed
from degp.runtime.execution.strategies import Execution, Loop, Tensors, Vmap, one_tensor

__all__ = [
    "Choice",
    "Compiled",
    "CompiledForTraining",
    "Execution",
    "Grouped",
    "Loop",
    "NotGroupable",
    "Recomputed",
    "Tensors",
    "Vmap",
    "by_name",
    "candidates_for",
    "compiled_forward",
    "fastest",
    "grouped_program",
    "is_groupable",
    "kept_randomness",
    "one_tensor",
    "prior_strategy",
    "strategy_for",
    "workable",
]

_PLAIN: tuple[Execution, ...] = (Vmap(), Loop(), Grouped(), Recomputed())
_ALL: tuple[Execution, ...] = (*_PLAIN, *map(Compiled, _PLAIN), *map(CompiledForTraining, _PLAIN))


def by_name(name: str | None) -> Execution | None:
    """The strategy that a checkpoint names; None for a strategy of the user's own. "folded" is the old "grouped".

    Example:
        >>> by_name("vmap")
        Vmap(name='vmap')
    """
    return {strategy.name: strategy for strategy in _ALL}.get((name or "").replace("folded", "grouped"))
