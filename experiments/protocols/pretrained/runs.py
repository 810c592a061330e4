"""All runs by method, and one run: from a label subset to a record."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from degp.measurement import BatchPart
from degp.methods import Kind
from degp.report import environment
from experiments.protocols.image_records import finite_or_none
from experiments.protocols.pretrained import posteriors, whole
from experiments.protocols.pretrained.heads import Budget, attached, heads
from experiments.protocols.pretrained.image_features import feature_sets, smoke_sets
from experiments.protocols.pretrained.mail_features import mail_sets
from experiments.protocols.pretrained.scoring import Functions, detection_scores, scores
from experiments.protocols.pretrained.sets import FeatureSets, Problem

__all__ = ["FIELDS", "METHODS", "Place", "Run", "Settings", "planned", "run_one"]

FIELDS = ("labels", "method", "members", "alpha", "seed")
KINDS = {kind.label: kind for kind in Kind}
HEADS = tuple(KINDS)
ON_PART, PART = "DE-GP on 16", BatchPart(16)  # points of each batch, on which the divergence is measured
ATTACHED = 100  # members of `attach`, its default
MEMBERS = (10, 50, 200)
IMAGES, MAILS, SMOKE = "cifar10", "mails", "smoke"


@dataclass(frozen=True)
class Settings:
    """What all runs of a data set share.

    Attributes:
        data: "cifar10", "mails" or "smoke".
        per_cell: corrupted test images per corruption and severity.
        lora_members: M of LoRA and rank-one members, which are wider than heads.
        lora_steps: of their training.
    """

    data: str = IMAGES
    budget: Budget = field(default_factory=Budget)
    fine_tuning: whole.FineTuning = field(default_factory=whole.FineTuning)
    per_cell: int = 2000
    lora_members: int = 32
    lora_steps: int = 600


@dataclass(frozen=True)
class Place:
    """Where the features are cached, and where to compute."""

    features: Path
    device: str


@dataclass(frozen=True)
class Run:
    """What identifies a record; α in units of Bayes' weight."""

    labels: int
    method: str
    members: int | None
    alpha: float | None
    seed: int

    @property
    def facts(self) -> dict[str, Any]:
        """As in its record."""
        return {name: getattr(self, name) for name in FIELDS}


def planned(
    methods: Sequence[str],
    labels: Sequence[int],
    seeds: Sequence[int],
    members: Sequence[int] = MEMBERS,
    alphas: Sequence[float] = (1.0,),
    lora_members: int = Settings.lora_members,
) -> list[Run]:
    """All runs, the most important first: α = 1 and the other methods, label subset by label subset, then other α."""

    def variants(method: str) -> list[tuple[int | None, float | None]]:
        if method in (*HEADS, ON_PART):
            return [(m, 1.0 if method in (Kind.DEGP.label, ON_PART) else None) for m in members]
        known = {"attach": (ATTACHED, 1.0), "LoRA DE": (lora_members, None)}
        known |= dict.fromkeys(("LoRA DE-GP", "rank-one DE-GP"), (lora_members, 1.0))
        return [known.get(method, (None, None))]

    subsets = [(n, seed) for seed in seeds for n in labels]
    first = [Run(n, name, m, a, seed) for n, seed in subsets for name in methods for m, a in variants(name)]
    more = [a for a in alphas if a != 1.0] if Kind.DEGP.label in methods else []
    grid = [Run(n, Kind.DEGP.label, m, a, seed) for n, seed in subsets for m in members for a in more]
    possible = [run for run in first if run.method != "exact GP" or run.labels <= posteriors.MOST_EXACT]
    return possible + grid


def run_one(run: Run, settings: Settings, place: Place) -> dict[str, Any]:
    """Trains, scores, and times both; `seconds` is the training alone, features and the prior's scales not counted."""
    torch.backends.cuda.matmul.allow_tf32 = False
    problem = _problem(run.labels, run.seed, settings, place)
    _synchronise(place.device)
    start = time.perf_counter()
    outcome = METHODS[run.method](problem, run, settings, place)
    _synchronise(place.device)
    seconds = time.perf_counter() - start
    found = scores(outcome) if isinstance(outcome, Functions) else outcome
    where = {key: environment()[key] for key in ("commit", "device")}
    return {**run.facts, **finite_or_none(found), "seconds": seconds, **where}


Outcome = Functions | dict[str, Any]
Fit = Callable[[Problem, Run, Settings, Place], Outcome]


def _heads(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
    assert run.members is not None
    return heads(problem, settings.budget, KINDS[run.method], run.members, run.alpha)


def _heads_on_part(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
    assert run.members is not None
    return heads(problem, settings.budget, Kind.DEGP, run.members, run.alpha, PART)


def _attached(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
    return attached(problem, settings.budget, run.members or ATTACHED)


def _exact(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
    return posteriors.exact_gp(problem)


def _laplace(structure: str) -> Fit:
    return lambda problem, run, settings, place: posteriors.laplace_last_layer(problem, settings.budget, structure)


def _sngp(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
    return posteriors.sngp(problem, settings.budget)


def _mahalanobis(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
    score = posteriors.mahalanobis(problem.features.train, problem.features.classes)
    return detection_scores(score, problem.features)


def _knn(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
    return detection_scores(posteriors.knn(problem.features.train), problem.features)


def _light(make: whole.Make, functional: bool) -> Fit:
    def fitted(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
        sets, tail = whole.map_sets(place.device, settings.per_cell)
        members = run.members or settings.lora_members
        return whole.light_members(
            problem, sets, tail, make, functional=functional, members=members, steps=settings.lora_steps
        )

    return fitted


def _fine_tuned(problem: Problem, run: Run, settings: Settings, place: Place) -> Outcome:
    sets = whole.image_sets(place.device, settings.per_cell)
    return whole.fine_tuned(sets, run.labels, run.seed, settings.fine_tuning)


METHODS: dict[str, Fit] = {
    **dict.fromkeys(HEADS, _heads),
    ON_PART: _heads_on_part,
    "attach": _attached,
    "exact GP": _exact,
    "Laplace full": _laplace("full"),
    "Laplace KFAC": _laplace("kron"),
    "SNGP": _sngp,
    "Mahalanobis": _mahalanobis,
    "kNN": _knn,
    "LoRA DE-GP": _light(whole.lora_tails, True),
    "LoRA DE": _light(whole.lora_tails, False),
    "rank-one DE-GP": _light(whole.rank_one_tails, True),
    "fine-tuned": _fine_tuned,
}


@lru_cache(maxsize=3)
def _problem(labels: int, seed: int, settings: Settings, place: Place) -> Problem:
    return Problem.of(_sets(settings, place), labels, seed, settings.budget.components)


def _sets(settings: Settings, place: Place) -> FeatureSets:
    if settings.data == MAILS:
        return mail_sets(place.features, place.device)
    return smoke_sets() if settings.data == SMOKE else feature_sets(place.features, place.device, settings.per_cell)


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def describe(settings: Settings) -> dict[str, Any]:
    """As JSON values, for metrics.json."""
    return asdict(settings)
