"""The settings of an ensemble agent as plain values, and the networks and the method they describe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from degp import methods
from degp.decisions.bandits.feedback import PartialGaussian
from degp.decisions.bandits.problem import Problem
from degp.decisions.bandits.rules import EpsilonGreedy, Rule, ThompsonSampling
from degp.ensemble import Ensemble
from degp.methods import Kind, Method
from degp.nets import mlp
from degp.priors import NNGP, WeightPrior
from degp.runtime.execution import Vmap

__all__ = ["AgentConfig"]


@dataclass(frozen=True)
class AgentConfig:
    """Networks, method, decision rule and training of an `EnsembleAgent`; the defaults follow the paper.

    Attributes:
        method: a `methods.Kind`, or its name.
        rule: `ThompsonSampling()` from the method's posterior, or `EpsilonGreedy(probability)` on the members' mean.
        reward_scale: rewards are divided by it before training. Choose about the size of differences between rewards,
            since the prior expects functions of unit size.
        noise_variance: σ² of the scaled rewards.
        alpha: α of DE-GP; 1 is Bayes' rule at any number of rounds.
        epsilon: ε of DE-GP, λ and the prior's jitter as shares of the mean variance.
        penalty: weight of the prior over weights, for rDE and RMS.
        weight_variance: of the prior, times fan-in; members are initialised from it.
        bias_variance: of the prior.
        initial_pulls: rounds per action before the rule decides.
        update_every: rounds between updates; None leaves updates to the caller.
        steps: optimiser steps per update.
        batch_size: rounds per step, drawn at random; all rounds while there are fewer.
        learning_rate: of Adam.
    """

    method: Kind | str = Kind.DEGP
    rule: Rule = field(default_factory=ThompsonSampling)
    hidden_layers: tuple[int, ...] = (256, 256)
    members: int = 10
    reward_scale: float = 1.0
    noise_variance: float = 0.1
    alpha: float = 1.0
    epsilon: float = 0.001
    penalty: float = 1.0
    weight_variance: float = 2.0
    bias_variance: float = 0.01
    initial_pulls: int = 3
    update_every: int | None = 50
    steps: int = 100
    batch_size: int = 512
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", Kind(self.method))
        for name in ("members", "steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but it is {getattr(self, name)}")
        for name in ("reward_scale", "noise_variance", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, but it is {getattr(self, name)}")
        if self.update_every is not None and self.update_every < 1:
            raise ValueError(
                f"update_every counts rounds and must be at least 1, but it is {self.update_every}; pass None to call "
                f"update yourself"
            )

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "AgentConfig":
        """The way back from `dataclasses.asdict`, also through JSON."""
        rule = EpsilonGreedy(**settings["rule"]) if settings["rule"] else ThompsonSampling()
        return cls(**{**settings, "hidden_layers": tuple(settings["hidden_layers"]), "rule": rule})

    def build_ensemble(self, problem: Problem, generator: torch.Generator) -> Ensemble:
        """Networks with one output per action, drawn from the prior, on the generator's device."""

        def make() -> torch.nn.Module:
            network = mlp(problem.num_features, self.hidden_layers, problem.num_actions)
            return self._weight_prior().initialise(network.to(generator.device), generator=generator)

        return Ensemble(make, self.members, execution=Vmap())

    def build_method(self, ensemble: Ensemble, generator: torch.Generator) -> Method:
        """The method; DE-GP's divergence covers all actions, the data term only the chosen ones."""
        likelihood = PartialGaussian(self.noise_variance).to(generator.device)
        prior = NNGP(len(self.hidden_layers), self.weight_variance, self.bias_variance)
        return Kind(self.method).build(
            likelihood,
            ensemble,
            self._weight_prior(),
            functional=lambda: methods.degp(likelihood, prior, alpha=self.alpha, epsilon=self.epsilon),
            weight=self.penalty,
            generator=generator,
        )

    def _weight_prior(self) -> WeightPrior:
        return WeightPrior(self.weight_variance, self.bias_variance)
