"""Choosing on validation data: variants of an objective trained side by side, each kept at its own best epoch."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble import Ensemble
from degp.likelihoods import Likelihood
from degp.objectives import FunctionalObjective
from degp.posterior import PointwiseAverage, posterior
from degp.prediction import evaluate
from degp.priors.weights import as_buffers, as_weights
from degp.side_by_side import SideBySide, Variant
from degp.training import Checkpoints, History, fit
from degp.typing import Batch, Loss
from degp.uncertainty import ClassPredictive, Predictive, RegressionPredictive

PROGRESS = 1e-3  # nats a point: less than that on the validation data is not worth going on for


@dataclass(frozen=True)
class Budget:
    """How long and how fast to train.

    Attributes:
        epochs: at most.
        batch_size: points a step.
        learning_rate: of Adam, × 0.99 every 5 epochs.
        patience: epochs without progress of any variant on the validation data after which to stop.
        max_seconds: stop after this time, at the end of a step.
    """

    epochs: int = 1000
    batch_size: int = 256
    learning_rate: float = 0.01
    patience: int = 100
    max_seconds: float | None = None


@dataclass(frozen=True)
class Selected:
    """The variant that was chosen, at its best epoch, and how all of them scored."""

    index: int
    ensemble: Ensemble
    likelihood: Likelihood
    validation_nll: list[float]
    history: History


class Contest(nn.Module):
    """Variants side by side as one objective, with each one's best weights so far: saved in checkpoints with it."""

    def __init__(self, variants: Sequence[Variant], members: int, ensemble: Ensemble, validation: Batch) -> None:
        super().__init__()
        self.race = SideBySide(variants, members)
        self.validation = validation
        self.best_weights = as_buffers({name: p.detach().clone() for name, p in _parameters(ensemble).items()})
        self.best_likelihoods = [copy.deepcopy(v.likelihood) for v in variants]
        self._registered = nn.ModuleList(map(_as_module, self.best_likelihoods)).requires_grad_(False)
        self.nll: Tensor
        self.stale: Tensor
        self.register_buffer("nll", torch.full((len(variants), len(validation)), torch.inf, dtype=torch.float64))
        self.register_buffer("stale", torch.zeros((), dtype=torch.long))

    @property
    def likelihood(self) -> Likelihood:
        """What the data must fit."""
        return self.race.likelihood

    def forward(self, ensemble: Ensemble, batch: Batch, *, generator: torch.Generator | None = None) -> Loss:
        """The sum of the variants' losses."""
        return self.race(ensemble, batch, generator=generator)

    @torch.no_grad()
    def judge(self, ensemble: Ensemble) -> dict[str, float]:
        """Scores all variants on the validation data and keeps the weights of those that got better."""
        outputs = evaluate(ensemble, self.validation.inputs)
        better = [self._judge(v, outputs[self.race.rows(v)], ensemble) for v in range(len(self.race.variants))]
        self.stale.copy_(torch.zeros_like(self.stale) if any(better) else self.stale + 1)
        return {f"nll {v}": value for v, value in enumerate(self.nll.mean(1).tolist())}

    def _judge(self, v: int, outputs: Float[Tensor, "M N C"], ensemble: Ensemble) -> bool:
        variant = self.race.variants[v]
        nll = -log_prob(predictive_of(variant, outputs, variant.likelihood), self.validation.targets)
        gain = float(self.nll[v].mean() - nll.mean())
        if not gain > 0:
            return False
        self.nll[v] = nll
        rows = self.race.rows(v)
        for name, best in as_weights(self.best_weights).items():
            best[rows] = _parameters(ensemble)[name][rows]
        self._registered[v].load_state_dict(_as_module(variant.likelihood).state_dict())
        return gain > PROGRESS

    @torch.no_grad()
    def winner(self, index: int, ensemble: Ensemble) -> Ensemble:
        """One variant's members with their best weights."""
        for name, best in as_weights(self.best_weights).items():
            _parameters(ensemble)[name].copy_(best)
        chosen = ensemble[self.race.rows(index)]
        assert isinstance(chosen, Ensemble)
        return chosen.eval()


