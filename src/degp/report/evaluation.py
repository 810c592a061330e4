"""From predictions and what came true to a plain dict: metrics, curves, rows to look at, and a verdict.

The dict holds strings, numbers, lists and None only, so that `json` writes it and `render_page` shows it. A number that
is undefined or infinite is None.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from degp import metrics
from degp.metrics.checks import check_at_least, check_open_unit
from degp.report import curves
from degp.report import verdict as rules
from degp.report.chance import CHANCE, bootstrap, normal_margin, rank_correlation
from degp.report.outcomes import Array, Classes, Gaussians, classes, finite, gaussians

LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Measure:
    """A metric in the report.

    Attributes:
        unit: "share", "target" (that of the targets), "nats" or "plain".
        best: "lower", "higher", the number to be met, or None where neither is better by itself.
        compute: its value from the columns of the data.
        least: the lowest value that it can have; an interval does not reach below it.
    """

    label: str
    unit: str
    best: str | float | None
    compute: Callable[..., float]
    least: float = 0.0


def evaluate_regression(
    mean: Array,
    epistemic_variance: Array,
    total_variance: Array,
    targets: Array,
    *,
    level: float = 0.9,
    resamples: int = 500,
    extremes: int = 5,
    generator: torch.Generator,
) -> dict[str, Any]:
    """How far the error bars of one real output can be trusted, as a plain dict.

    Args:
        mean: predictions, (N,), like the other three; for several outputs call once for each.
        total_variance: of a new target: epistemic variance plus noise.
        level: of the intervals that the verdict is about.
        resamples: of the bootstrap, and repetitions with right error bars; 500 take a minute at 100,000 rows.
        extremes: how many of the most and of the least certain rows to list.
    """
    check_open_unit("level", level)
    data = gaussians(mean, epistemic_variance, total_variance, targets)
    measured = _measure(_regression_measures(level), data.columns, resamples=resamples, generator=generator)
    groups = curves.regression_groups(data, level)
    order = data.std.argsort(stable=True).tolist()
    return {
        "task": "regression",
        "rows": len(data.mean),
        "level": level,
        "metrics": measured,
        "curves": {
            "coverage": curves.coverage_curve(data),
            "calibration": curves.quantile_curve(data),
            "pit": curves.pit_histogram(data),
            "sharpness": curves.sharpness(data),
            "error_by_uncertainty": groups,
            "risk_coverage": curves.risk_curve(data.std, data.errors.abs()),
        },
        "most_certain": [_interval_row(data, row, level) for row in order[:extremes]],
        "least_certain": [_interval_row(data, row, level) for row in order[::-1][:extremes]],
        "verdict": _regression_verdict(data, level, measured, groups, resamples=resamples, generator=generator),
    }


def evaluate_classification(
    probabilities: Array,
    epistemic: Array,
    labels: Array,
    class_names: Sequence[str],
    *,
    resamples: int = 500,
    extremes: int = 5,
    generator: torch.Generator,
) -> dict[str, Any]:
    """How far predicted class probabilities can be trusted, as a plain dict.

    Args:
        probabilities: of each class, (N, C).
        epistemic: what more data would remove of each prediction's entropy, in nats, (N,).
        labels: index of the true class, (N,).
        class_names: one a column of the probabilities.
        resamples: as in `evaluate_regression`, and so is `extremes`.
    """
    data = classes(probabilities, epistemic, labels)
    names = _names(class_names, data.probabilities.shape[1])
    measured = _measure(CLASSIFICATION, data.columns, resamples=resamples, generator=generator)
    reliability = curves.reliability(data)
    uncertainty = metrics.entropy(data.probabilities)
    order = uncertainty.argsort(stable=True).tolist()
    return {
        "task": "classification",
        "rows": len(data.labels),
        "classes": names,
        "metrics": measured,
        "curves": {
            "reliability": reliability,
            "sharpness": curves.confidence_histogram(data),
            "error_by_uncertainty": curves.class_groups(uncertainty, data),
            "risk_coverage": curves.risk_curve(uncertainty, data.wrong),
        },
        "confusion": curves.confusion(data),
        "most_certain": [_class_row(data, row, names) for row in order[:extremes]],
        "least_certain": [_class_row(data, row, names) for row in order[::-1][:extremes]],
        "verdict": _classification_verdict(data, measured, reliability, resamples=resamples, generator=generator),
    }


def _regression_measures(level: float) -> dict[str, Measure]:
    coverages = {
        f"coverage_{round(100 * p):d}": Measure(
            f"Coverage at {rules.percent(p)}", "share", p, lambda m, v, y, p=p: metrics.coverage(m, v, y, p)
        )
        for p in LEVELS
    }
    return {
        "rmse": Measure("RMSE", "target", "lower", lambda m, v, y: metrics.rmse(m, y)),
        "mae": Measure("Mean absolute error", "target", "lower", lambda m, v, y: metrics.mae(m, y)),
        "nll": Measure("Negative log-likelihood", "nats", "lower", metrics.gaussian_nll, -math.inf),
        "crps": Measure("CRPS", "target", "lower", metrics.crps),
        **coverages,
        "interval_width": Measure(
            f"Mean width at {rules.percent(level)}",
            "target",
            None,
            lambda m, v, y: metrics.interval_width(v, level),
        ),
        "calibration_error": Measure("Calibration error", "share", "lower", metrics.calibration_error),
        "rank_correlation": Measure(
            "Rank correlation, error and width",
            "plain",
            "higher",
            lambda m, v, y: rank_correlation((y - m).abs().flatten(), v.flatten()),
            -1.0,
        ),
    }


def _detect(uncertainty: Float[Tensor, "N"], wrong: Bool[Tensor, "N"]) -> float:
    """AUROC of wrong rows by their uncertainty; NaN where all rows are right, or all wrong."""
    return math.nan if wrong.all() or not wrong.any() else metrics.auroc(uncertainty, wrong)


CLASSIFICATION = {
    "accuracy": Measure("Accuracy", "share", "higher", lambda p, e, y: metrics.accuracy(p, y)),
    "nll": Measure("Negative log-likelihood", "nats", "lower", lambda p, e, y: metrics.nll(p, y)),
    "brier": Measure("Brier score", "plain", "lower", lambda p, e, y: metrics.brier(p, y)),
    "ece": Measure("Calibration error (ECE)", "share", "lower", lambda p, e, y: metrics.ece(p, y)),
    "auroc_total": Measure(
        "Mistakes found (AUROC)",
        "share",
        "higher",
        lambda p, e, y: _detect(metrics.entropy(p), p.argmax(-1) != y),
    ),
    "auroc_epistemic": Measure(
        "Mistakes found, epistemic",
        "share",
        "higher",
        lambda p, e, y: _detect(e, p.argmax(-1) != y),
    ),
}


def _measure(
    measures: Mapping[str, Measure], columns: Sequence[Tensor], *, resamples: int, generator: torch.Generator
) -> dict[str, Any]:
    """Each metric with its bootstrap interval of 95 %; the resampled rows are the same for all of them."""
    check_at_least("resamples", resamples, 2)

    def values(rows: Tensor) -> Tensor:
        chosen = [column[rows] for column in columns]
        return torch.tensor([measure.compute(*chosen) for measure in measures.values()], dtype=torch.float64)

    N = len(columns[0])
    observed = values(torch.arange(N))
    ends = bootstrap(values, observed, N, resamples=resamples, generator=generator)
    triples = torch.cat([observed[None], ends]).T.tolist()
    return {
        name: {
            "label": measure.label,
            "unit": measure.unit,
            "best": measure.best,
            "value": finite(value),
            "low": finite(max(low, measure.least)),
            "high": finite(min(high, 1.0) if measure.unit == "share" else high),
        }
        for (name, measure), (value, low, high) in zip(measures.items(), triples, strict=True)
    }


def _interval_row(data: Gaussians, row: int, level: float) -> dict[str, Any]:
    mean, std, target = (column[row].item() for column in (data.mean, data.std, data.targets))
    half = metrics.interval_width(data.variance[row].view(1, 1), level) / 2
    return {
        "row": row,
        "prediction": mean,
        "low": mean - half,
        "high": mean + half,
        "target": target,
        "std": std,
        "epistemic_std": data.epistemic[row].sqrt().item(),
        "inside": abs(target - mean) <= half,
    }


def _class_row(data: Classes, row: int, names: Sequence[str]) -> dict[str, Any]:
    return {
        "row": row,
        "prediction": names[int(data.predicted[row])],
        "confidence": data.confidence[row].item(),
        "target": names[int(data.labels[row])],
        "entropy": metrics.entropy(data.probabilities[row : row + 1]).item(),
        "epistemic": data.epistemic[row].item(),
        "right": not data.wrong[row].item(),
    }


def _regression_verdict(
    data: Gaussians,
    level: float,
    measured: dict[str, Any],
    groups: dict[str, Any],
    *,
    resamples: int,
    generator: torch.Generator,
) -> dict[str, Any]:
    N, z = len(data.mean), data.errors / data.std
    curve = metrics.calibration_curve(*data.columns, num_levels=51)
    furthest = (curve.observed - curve.expected).abs().argmax()
    worst = (curve.expected[furthest].item(), curve.observed[furthest].item())
    by_chance, expected = _if_right(data, resamples=resamples, generator=generator)
    correlation = rank_correlation(data.errors.abs(), data.std)
    findings = [
        rules.levels_rule(measured["calibration_error"]["value"], by_chance, worst),
        rules.groups_rule(groups["coverage"], groups["count"]),
        rules.ranking_rule(correlation, N, expected, _fifths_ratio(data)),
        rules.bias_rule(z.mean().item(), z.std(correction=0).item(), N),
        rules.variance_rule(_explained(data)),
    ]
    held = round(metrics.coverage(*data.columns, level) * N)
    stretch = z.abs().quantile(level).item() / normal_margin(level)
    deciding = rules.coverage_rule(held, N, level, stretch)
    return rules.give_verdict(deciding, [finding for finding in findings if finding], rules.INTERVALS)


def _classification_verdict(
    data: Classes,
    measured: dict[str, Any],
    reliability: dict[str, Any],
    *,
    resamples: int,
    generator: torch.Generator,
) -> dict[str, Any]:
    weighted = [
        n * abs(c - a)
        for n, c, a in zip(reliability["count"], reliability["confidence"], reliability["accuracy"], strict=True)
    ]
    heaviest = weighted.index(max(weighted))
    worst = (reliability["confidence"][heaviest], reliability["accuracy"][heaviest])
    by_chance, expected = _if_sure(data, resamples=resamples, generator=generator)
    wrong, N = int(data.wrong.sum()), len(data.labels)
    auroc = _detect(metrics.entropy(data.probabilities), data.wrong)
    majority = data.labels.bincount().max().item() / N
    findings = [
        rules.reliability_rule(measured["ece"]["value"], by_chance, worst),
        rules.detection_rule(auroc, measured["auroc_total"]["low"] or 0.0, wrong, expected),
        rules.majority_rule(1 - wrong / N, majority),
    ]
    return rules.give_verdict(rules.confidence_rule(data.confidence, N - wrong), findings, rules.PROBABILITIES)


def _if_right(data: Gaussians, *, resamples: int, generator: torch.Generator) -> tuple[float, float]:
    """If the error bars were right: the calibration error chance stays below, the rank correlation it stays above."""
    zero, one = torch.zeros_like(data.mean)[:, None], torch.ones_like(data.mean)[:, None]
    repeated = []
    for _ in range(resamples):
        z = torch.randn(len(data.mean), generator=generator, dtype=torch.float64)
        error = metrics.calibration_error(zero, one, z[:, None])
        repeated.append([error, rank_correlation((data.std * z).abs(), data.std)])
    return _extremes(repeated)


def _if_sure(data: Classes, *, resamples: int, generator: torch.Generator) -> tuple[float, float]:
    """If the probabilities were right: the ECE chance stays below, the AUROC of mistakes it stays above."""
    N, C = data.probabilities.shape
    uncertainty = metrics.entropy(data.probabilities)
    repeated = []
    for _ in range(resamples):
        wrong = torch.rand(N, generator=generator, dtype=torch.float64) >= data.confidence
        labels = (data.predicted + wrong.long()) % C  # which wrong class it is matters to neither
        repeated.append([metrics.ece(data.probabilities, labels), _detect(uncertainty, labels != data.predicted)])
    return _extremes(repeated)


def _extremes(repeated: list[list[float]]) -> tuple[float, float]:
    """The quantile at 99 % of the first column, and at 1 % of the second."""
    first, second = torch.tensor(repeated, dtype=torch.float64).T
    return first.quantile(CHANCE).item(), second.nanquantile(1 - CHANCE).item()


def _fifths_ratio(data: Gaussians) -> float:
    """Root mean squared error of the least certain fifth of the rows over that of the most certain fifth."""
    order = data.errors[data.std.argsort(stable=True)].square()
    fifth = math.ceil(len(order) / 5)
    return (order[-fifth:].mean() / order[:fifth].mean()).sqrt().item()


def _explained(data: Gaussians) -> float:
    """R² = 1 − Σ(y − m)² / Σ(y − ȳ)²; NaN where all targets are equal."""
    spread = (data.targets - data.targets.mean()).square().sum().item()
    return 1 - data.errors.square().sum().item() / spread if spread > 0 else math.nan


def _names(class_names: Sequence[str], columns: int) -> list[str]:
    if len(class_names) != columns:
        raise ValueError(
            f"class_names must hold one name for each of the {columns} columns of probabilities, "
            f"but hold {len(class_names)}"
        )
    return [str(name) for name in class_names]
