"""Agents that predict rewards by an ensemble of networks: Thompson sampling from DE-GP, and its baselines."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import torch
from jaxtyping import Int
from numpy.typing import ArrayLike
from torch import Tensor, nn

from degp.decisions.bandits.agents import randomly_seeded
from degp.decisions.bandits.config import AgentConfig
from degp.decisions.bandits.memory import Memory
from degp.decisions.bandits.problem import Problem
from degp.decisions.bandits.saving import Saved, check_tensors, write
from degp.methods import Kind
from degp.runtime.cpu import no_denormals
from degp.training import Captured, Eager, TrainState, adam
from degp.training.interrupts import held_interrupts

__all__ = ["EnsembleAgent"]


class EnsembleAgent:
    """Networks with one output per action, trained periodically on the rewards of the chosen actions.

    `observe` trains every `config.update_every` rounds and then takes seconds instead of microseconds.

    Args:
        problem: numbers of features and actions.
        config: the method and its settings.
        generator: for all random numbers; the agent runs on its device.

    Example:
        >>> agent = EnsembleAgent(Problem(num_features=4, num_actions=3))
        >>> action = agent.act(context)
        >>> agent.observe(context, action, reward)
    """

    def __init__(
        self, problem: Problem, config: AgentConfig = AgentConfig(), *, generator: torch.Generator | None = None
    ) -> None:
        self.problem = problem
        self.config = config
        self.generator = generator or randomly_seeded()
        self.ensemble = config.build_ensemble(problem, self.generator)
        self.method = config.build_method(self.ensemble, self.generator)
        self.memory = Memory(problem, self.generator.device)

    @torch.no_grad()
    def act(self, context: ArrayLike | Tensor) -> int:
        """The best action under the decision rule; in the first rounds each action in turn."""
        row = self.problem.context(context)
        if len(self.memory) < self.config.initial_pulls * self.problem.num_actions:
            return len(self.memory) % self.problem.num_actions
        outputs = self.ensemble(row[None].to(self.generator.device))
        return int(self.config.rule(outputs, self.method, self.generator).argmax())

    def observe(self, context: ArrayLike | Tensor, action: int, reward: float) -> None:
        """Stores the reward of an action, and trains when an update is due."""
        row, action, reward = self.problem.context(context), self.problem.action(action), self.problem.reward(reward)
        with held_interrupts():
            self.memory.append(row, action, reward / self.config.reward_scale)
            if self.config.update_every and len(self.memory) % self.config.update_every == 0:
                self.update()

    def update(self) -> None:
        """Trains on all rounds so far: `config.steps` steps of a new Adam, from the current weights."""
        if not len(self.memory):
            raise ValueError("there must be a round to train on, but none was observed yet; call observe first")
        optimizer = adam(list(self.ensemble.parameters()), self.config.learning_rate, fused=True)
        state = TrainState(self.ensemble, self.method, [optimizer], [], self.generator)
        stepping = Captured() if self.generator.device.type == "cuda" else Eager()
        batches = torch.stack([self._rows() for _ in range(self.config.steps)])  # one tensor, known in advance
        advance = stepping.start(state, self.memory.batch(), batches.shape[1])
        with held_interrupts(), no_denormals():
            for rows in batches:
                advance(rows)

    def save(self, folder: Path | str) -> Path:
        """Writes the agent into a folder, from which `load_agent` resumes bit-for-bit."""
        return write(folder, Saved(type(self).__name__, self.problem, asdict(self.config), self._tensors()))

    @classmethod
    def from_saved(cls, saved: Saved, generator: torch.Generator) -> "EnsembleAgent":
        """The saved agent, on the generator's device."""
        saved = _upgraded(saved)
        agent = cls(saved.problem, AgentConfig.from_settings(saved.settings), generator=generator)
        rounds = len(saved.tensors.get("memory/rewards", ()))
        check_tensors(agent._tensors() | _prefixed("memory", agent.memory.empty(rounds)), saved.tensors)
        for name, module in agent._modules().items():
            module.load_state_dict(_part(saved.tensors, name))
        agent.memory.restore(_part(saved.tensors, "memory"))
        agent.generator.set_state(saved.tensors["generator"])
        return agent

    def _rows(self) -> Int[Tensor, "B"]:
        """A batch: all rounds while they are few, then a random subset."""
        N, B, device = len(self.memory), self.config.batch_size, self.generator.device
        if N <= B:
            return torch.arange(N, device=device)
        return torch.randperm(N, generator=self.generator, device=device)[:B]

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {"generator": self.generator.get_state(), **_prefixed("memory", self.memory.columns())}
        for name, module in self._modules().items():
            tensors |= _prefixed(name, module.state_dict())
        return tensors

    def _modules(self) -> dict[str, nn.Module]:
        assert isinstance(self.method, nn.Module)
        return {"ensemble": self.ensemble, "method": self.method}


def _upgraded(saved: Saved) -> Saved:
    """What schema 1 wrote, in the terms of schema 2: ε-greedy was a method, and a method's tensors an objective's."""
    if "exploration" not in saved.settings:
        return saved
    settings = {**saved.settings, "rule": {}}
    probability = settings.pop("exploration")
    if settings["method"] == "greedy":
        settings |= {"method": Kind.DE, "rule": {"probability": probability}}
    tensors = {name.replace("objective/", "method/", 1): tensor for name, tensor in saved.tensors.items()}
    return replace(saved, settings=settings, tensors=tensors)


def _prefixed(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}/{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The way back from `_prefixed`."""
    return {name.removeprefix(f"{part}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{part}/")}
