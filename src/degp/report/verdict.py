"""The verdict on error bars: rules, one function each, from plain numbers to a sentence.

The first finding decides the status: intervals must cover as many targets as they claim, confidence must equal
accuracy. Every other finding is "good", a "caution", or "unknown" if there are too few rows. A rule reports a problem
only if it is significant at 1 % and large enough to matter in practice.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from degp.report.statistics import CONFIDENCE, MARGIN, fraction_interval

__all__ = [
    "INTERVALS",
    "PROBABILITIES",
    "Finding",
    "bias_rule",
    "confidence_rule",
    "count",
    "coverage_rule",
    "detection_rule",
    "give_verdict",
    "groups_rule",
    "levels_rule",
    "majority_rule",
    "percent",
    "points",
    "ranking_rule",
    "reliability_rule",
    "seen_rule",
    "training_rule",
    "variance_rule",
]

NEGLIGIBLE = 0.02  # differences of two percentage points do not matter in practice
INCONCLUSIVE = 0.2  # sampling variation of twenty percentage points hides any problem

INTERVALS = {
    "trust": "Trust them",
    "overconfident": "Too narrow",
    "underconfident": "Too wide",
    "cannot_tell": "Cannot tell",
}
PROBABILITIES = INTERVALS | {"overconfident": "Overconfident", "underconfident": "Underconfident"}


@dataclass(frozen=True)
class Finding:
    """The result of one rule.

    Attributes:
        rule: its name.
        grade: for the deciding rule the status, otherwise "good", "caution" or "unknown".
        text: a sentence without its full stop.
    """

    rule: str
    grade: str
    text: str


def give_verdict(deciding: Finding, others: Sequence[Finding], headlines: dict[str, str]) -> dict[str, Any]:
    """Status, headline, one sentence and all reasons, as plain values."""
    cautious = deciding.grade == "trust" and any(finding.grade == "caution" for finding in others)
    headline = headlines[deciding.grade] + (", with caution" if cautious else "")
    return {
        "status": deciding.grade,
        "headline": headline,
        "text": f"{headline}: {deciding.text}.",
        "reasons": [asdict(finding) for finding in (deciding, *others)],
    }


def coverage_rule(covered: int, rows: int, level: float, width_factor: float) -> Finding:
    """Intervals must cover the fraction `level` of the targets: an exact binomial test.

    Args:
        width_factor: what the widths must be multiplied by for a coverage of exactly `level`.
    """
    low, high = fraction_interval(torch.full((rows,), level, dtype=torch.float64))
    share, margin = covered / rows, min(NEGLIGIBLE, (1 - level) / 5)
    observed = f"{percent(level)} intervals cover {percent(share)} of {count(rows)} ({_expected(low, high)})"
    if share < min(low, level - margin):
        return Finding("coverage", "overconfident", f"{observed}; they need {width_factor:.2g} × the width")
    if share > max(high, level + margin):
        return Finding("coverage", "underconfident", f"{observed}; {width_factor:.2g} × the width is enough")
    if high - low > INCONCLUSIVE:
        return Finding("coverage", "cannot_tell", f"{observed}; more rows are needed to assess the coverage")
    return Finding("coverage", "trust", observed + _negligible(share, low, high))


def confidence_rule(confidence: Float[Tensor, "N"], correct: int) -> Finding:
    """Mean confidence must equal accuracy: an exact test of the number of correct rows, Poisson binomial."""
    rows = len(confidence)
    low, high = fraction_interval(confidence)
    mean, accuracy = confidence.mean().item(), correct / rows
    observed = (
        f"the mean confidence is {percent(mean)}, and {percent(accuracy)} of {count(rows)} are classified correctly "
        f"({_expected(low, high)})"
    )
    if accuracy < min(low, mean - NEGLIGIBLE):
        return Finding("confidence", "overconfident", observed)
    if accuracy > max(high, mean + NEGLIGIBLE):
        return Finding("confidence", "underconfident", observed)
    # a confidence near 1 has a narrow interval on any number of rows, but so few rows would hide an error rate of 20 %
    if high - low > INCONCLUSIVE or (1 - INCONCLUSIVE) ** rows > 1 - CONFIDENCE:
        return Finding("confidence", "cannot_tell", f"{observed}; more rows are needed to assess the confidence")
    return Finding("confidence", "trust", observed + _negligible(accuracy, low, high))


def levels_rule(error: float, bound: float, worst: tuple[float, float]) -> Finding:
    """Intervals of all other levels must be calibrated as well: the calibration error against its bound.

    Args:
        bound: what the error of calibrated intervals stays below, with probability 99 %.
        worst: the level with the largest error, and its observed coverage.
    """
    level, observed = worst
    return _calibration_rule(
        "levels",
        error,
        bound,
        good="Other levels are calibrated",
        caution="Other levels are miscalibrated",
        metric="the calibration error, averaged over all levels, is",
        worst=f"{percent(level)} intervals cover {percent(observed)}",
    )


def reliability_rule(error: float, bound: float, worst: tuple[float, float]) -> Finding:
    """Confidence must equal accuracy in every confidence bin: the ECE against its bound.

    Args:
        bound: what the ECE of calibrated probabilities stays below, with probability 99 %.
        worst: confidence and accuracy of the bin that adds most to the error.
    """
    confidence, accuracy = worst
    return _calibration_rule(
        "reliability",
        error,
        bound,
        good="High and low confidences are calibrated",
        caution="Some confidences are miscalibrated",
        metric="the expected calibration error (ECE) is",
        worst=f"predictions with a confidence near {percent(confidence)} have an accuracy of {percent(accuracy)}",
    )


def _calibration_rule(
    rule: str, error: float, bound: float, *, good: str, caution: str, metric: str, worst: str
) -> Finding:
    """Good if sampling variation explains the error or the error is negligible; unknown if the variation is large."""
    if error > max(bound, NEGLIGIBLE):
        above = f"{points(error)}, above the {points(bound)} that sampling variation explains"
        return Finding(rule, "caution", f"{caution}: {metric} {above}; {worst}")
    if bound > INCONCLUSIVE / 2:
        return Finding(rule, "unknown", f"Too few rows for details: sampling variation explains up to {points(bound)}")
    reason = (
        f"within the {points(bound)} that sampling variation explains" if error <= bound else "negligible in practice"
    )
    return Finding(rule, "good", f"{good}: {metric} {points(error)}, {reason}")


def groups_rule(covered: Sequence[float], sizes: Sequence[int]) -> Finding | None:
    """Certain and uncertain rows must have the same coverage; None if there are too few rows to group.

    Args:
        covered: coverage of each group, from the most certain group to the least certain.
    """
    groups = len(covered)
    if groups < 2:
        return None
    overall = sum(share * size for share, size in zip(covered, sizes, strict=True)) / sum(sizes)
    confidence = 1 - (1 - CONFIDENCE) / groups  # Bonferroni: one test per group
    intervals = [fraction_interval(torch.full((size,), overall, dtype=torch.float64), confidence) for size in sizes]
    gaps = [max(low - share, share - high) for share, (low, high) in zip(covered, intervals, strict=True)]
    worst = max(range(groups), key=gaps.__getitem__)
    if gaps[worst] <= 0 or abs(covered[worst] - overall) <= NEGLIGIBLE:
        return Finding("groups", "good", "Narrow and wide intervals have the same coverage, up to sampling variation")
    return Finding(
        "groups",
        "caution",
        f"Narrow and wide intervals differ in coverage: of {groups} groups from narrow to wide, group {worst + 1} has "
        f"{percent(covered[worst])} ({_expected(*intervals[worst])})",
    )


def ranking_rule(correlation: float, rows: int, expected: float, ratio: float) -> Finding:
    """Errors must grow with uncertainty: Spearman's correlation, against zero and against calibrated error bars.

    Args:
        correlation: of the absolute errors with the standard deviations; NaN if these are all equal.
        expected: what calibrated error bars of these widths exceed with probability 99 %.
        ratio: error of the least certain fifth of the rows over that of the most certain fifth.
    """
    observed = f"rank correlation {correlation:.2f}"
    if math.isnan(correlation):
        return Finding("ranking", "unknown", "All error bars have the same width, so they cannot rank the rows")
    if correlation < expected:
        return Finding(
            "ranking",
            "caution",
            f"Errors grow less with uncertainty than they should: {observed}, at least {expected:.2f} expected",
        )
    if correlation * math.sqrt(rows - 1) > MARGIN:
        return Finding(
            "ranking",
            "good",
            f"Errors grow with uncertainty: the error of the least certain fifth is {ratio:.2g} × that of the most "
            f"certain fifth",
        )
    return Finding("ranking", "unknown", f"These rows do not show whether errors grow with uncertainty ({observed})")


def detection_rule(auroc: float, low: float, wrong: int, expected: float) -> Finding:
    """Misclassified rows must be less certain: the AUROC, against one half and against calibrated probabilities.

    Args:
        auroc: NaN if every row is correct, or every row wrong.
        low: lower end of its bootstrap interval.
        expected: what calibrated probabilities exceed with probability 99 %.
    """
    if math.isnan(auroc):
        return Finding("detection", "unknown", f"Error detection cannot be assessed: {wrong} rows are misclassified")
    observed = f"a misclassified row is less certain than a correct one in {percent(auroc)} of all pairs (AUROC)"
    if auroc < expected:
        return Finding(
            "detection",
            "caution",
            f"Uncertainty detects fewer errors than it should: {observed}, at least {percent(expected)} expected",
        )
    if low > 0.5:
        return Finding("detection", "good", f"Uncertainty detects errors: {observed}")
    return Finding("detection", "unknown", f"These rows do not show whether uncertainty detects errors: {observed}")


def bias_rule(mean: float, std: float, rows: int) -> Finding:
    """Predictions must be unbiased: the standardised errors (y − m)/σ must average to zero."""
    bound = MARGIN * std / math.sqrt(rows)
    if rows > 1 and abs(mean) > max(0.1, bound):
        direction = "low" if mean > 0 else "high"
        return Finding(
            "bias",
            "caution",
            f"Predictions are too {direction}, by {abs(mean):.2g} of their standard deviation on average",
        )
    if rows < 2 or bound > 0.5:
        return Finding("bias", "unknown", "Too few rows to see whether predictions are biased")
    return Finding("bias", "good", "Predictions are unbiased, neither too high nor too low on average")


def variance_rule(explained: float) -> Finding:
    """Calibrated error bars around useless predictions are of little use: R² must be positive."""
    if math.isnan(explained):
        return Finding("skill", "unknown", "All targets are equal, so predictions cannot be compared with their mean")
    if explained <= 0:
        return Finding("skill", "caution", "Predictions are no better than the mean of the test targets")
    return Finding("skill", "good", f"Predictions explain {percent(explained)} of the targets' variance (R²)")


def majority_rule(accuracy: float, majority: float) -> Finding:
    """Calibrated probabilities of useless predictions are of little use: accuracy must exceed the largest class."""
    observed = f"the accuracy is {percent(accuracy)}, that of the most frequent class {percent(majority)}"
    if majority == 1:
        return Finding("skill", "unknown", "All test rows are of one class, so accuracy is not informative")
    if accuracy <= majority:
        return Finding("skill", "caution", f"Predictions are no better than a constant: {observed}")
    return Finding("skill", "good", f"Predictions are better than a constant: {observed}")


def training_rule(steps: int, planned: int, seconds: float) -> Finding:
    """A model whose training was cut off by a time limit has not learned all it could."""
    return Finding(
        "training",
        "caution",
        f"Training was cut off by its time limit after {seconds:.3g} s, at step {steps} of {planned}: the model may be "
        f"inaccurate and its uncertainty unreliable; train it longer",
    )


def seen_rule(known: int, rows: int) -> Finding:
    """Rows that the model was trained on say little about new ones."""
    return Finding(
        "seen",
        "caution",
        f"{known:,} of {count(rows)} equal rows of training, where errors are smaller than on new rows; evaluate on "
        f"rows that were kept apart",
    )


def percent(share: float) -> str:
    """0.896 ↦ "89.6 %", 0.9 ↦ "90 %"."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def points(share: float) -> str:
    """A difference in percentage points: 0.037 ↦ "3.7 points"."""
    return f"{100 * share:.1f} points"


def count(rows: int) -> str:
    """4120 ↦ "4,120 test rows"."""
    return f"{rows:,} test row" + ("" if rows == 1 else "s")


def _expected(low: float, high: float) -> str:
    return f"{percent(low)} to {percent(high)} expected"


def _negligible(share: float, low: float, high: float) -> str:
    return "" if low <= share <= high else ": a significant difference, but negligible in practice"
