"""Agents whose beliefs are an ensemble of networks: Thompson sampling from DE-GP, and its baselines."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.optim import Adam

from degp.bandits.agents import seeded_by_chance
from degp.bandits.memory import Memory
from degp.bandits.problem import Problem
from degp.bandits.recipe import Recipe
from degp.bandits.saving import Saved, check_tensors, write
from degp.execution import no_denormals
from degp.training import Captured, Eager, TrainState
from degp.training.capture import adam
from degp.training.interrupts import held_interrupts


class EnsembleAgent:
    """Networks with one output an action, trained now and then on the rewards of the actions that were taken.

    `observe` trains every `recipe.update_every` rounds and then takes seconds instead of microseconds.

    Args:
        problem: how many features and actions there are.
        recipe: the method and its settings.
        generator: for everything random; the agent works on its device.

    Example:
        >>> agent = EnsembleAgent(Problem(num_features=4, num_actions=3))
        >>> action = agent.act(context)
        >>> agent.observe(context, action, reward)
    """

    def __init__(
        self, problem: Problem, recipe: Recipe = Recipe(), *, generator: torch.Generator | None = None
    ) -> None:
        self.problem = problem
        self.recipe = recipe
        self.rule = recipe.rule()
        self.generator = generator or seeded_by_chance()
        self.ensemble = recipe.ensemble(problem, self.generator)
        self.objective = recipe.objective(self.ensemble, self.generator)
        self.memory = Memory(problem, self.generator.device)

    @torch.no_grad()
    def act(self, context: ArrayLike | Tensor) -> int:
        """The best action under the rule's guess at the rewards; at first each action in turn."""
        row = self.problem.context(context)
        if len(self.memory) < self.recipe.initial_pulls * self.problem.num_actions:
            return len(self.memory) % self.problem.num_actions
        outputs = self.ensemble(row[None].to(self.generator.device))
        return int(self.rule(outputs, self.generator).argmax())

    def observe(self, context: ArrayLike | Tensor, action: int, reward: float) -> None:
        """Takes in what an action paid, and trains where it is time for it."""
        row, action, reward = self.problem.context(context), self.problem.action(action), self.problem.reward(reward)
        with held_interrupts():
            self.memory.append(row, action, reward / self.recipe.reward_scale)
            if self.recipe.update_every and len(self.memory) % self.recipe.update_every == 0:
                self.update()

    def update(self) -> None:
        """Trains on all rounds so far: `recipe.steps` steps of a new Adam, from where the weights are."""
        if not len(self.memory):
            raise ValueError("there must be a round to train on, but none was observed yet; call observe first")
        self.recipe.weigh(self.objective, len(self.memory))
        state = TrainState(self.ensemble, self.objective, [self._adam()], [], self.generator)
        stepping = Captured() if self._on_gpu else Eager()
        batches = torch.stack([self._rows() for _ in range(self.recipe.steps)])  # known ahead, in one place
        advance = stepping.start(state, self.memory.batch(), batches.shape[1])
        with held_interrupts(), no_denormals():
            for rows in batches:
                advance(rows)

    def save(self, folder: Path | str) -> Path:
        """Writes all of the agent into a folder, from where `load_agent` goes on, exact to the bit."""
        return write(folder, Saved(type(self).__name__, self.problem, asdict(self.recipe), self._tensors()))

    @classmethod
    def from_saved(cls, saved: Saved, generator: torch.Generator) -> "EnsembleAgent":
        """The agent that was saved, on the generator's device."""
        settings: dict[str, Any] = {**saved.settings, "hidden_layers": tuple(saved.settings["hidden_layers"])}
        agent = cls(saved.problem, Recipe(**settings), generator=generator)
        rounds = len(saved.tensors.get("memory/rewards", ()))
        check_tensors(agent._tensors() | _beginning_with("memory", agent.memory.empty(rounds)), saved.tensors)
        agent.ensemble.load_state_dict(_part(saved.tensors, "ensemble"))
        agent._objective().load_state_dict(_part(saved.tensors, "objective"))
        agent.memory.restore(_part(saved.tensors, "memory"))
        agent.generator.set_state(saved.tensors["generator"])
        return agent

    def _rows(self) -> Int[Tensor, "B"]:
        """A batch: all rounds while they are few, then some at random."""
        N, B, device = len(self.memory), self.recipe.batch_size, self.generator.device
        if N <= B:
            return torch.arange(N, device=device)
        return torch.randperm(N, generator=self.generator, device=device)[:B]

    def _adam(self) -> Adam:
        rate, weights = self.recipe.learning_rate, list(self.ensemble.parameters())
        return adam(weights, rate) if self._on_gpu else Adam(weights, lr=rate, fused=True)

    def _tensors(self) -> dict[str, Tensor]:
        return {
            **_beginning_with("ensemble", self.ensemble.state_dict()),
            **_beginning_with("objective", self._objective().state_dict()),
            **_beginning_with("memory", self.memory.columns()),
            "generator": self.generator.get_state(),
        }

    def _objective(self) -> nn.Module:
        assert isinstance(self.objective, nn.Module)
        return self.objective

    @property
    def _on_gpu(self) -> bool:
        return self.generator.device.type == "cuda"


def _beginning_with(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}/{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The way back from `_beginning_with`."""
    return {name.removeprefix(f"{part}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{part}/")}
