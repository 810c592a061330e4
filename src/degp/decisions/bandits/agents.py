"""The interface of agents, and two simple ones: uniform choice, and Thompson sampling from a linear model."""

from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from degp.decisions.bandits.problem import Problem
from degp.decisions.bandits.saving import Saved, check_tensors, write

__all__ = ["Agent", "LinearAgent", "UniformAgent"]


@runtime_checkable
class Agent(Protocol):
    """Chooses an action for a context and learns from its reward.

    Invalid values raise ValueError and leave the agent unchanged.

    Example:
        >>> problem = Problem(num_features=4, num_actions=3)
        >>> agents: list[Agent] = [UniformAgent(problem), LinearAgent(problem)]
        >>> for agent in agents:
        ...     agent.observe(context, agent.act(context), reward)
    """

    @property
    def problem(self) -> Problem:
        """Numbers of features and actions."""
        ...

    def act(self, context: ArrayLike | Tensor) -> int:
        """The action to take; learns nothing."""
        ...

    def observe(self, context: ArrayLike | Tensor, action: int, reward: float) -> None:
        """Learns from the reward of an action in a context."""
        ...

    def save(self, folder: Path | str) -> Path:
        """Writes the agent into a folder; `load_agent` resumes from it with the same decisions."""
        ...


class UniformAgent:
    """All actions equally likely: the reference of relative regret."""

    def __init__(self, problem: Problem, *, generator: torch.Generator | None = None) -> None:
        self.problem = problem
        self.generator = generator or randomly_seeded()

    def act(self, context: ArrayLike | Tensor) -> int:
        self.problem.context(context)
        return int(torch.randint(self.problem.num_actions, (), generator=self.generator, device=self.generator.device))

    def observe(self, context: ArrayLike | Tensor, action: int, reward: float) -> None:
        self.problem.context(context), self.problem.action(action), self.problem.reward(reward)

    def save(self, folder: Path | str) -> Path:
        return write(folder, Saved(type(self).__name__, self.problem, {}, {"generator": self.generator.get_state()}))

    @classmethod
    def from_saved(cls, saved: Saved, generator: torch.Generator) -> "UniformAgent":
        """The saved agent, on the generator's device."""
        agent = cls(saved.problem, generator=generator)
        check_tensors({"generator": agent.generator.get_state()}, saved.tensors)
        agent.generator.set_state(saved.tensors["generator"])
        return agent


class LinearAgent:
    """r = w_aᵀφ + N(0, σ²), φ = (x, 1), w_a ~ N(0, v I): Thompson sampling from the exact posterior per action.

    Λ_a = I/v + Σ φφᵀ/σ²,   w_a ~ N(Λ_a⁻¹b_a, Λ_a⁻¹),   b_a = Σ rφ/σ², summed over the rounds of action a

    Args:
        weight_variance: v.
        noise_variance: σ².
    """

    def __init__(
        self,
        problem: Problem,
        *,
        weight_variance: float = 1.0,
        noise_variance: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        for name, value in (("weight_variance", weight_variance), ("noise_variance", noise_variance)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, but it is {value}")
        self.problem = problem
        self.weight_variance = weight_variance
        self.noise_variance = noise_variance
        self.generator = generator or randomly_seeded()
        C, K = problem.num_actions, problem.num_features + 1
        eye = torch.eye(K, dtype=torch.float64, device=self.generator.device)
        self.precisions: Float[Tensor, "C K K"] = (eye / weight_variance).repeat(C, 1, 1)  # Λ
        self.moments: Float[Tensor, "C K"] = eye.new_zeros(C, K)  # b

    def act(self, context: ArrayLike | Tensor) -> int:
        """The best action under one draw of the weights; only the values φᵀw_a at this context are drawn."""
        phi = self._features(context).expand_as(self.moments)
        L = torch.linalg.cholesky_ex(self.precisions).L
        u, v = torch.linalg.solve_triangular(L, torch.stack([phi, self.moments], dim=-1), upper=False).unbind(-1)
        normal = torch.randn(len(u), dtype=u.dtype, device=u.device, generator=self.generator)
        return int(((u * v).sum(1) + u.norm(dim=1) * normal).argmax())  # φᵀΛ⁻¹b and √(φᵀΛ⁻¹φ)

    def observe(self, context: ArrayLike | Tensor, action: int, reward: float) -> None:
        phi, action, reward = self._features(context), self.problem.action(action), self.problem.reward(reward)
        self.precisions[action] += torch.outer(phi, phi) / self.noise_variance
        self.moments[action] += reward * phi / self.noise_variance

    def save(self, folder: Path | str) -> Path:
        settings = {"weight_variance": self.weight_variance, "noise_variance": self.noise_variance}
        return write(folder, Saved(type(self).__name__, self.problem, settings, self._tensors()))

    @classmethod
    def from_saved(cls, saved: Saved, generator: torch.Generator) -> "LinearAgent":
        """The saved agent, on the generator's device."""
        agent = cls(saved.problem, **saved.settings, generator=generator)
        check_tensors(agent._tensors(), saved.tensors)
        agent.precisions, agent.moments = (saved.tensors[name].to(agent.moments) for name in ("precisions", "moments"))
        agent.generator.set_state(saved.tensors["generator"])
        return agent

    def _features(self, context: ArrayLike | Tensor) -> Float[Tensor, "K"]:
        return torch.cat([self.problem.context(context), torch.ones(1)]).to(self.moments)

    def _tensors(self) -> dict[str, Tensor]:
        return {"precisions": self.precisions, "moments": self.moments, "generator": self.generator.get_state()}


def randomly_seeded() -> torch.Generator:
    """A generator on the CPU with a random seed."""
    generator = torch.Generator()
    generator.seed()
    return generator
