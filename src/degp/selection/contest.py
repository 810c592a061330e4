"""Variants of an objective trained side by side, each kept at its own best epoch."""

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from degp.ensemble import Ensemble
from degp.likelihoods import Likelihood
from degp.prediction import evaluate
from degp.priors.weights import Weights, as_buffers, as_weights
from degp.selection.calibration import calibrated_nll, predictive_of
from degp.side_by_side import SideBySide, Variant
from degp.typing import Batch, Loss

PROGRESS = 0.2  # of the standard error of a variant's mean NLL: less than that is not worth going on for


class Contest(nn.Module):
    """Variants side by side as one objective, with each one's best weights so far: saved in checkpoints with it.

    Where the ensemble is split over ranks, every rank keeps the best weights of all members, and the first one's
    scores decide.
    """

    def __init__(self, variants: Sequence[Variant], members: int, ensemble: Ensemble, validation: Batch) -> None:
        super().__init__()
        self.race = SideBySide(variants, members)
        self.validation = validation
        self.best_weights = as_buffers({name: value.clone() for name, value in _parameters(ensemble).items()})
        self.best_likelihoods = [copy.deepcopy(v.likelihood) for v in variants]
        self._registered = nn.ModuleList(map(_as_module, self.best_likelihoods)).requires_grad_(False)
        self.nll: Tensor
        self.marks: Tensor
        self.stale: Tensor
        self.register_buffer("nll", torch.full((len(variants), len(validation)), torch.inf, dtype=torch.float64))
        self.register_buffer("marks", torch.full((len(variants),), torch.inf, dtype=torch.float64))
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
        nll = torch.stack([self._nll(v, outputs[self.race.rows(v)]) for v in range(len(self.race.variants))])
        weights = _parameters(ensemble)
        for v, own in enumerate(ensemble.mesh.world.first(nll)):
            self._judge(v, own, weights)
        self.stale.copy_(torch.where(self._progress().any(), 0, self.stale + 1))
        return {f"nll {v}": value for v, value in enumerate(self.nll.mean(1).tolist())}

    def _nll(self, v: int, outputs: Float[Tensor, "M N C"]) -> Float[Tensor, "N"]:
        variant = self.race.variants[v]
        return calibrated_nll(predictive_of(variant, outputs, variant.likelihood), self.validation.targets).to(self.nll)

    def _judge(self, v: int, nll: Float[Tensor, "N"], weights: Weights) -> None:
        if not nll.mean() < self.nll[v].mean():
            return
        self.nll[v] = nll
        rows = self.race.rows(v)
        for name, best in as_weights(self.best_weights).items():
            best[rows] = weights[name][rows]
        self._registered[v].load_state_dict(_as_module(self.race.variants[v].likelihood).state_dict())

    def _progress(self) -> Bool[Tensor, "V"]:
        """Which variants have got better since their last mark by more than chance plays with; they get a new one."""
        score = self.nll.mean(1)
        error = self.nll.std(1, correction=0) / self.nll.shape[1] ** 0.5
        better = self.marks - score > PROGRESS * error
        self.marks.copy_(torch.where(better, score, self.marks))
        return better

    def reduced(self, kept: Sequence[int], ensemble: Ensemble) -> "Contest":
        """The contest among some of the variants, whose members are `ensemble`, with what is known of them."""
        fewer = Contest([self.race.variants[v] for v in kept], self.race.members, ensemble, self.validation)
        fewer.to(self.nll.device)
        for own, v in enumerate(kept):
            fewer._registered[own].load_state_dict(self._registered[v].state_dict())
        fewer.nll.copy_(self.nll[kept])
        fewer.marks.copy_(self.marks[kept])
        fewer.stale.copy_(self.stale)
        rows = self.rows_of(kept)
        for name, best in as_weights(fewer.best_weights).items():
            best.copy_(as_weights(self.best_weights)[name][rows])
        return fewer

    def rows_of(self, variants: Sequence[int]) -> list[int]:
        """Which members belong to these variants."""
        M = self.race.members
        return [row for v in variants for row in range(v * M, (v + 1) * M)]

    @torch.no_grad()
    def winner(self, index: int, ensemble: Ensemble) -> Ensemble:
        """One variant's members with their best weights."""
        whole = ensemble.whole()
        for name, best in as_weights(self.best_weights).items():
            _parameters(whole)[name].copy_(best)
        chosen = whole[self.race.rows(index)]
        assert isinstance(chosen, Ensemble)
        return chosen.eval()


def _as_module(likelihood: Likelihood) -> nn.Module:
    assert isinstance(likelihood, nn.Module)
    return likelihood


def _parameters(ensemble: Ensemble) -> Weights:
    """Of all members, on every rank."""
    (part,) = ensemble.parts()
    mesh, M = ensemble.mesh, len(ensemble)
    return {name: mesh.all_members(value.detach(), M) for name, value in part.parameters.items()}
