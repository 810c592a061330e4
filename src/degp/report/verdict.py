"""Can I trust these error bars? The rules, one function each, from plain numbers to a sentence.

The first finding decides the status: intervals must hold what they promise, confidence must equal accuracy. Every other
finding is "good", a "caution", or "unknown" where the rows are too few to say. A rule speaks up when two things meet:
chance alone does so in fewer than one case in a hundred, and the difference is large enough to matter.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from degp.report.chance import CHANCE, chance_range, normal_margin

NEGLIGIBLE = 0.02  # two points more or less do not matter in practice
UNCLEAR = 0.2  # where chance alone spans twenty points, nothing can be told

INTERVALS = {
    "trust": "Trust them",
    "overconfident": "Too narrow",
    "underconfident": "Too wide",
    "cannot_tell": "Cannot tell",
}
PROBABILITIES = INTERVALS | {"overconfident": "Too sure", "underconfident": "Not sure enough"}


@dataclass(frozen=True)
class Finding:
    """What one rule found.

    Attributes:
        rule: its name.
        grade: for the deciding rule the status, else "good", "caution" or "unknown".
        text: a sentence without its full stop.
    """

    rule: str
    grade: str
    text: str


def give_verdict(deciding: Finding, others: Sequence[Finding], headlines: dict[str, str]) -> dict[str, Any]:
    """Status, headline, one sentence and all reasons, as plain values."""
    cautious = deciding.grade == "trust" and any(finding.grade == "caution" for finding in others)
    headline = headlines[deciding.grade] + (", with care" if cautious else "")
    return {
        "status": deciding.grade,
        "headline": headline,
        "text": f"{headline}: {deciding.text}.",
        "reasons": [asdict(finding) for finding in (deciding, *others)],
    }


def coverage_rule(held: int, rows: int, level: float, stretch: float) -> Finding:
    """Intervals must hold as many rows as they promise: an exact binomial test.

    Args:
        stretch: by what factor the widths would have to change for the intervals to hold exactly `level`.
    """
    low, high = chance_range(torch.full((rows,), level, dtype=torch.float64))
    share, margin = held / rows, min(NEGLIGIBLE, (1 - level) / 5)
    said = f"{percent(level)} intervals held {percent(share)} of {count(rows)} ({_expected(low, high)})"
    if share < min(low, level - margin):
        return Finding("coverage", "overconfident", f"{said}; they need {stretch:.2g} × the width")
    if share > max(high, level + margin):
        return Finding("coverage", "underconfident", f"{said}; {stretch:.2g} × the width would do")
    if high - low > UNCLEAR:
        return Finding(
            "coverage", "cannot_tell", f"{said}; more rows are needed to see whether they keep their promise"
        )
    return Finding("coverage", "trust", said + _negligible(share, low, high))


def confidence_rule(confidence: Float[Tensor, "N"], right: int) -> Finding:
    """Confidence must equal accuracy: an exact test of the number of right rows, each right as surely as it claims."""
    rows = len(confidence)
    low, high = chance_range(confidence)
    sure, share = confidence.mean().item(), right / rows
    said = (
        f"the predictions were {percent(sure)} sure on average and right for {percent(share)} of {count(rows)} "
        f"({_expected(low, high)})"
    )
    if share < min(low, sure - NEGLIGIBLE):
        return Finding("confidence", "overconfident", said)
    if share > max(high, sure + NEGLIGIBLE):
        return Finding("confidence", "underconfident", said)
    # chance hardly moves who is sure of every row, but twenty points too much must be bound to show
    if high - low > UNCLEAR or (1 - UNCLEAR) ** rows > 1 - CHANCE:
        return Finding(
            "confidence", "cannot_tell", f"{said}; more rows are needed to see whether they are as sure as right"
        )
    return Finding("confidence", "trust", said + _negligible(share, low, high))


def levels_rule(error: float, by_chance: float, worst: tuple[float, float]) -> Finding:
    """Intervals of all other levels must hold as well: the mean distance against what right intervals would show.

    Args:
        error: the calibration error.
        worst: the level furthest off, and what its intervals held.
    """
    level, observed = worst
    said = f"averaged over all levels, coverage is off by {points(error)}"
    return _distance(
        "levels",
        error,
        by_chance,
        good=f"Other levels agree: {said}",
        caution=f"Other levels are off: {said}",
        worst=f"{percent(level)} intervals held {percent(observed)}",
    )


def reliability_rule(error: float, by_chance: float, worst: tuple[float, float]) -> Finding:
    """Confidence must equal accuracy among sure and unsure rows alike: the ECE against that of right confidence.

    Args:
        error: the expected calibration error.
        worst: confidence and accuracy of the bin that adds most to it.
    """
    sure, right = worst
    said = f"grouped by confidence, accuracy is off by {points(error)} on average"
    return _distance(
        "reliability",
        error,
        by_chance,
        good=f"Sure and unsure rows agree: {said}",
        caution=f"Confidence cannot be taken at its word: {said}",
        worst=f"predictions about {percent(sure)} sure were right {percent(right)} of the time",
    )


def _distance(rule: str, error: float, by_chance: float, *, good: str, caution: str, worst: str) -> Finding:
    """Good where chance explains the error or it is negligible, unknown where chance explains too much."""
    if error > max(by_chance, NEGLIGIBLE):
        return Finding(rule, "caution", f"{caution}, and chance explains {points(by_chance)} at most; {worst}")
    if by_chance > UNCLEAR / 2:
        return Finding(rule, "unknown", f"Too few rows to look closer: chance alone explains up to {points(by_chance)}")
    reason = (
        f"chance alone explains up to {points(by_chance)}" if error <= by_chance else "that is too little to matter"
    )
    return Finding(rule, "good", f"{good}, and {reason}")


def groups_rule(held: Sequence[float], sizes: Sequence[int]) -> Finding | None:
    """Certain and uncertain rows must be covered alike; None if there are too few rows to group.

    Args:
        held: share of rows inside their interval, from the most certain group to the least certain.
    """
    groups = len(held)
    if groups < 2:
        return None
    overall = sum(share * size for share, size in zip(held, sizes, strict=True)) / sum(sizes)
    chance = 1 - (1 - CHANCE) / groups  # groups are so many tries at a false alarm
    ranges = [chance_range(torch.full((size,), overall, dtype=torch.float64), chance) for size in sizes]
    gaps = [max(low - share, share - high) for share, (low, high) in zip(held, ranges, strict=True)]
    worst = max(range(groups), key=gaps.__getitem__)
    if gaps[worst] <= 0 or abs(held[worst] - overall) <= NEGLIGIBLE:
        return Finding("groups", "good", "Narrow and wide intervals hold alike, as far as chance can tell")
    return Finding(
        "groups",
        "caution",
        f"Narrow and wide intervals do not hold alike: of {groups} groups from narrow to wide, number {worst + 1} held "
        f"{percent(held[worst])} ({_expected(*ranges[worst])})",
    )


def ranking_rule(correlation: float, rows: int, expected: float, ratio: float) -> Finding:
    """Errors must grow with uncertainty: Spearman's correlation, against none and against what the widths promise.

    Args:
        correlation: of the absolute errors with the standard deviations; NaN if these are all equal.
        expected: what right error bars of these widths would reach in all but one case in a hundred.
        ratio: error of the least certain fifth of the rows over that of the most certain fifth.
    """
    said = f"rank correlation {correlation:.2f}"
    if math.isnan(correlation):
        return Finding(
            "ranking", "unknown", "All error bars are equally wide, so they do not tell good rows from bad ones"
        )
    if correlation < expected:
        return Finding(
            "ranking",
            "caution",
            f"Errors grow less with uncertainty than they should: {said}, at least {expected:.2f} expected",
        )
    if correlation * math.sqrt(rows - 1) > normal_margin():
        return Finding(
            "ranking",
            "good",
            f"Errors grow with uncertainty: the least certain fifth errs {ratio:.2g} × as much as the most certain",
        )
    return Finding(
        "ranking", "unknown", f"Whether errors grow with uncertainty cannot be seen from these rows ({said})"
    )


def detection_rule(auroc: float, low: float, wrong: int, expected: float) -> Finding:
    """Wrong rows must be less certain than right ones: the AUROC, against none and against what confidence promises.

    Args:
        auroc: NaN if every row is right, or every row wrong.
        low: lower end of its bootstrap interval.
        expected: what right probabilities would reach in all but one case in a hundred.
    """
    if math.isnan(auroc):
        return Finding("detection", "unknown", f"Whether mistakes are uncertain cannot be seen: {wrong} rows are wrong")
    said = f"a wrong row was less certain than a right one in {percent(auroc)} of all pairs"
    if auroc < expected:
        return Finding(
            "detection",
            "caution",
            f"Mistakes show less than they should: {said}, at least {percent(expected)} expected",
        )
    if low > 0.5:
        return Finding("detection", "good", f"Mistakes show: {said}")
    return Finding("detection", "unknown", f"Whether mistakes are uncertain cannot be seen from these rows: {said}")


def bias_rule(mean: float, std: float, rows: int) -> Finding:
    """Predictions must lean neither way: the standardised errors (y − m)/σ must average to zero."""
    by_chance = normal_margin() * std / math.sqrt(rows)
    if rows > 1 and abs(mean) > max(0.1, by_chance):
        direction = "low" if mean > 0 else "high"
        return Finding(
            "bias", "caution", f"Predictions run too {direction}, on average by {abs(mean):.2g} of their std"
        )
    if rows < 2 or by_chance > 0.5:
        return Finding("bias", "unknown", "Too few rows to see whether predictions lean high or low")
    return Finding("bias", "good", "Predictions lean neither high nor low")


def variance_rule(explained: float) -> Finding:
    """Right error bars around useless predictions are of little use: the mean of the targets must be beaten."""
    if math.isnan(explained):
        return Finding("skill", "unknown", "The targets are all equal, so predictions cannot be told from their mean")
    if explained <= 0:
        return Finding("skill", "caution", "Predictions are no better than the mean of the test targets")
    return Finding("skill", "good", f"Predictions explain {percent(explained)} of the targets' variance")


def majority_rule(accuracy: float, majority: float) -> Finding:
    """Right probabilities of useless predictions are of little use: the most frequent class must be beaten."""
    said = f"{percent(accuracy)} are right, and always saying the most frequent class makes {percent(majority)}"
    if majority == 1:
        return Finding(
            "skill", "unknown", "All test rows are of one class, so predictions cannot be told from a constant"
        )
    if accuracy <= majority:
        return Finding("skill", "caution", f"Predictions are no better than a constant: {said}")
    return Finding("skill", "good", f"Predictions beat a constant: {said}")


def percent(share: float) -> str:
    """0.896 ↦ "89.6 %", 0.9 ↦ "90 %"."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def points(share: float) -> str:
    """A difference of shares: 0.037 ↦ "3.7 points"."""
    return f"{100 * share:.1f} points"


def count(rows: int) -> str:
    """4120 ↦ "4,120 test rows"."""
    return f"{rows:,} test row" + ("" if rows == 1 else "s")


def _expected(low: float, high: float) -> str:
    return f"between {percent(low)} and {percent(high)} expected by chance"


def _negligible(share: float, low: float, high: float) -> str:
    return "" if low <= share <= high else ": more than chance, but too little to matter"
