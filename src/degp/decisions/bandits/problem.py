"""The shape of a contextual bandit, and the validation of its contexts, actions and rewards."""

import math
from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = ["Problem"]


@dataclass(frozen=True)
class Problem:
    """Contexts of D features and C actions; a network has one output per action."""

    num_features: int
    num_actions: int

    def __post_init__(self) -> None:
        if self.num_features < 1 or self.num_actions < 2:
            raise ValueError(
                f"a problem needs at least one feature and two actions, but it has {self.num_features} and "
                f"{self.num_actions}"
            )

    def __str__(self) -> str:
        return f"{self.num_features} features and {self.num_actions} actions"

    def context(self, values: ArrayLike | Tensor) -> Float[Tensor, "D"]:
        """One context in float32, or ValueError."""
        context = torch.as_tensor(values, dtype=torch.float32)
        if context.shape != (self.num_features,):
            raise ValueError(
                f"a context must be one row of {self.num_features} features, but its shape is {tuple(context.shape)}; "
                "pass one context at a time, with the columns the agent was built for"
            )
        if not bool(context.isfinite().all()):
            raise ValueError(
                f"a context must be finite, but feature {int((~context.isfinite()).nonzero()[0])} is "
                f"{context[~context.isfinite()][0]:g}; impute it first"
            )
        return context

    def action(self, value: int) -> int:
        """One action as an int, or ValueError."""
        if isinstance(value, bool) or int(value) != value or not 0 <= value < self.num_actions:
            raise ValueError(
                f"an action must be a whole number from 0 to {self.num_actions - 1}, but it is {value!r}; "
                "pass the action that act returned, or the one taken instead"
            )
        return int(value)

    def reward(self, value: float) -> float:
        """One reward as a float, or ValueError."""
        if not isinstance(value, Real | Tensor) or not math.isfinite(value):
            raise ValueError(f"a reward must be a finite number, but it is {value!r}; omit rounds without a reward")
        return float(value)