def select(
    ensemble: Ensemble,
    contest: Contest,
    data: Batch,
    *,
    choose: Callable[[Float[Tensor, "V N"]], int],
    budget: Budget = Budget(),
    checkpoints: Checkpoints | None = None,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Selected:
    """Trains all variants on the same batches, picks one at its best epoch, and calibrates it.

    Args:
        choose: from the validation NLL of each variant and point to the number of the one to take.
        checkpoints: where to save; a run that was broken off goes on from there.
    """
    trained = [p for p in (*ensemble.parameters(), *contest.parameters()) if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=budget.learning_rate)
    history = fit(
        ensemble,
        data,
        contest,
        epochs=budget.epochs,
        batch_size=budget.batch_size,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.99),
        validation=contest.judge,
        stop=lambda _: int(contest.stale) >= budget.patience,
        max_seconds=budget.max_seconds,
        checkpoints=checkpoints,
        resume=True,
        generator=generator,
        progress=progress,
    )
    index = choose(contest.nll)
    chosen, likelihood = contest.winner(index, ensemble), contest.best_likelihoods[index]
    validation = contest.validation
    calibrate(likelihood, contest.race.variants[index], evaluate(chosen, validation.inputs), validation.targets)
    return Selected(index, chosen, likelihood, contest.nll.mean(1).tolist(), history)


def largest_within_one_error(nll: Float[Tensor, "V N"], alphas: Sequence[float]) -> int:
    """The best variant of the largest α that the validation data do not speak against.

    An α stands when a variant with it has a mean NLL within one standard error of the best's, by paired differences.
    """
    best = int(nll.mean(1).argmin())
    difference = nll - nll[best]
    error = difference.std(1, correction=0) / max(nll.shape[1] - 1, 1) ** 0.5
    standing = (difference.mean(1) <= error).nonzero().flatten().tolist()
    largest = max(alphas[v] for v in standing)
    return min((v for v in standing if alphas[v] == largest), key=lambda v: float(nll[v].mean()))


def predictive_of(variant: Variant, outputs: Float[Tensor, "M N C"], likelihood: Likelihood) -> Predictive:
    """The prediction as the variant's method makes it: a Gaussian process for DE-GP, a mixture for the others."""
    if isinstance(variant, FunctionalObjective):
        q = posterior(outputs, diagonal=PointwiseAverage(variant.nugget.epsilon))
        generator = torch.Generator(outputs.device).manual_seed(0)  # the same draws each time: scores are compared
        return likelihood.predictive(q, num_draws=256, generator=generator)
    return likelihood.mixture(outputs)


def log_prob(predictive: Predictive, targets: Tensor) -> Float[Tensor, "N"]:
    """log p(y) of each point."""
    assert isinstance(predictive, (RegressionPredictive, ClassPredictive))
    return predictive.log_prob(targets)


@torch.no_grad()
def calibrate(likelihood: Likelihood, variant: Variant, outputs: Float[Tensor, "M N C"], targets: Tensor) -> float:
    """Multiplies the noise variance or the temperature by the factor that the validation data like best.

    Golden-section search over log factor in [−3, 3]; gives back the factor.
    """

    def nll(log_factor: float) -> float:
        widened = copy.deepcopy(likelihood)
        widened.widen(float(torch.tensor(log_factor).exp()))
        return float(-log_prob(predictive_of(variant, outputs, widened), targets).mean())

    factor = float(torch.tensor(_golden_section(nll, -3.0, 3.0)).exp())
    likelihood.widen(factor)
    return factor


def _golden_section(function: Callable[[float], float], low: float, high: float, steps: int = 30) -> float:
    ratio = (5**0.5 - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = function(a), function(b)
    for _ in range(steps):
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = function(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = function(b)
    return (low + high) / 2


def _as_module(likelihood: Likelihood) -> nn.Module:
    assert isinstance(likelihood, nn.Module)
    return likelihood


def _parameters(ensemble: Ensemble) -> dict[str, Tensor]:
    (part,) = ensemble.parts()
    return dict(part.parameters)
