"""How an agent's networks are built, trained and asked: all that is not learned, as plain values."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from degp import objectives
from degp.bandits.feedback import PartialGaussian
from degp.bandits.problem import Problem
from degp.bandits.rules import EpsilonGreedy, ProcessDraw, Rule, random_member
from degp.ensemble import Ensemble
from degp.execution import Vmap
from degp.nets import mlp
from degp.objectives import FunctionalObjective, Objective
from degp.priors import NNGP, WeightPrior

METHODS = ("degp", "de", "rde", "rms", "greedy")


@dataclass(frozen=True)
class Recipe:
    """What an `EnsembleAgent` is made of; the defaults are the paper's where it says.

    Attributes:
        method: "degp" draws from the Gaussian process; "de", "rde" and "rms" ask a random member; "greedy" is a deep
            ensemble's mean, or one network's with `members` 1, with random actions now and then.
        reward_scale: rewards are divided by it for the networks; about the size of their differences, since the prior
            expects functions of size one.
        noise_variance: σ² of the rewards so divided.
        alpha: for "degp", the weight of the divergence while a step sees all N rounds; with batches of B it is
            alpha · B/N, which is the same posterior's.
        epsilon: for "degp", λ and the prior's jitter as a share of the mean variance.
        penalty: for "rde" and "rms", the weight of the prior over weights.
        exploration: for "greedy", the probability of a random action.
        weight_variance: of the prior, times fan-in; members start from a draw of it.
        bias_variance: of the prior.
        initial_pulls: rounds that each action gets before the networks are asked.
        update_every: rounds between two trainings; None to call `update` yourself.
        steps: of the optimiser, at each training.
        batch_size: rounds a step, drawn at random; all of them while there are fewer.
        learning_rate: of Adam.
    """

    method: str = "degp"
    hidden_layers: tuple[int, ...] = (256, 256)
    members: int = 10
    reward_scale: float = 1.0
    noise_variance: float = 0.1
    alpha: float = 1.0
    epsilon: float = 0.001
    penalty: float = 1.0
    exploration: float = 0.05
    weight_variance: float = 2.0
    bias_variance: float = 0.01
    initial_pulls: int = 3
    update_every: int | None = 50
    steps: int = 100
    batch_size: int = 512
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, but it is {self.method!r}")
        for name in ("members", "steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but it is {getattr(self, name)}")
        for name in ("reward_scale", "noise_variance", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, but it is {getattr(self, name)}")
        if self.update_every is not None and self.update_every < 1:
            raise ValueError(
                f"update_every counts rounds and must be at least 1, but it is {self.update_every}; None never trains"
            )

    def ensemble(self, problem: Problem, generator: torch.Generator) -> Ensemble:
        """Networks with one output an action, started from the prior, on the generator's device."""

        def make() -> torch.nn.Module:
            network = mlp(problem.num_features, self.hidden_layers, problem.num_actions)
            return self._weight_prior().initialise(network.to(generator.device), generator=generator)

        return Ensemble(make, self.members, execution=Vmap())

    def objective(self, ensemble: Ensemble, generator: torch.Generator) -> Objective:
        """What training minimises; DE-GP's divergence is on all actions, the data term on the chosen ones."""
        likelihood = PartialGaussian(self.noise_variance).to(generator.device)
        prior, weights = self._weight_prior(), self.penalty
        makers: dict[str, Callable[[], Objective]] = {
            "degp": lambda: objectives.degp(likelihood, self._prior(), alpha=self.alpha, epsilon=self.epsilon),
            "de": lambda: objectives.de(likelihood),
            "greedy": lambda: objectives.de(likelihood),
            "rde": lambda: objectives.rde(likelihood, prior, weight=weights),
            "rms": lambda: objectives.rms(likelihood, ensemble, prior, weight=weights, generator=generator),
        }
        return makers[self.method]()

    def weigh(self, objective: Objective, rounds: int) -> None:
        """Sets α of DE-GP's objective for training on so many rounds.        theory/objectives.md (6)"""
        if isinstance(objective, FunctionalObjective):
            objective.alpha = self.alpha * min(1.0, self.batch_size / rounds)

    def rule(self) -> Rule:
        """How a decision is made from the members' outputs."""
        if self.method == "degp":
            return ProcessDraw(self.epsilon)
        return EpsilonGreedy(self.exploration) if self.method == "greedy" else random_member

    def _prior(self) -> NNGP:
        return NNGP(len(self.hidden_layers), self.weight_variance, self.bias_variance)

    def _weight_prior(self) -> WeightPrior:
        return WeightPrior(self.weight_variance, self.bias_variance)
