"""Claims about DE-GP heads that were stated before the runs, checked on the records."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from experiments.protocols.claims import Claim

__all__ = ["claims"]

Records = Sequence[Mapping[str, Any]]
MANY, FEW_LABELS, SVHN_LABELS = 100, (1000, 4000), 4000
RIVALS = ("rDE", "RMS", "Laplace full", "Laplace KFAC")
NEAR_EXACT, LEAST_AUROC, LEAD = 0.01, 0.93, 0.05


def claims(records: Records) -> list[Claim]:
    """All that the records allow to check, for the largest ensemble of at least 100 heads at α = 1."""
    most = max((r["members"] for r in records if r["method"] == "DE-GP"), default=0)
    if most < MANY:
        return []
    sizes = sorted({r["labels"] for r in records if r["method"] == "DE-GP" and r["members"] == most})
    return [claim for labels in sizes for claim in _about(records, labels, most)]


def _about(records: Records, labels: int, members: int) -> Iterator[Claim]:
    here = [r for r in records if r["labels"] == labels]
    own = _values(here, "DE-GP", "nll", members, 1.0)
    rivals = {(name, m): _values(here, name, "nll", m) for name in RIVALS for m in _members(here, name)}
    if own and rivals:
        (name, m), best = min(rivals.items(), key=lambda item: mean(item[1]))
        text = f"{labels:,} labels: NLL of {members} heads not above the best of rDE, RMS and laplace-torch"
        yield Claim(text, f"{mean(own):.4f}; {name}{f', {m}' if m else ''} {mean(best):.4f}", mean(own) <= mean(best))
    exact = _values(here, "exact GP", "nll")
    if own and exact and labels in FEW_LABELS:
        text = f"{labels:,} labels: NLL within {NEAR_EXACT:g} of the exact GP"
        yield Claim(text, f"{mean(own):.4f}; {mean(exact):.4f}", mean(own) <= mean(exact) + NEAR_EXACT)
    yield from _detection(here, labels, members)
    yield from _weight(here, labels, members)


def _detection(here: Records, labels: int, members: int) -> Iterator[Claim]:
    own = _values(here, "DE-GP", "auroc_svhn_mi", members, 1.0)
    if not own or labels != SVHN_LABELS:
        return
    yield Claim(
        f"{labels:,} labels: AUROC on SVHN by mutual information at least {LEAST_AUROC:g}",
        f"{mean(own):.3f}",
        mean(own) >= LEAST_AUROC,
    )
    others = [_values(here, "rDE", "auroc_svhn_mi", m) for m in _members(here, "rDE")]
    if others:
        best = max(map(mean, others))
        text = f"{labels:,} labels: AUROC on SVHN at least {LEAD:g} above that of rDE"
        yield Claim(text, f"{mean(own):.3f}; {best:.3f}", mean(own) >= best + LEAD)


def _weight(here: Records, labels: int, members: int) -> Iterator[Claim]:
    """α = 1 against the best α, on the label subsets that all of them have, in paired differences."""
    own = [r for r in here if r["method"] == "DE-GP" and r["members"] == members]
    by_alpha = {a: {r["seed"]: r["nll"] for r in own if r["alpha"] == a} for a in {r["alpha"] for r in own}}
    shared = sorted(set.intersection(*(set(values) for values in by_alpha.values()))) if by_alpha else []
    if len(by_alpha) < 2 or 1.0 not in by_alpha or not shared:
        return
    means = {a: mean(values[seed] for seed in shared) for a, values in by_alpha.items()}
    best = min(means, key=means.__getitem__)
    differences = [by_alpha[1.0][seed] - by_alpha[best][seed] for seed in shared]
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    yield Claim(
        f"{labels:,} labels: NLL at α = 1 within noise (two standard errors, or .005) of the best α",
        f"{means[1.0]:.4f}; {means[best]:.4f} at α = {best:g}; difference ± {error:.4f}; {len(shared)} subsets",
        mean(differences) <= max(2 * error, 0.005),
    )


def _values(
    here: Records, method: str, score: str, members: int | None = None, alpha: float | None = None
) -> list[float]:
    """A score of the records of a method, in the order of the seeds."""
    own = [r for r in here if r["method"] == method and (r["members"], r["alpha"]) == (members, alpha)]
    return [r[score] for r in sorted(own, key=lambda record: record["seed"]) if r.get(score) is not None]


def _members(here: Records, method: str) -> list[int | None]:
    return list(dict.fromkeys(r["members"] for r in here if r["method"] == method))
