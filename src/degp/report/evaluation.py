"""Evaluation of predictions on labelled rows, as a plain dict: metrics, curves, notable rows, and a verdict.

The dict holds only strings, numbers, lists and None, so that `json` can write it and `render_page` can show it. NaN and
infinite numbers become None.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from degp import metrics
from degp.metrics.checks import check_open_unit
from degp.metrics.regression import normal_quantile
from degp.report import curves
from degp.report import verdict as rules
from degp.report.predictions import (
    Array,
    ClassPredictions,
    GaussianPredictions,
    class_predictions,
    gaussian_predictions,
)
from degp.report.scores import CLASS_METRICS, detect, explained, measure, regression_metrics
from degp.report.statistics import CONFIDENCE, Resampling, rank_correlation
from degp.transforms import Identity, Transform

__all__ = ["Evaluation", "evaluate_classification", "evaluate_regression", "nothing"]

Evaluation = dict[str, Any]


def nothing() -> None:
    """Shows no progress."""


def evaluate_regression(
    mean: Array,
    epistemic_variance: Array,
    total_variance: Array,
    targets: Array,
    *,
    transform: Transform = Identity(),
    level: float = 0.9,
    resamples: int = 500,
    extremes: int = 5,
    findings: Sequence[rules.Finding] = (),
    generator: torch.Generator,
    tick: Callable[[], object] = nothing,
) -> Evaluation:
    """Calibration, sharpness and accuracy of the error bars of one real output, as a plain dict.

    Args:
        mean: predictions, (N,), as are the other three; for several outputs, call once per output.
        total_variance: of a new target: epistemic variance plus noise variance.
        transform: t, if mean and variances are of the Gaussian t(y); targets and all results are in the units of y.
        level: of the intervals that the verdict is based on.
        resamples: of the bootstrap and of the simulated calibrated model; 500 take a minute for 100,000 rows.
        extremes: how many of the most and of the least certain rows to list.
        findings: what the verdict should also say, about the model and not about these rows.
        tick: called 2 × `resamples` times, to show progress.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> mean, targets = torch.zeros(200), torch.randn(200, generator=generator)
        >>> epistemic, total = torch.full((200,), 0.2), torch.ones(200)
        >>> evaluation = evaluate_regression(mean, epistemic, total, targets, generator=generator)
    """
    check_open_unit("level", level)
    data = gaussian_predictions(mean, epistemic_variance, total_variance, targets, transform)
    sampling = Resampling(resamples, generator, tick)
    metric_values = measure(regression_metrics(level), data, sampling)
    groups = curves.regression_groups(data, level)
    order = data.std.argsort(stable=True).tolist()
    return {
        "task": "regression",
        "rows": len(data.mean),
        "level": level,
        "metrics": metric_values,
        "curves": {
            "predictions": curves.predicted_and_actual(data, level),
            "coverage": curves.coverage_curve(data),
            "calibration": curves.quantile_curve(data),
            "pit": curves.pit_histogram(data),
            "sharpness": curves.sharpness(data),
            "error_by_uncertainty": groups,
            "risk_coverage": curves.risk_curve(data.std, data.errors.abs()),
        },
        "most_certain": [_interval_row(data, row, level) for row in order[:extremes]],
        "least_certain": [_interval_row(data, row, level) for row in order[::-1][:extremes]],
        "verdict": _regression_verdict(data, level, metric_values, groups, findings, sampling),
    }


def evaluate_classification(
    probabilities: Array,
    epistemic: Array,
    labels: Array,
    class_names: Sequence[str],
    *,
    resamples: int = 500,
    extremes: int = 5,
    findings: Sequence[rules.Finding] = (),
    generator: torch.Generator,
    tick: Callable[[], object] = nothing,
) -> Evaluation:
    """Calibration, sharpness and accuracy of predicted class probabilities, as a plain dict.

    Args:
        probabilities: of each class, (N, C).
        epistemic: mutual information of each prediction, in nats, (N,): the part of its entropy that more data removes.
        labels: index of the true class, (N,).
        class_names: one per column of the probabilities.
        resamples: as in `evaluate_regression`, like `extremes`, `findings` and `tick`.

    Example:
        >>> p, labels = torch.tensor([[0.9, 0.1], [0.3, 0.7]]).repeat(50, 1), torch.tensor([0, 1, 0, 0]).repeat(25)
        >>> epistemic, generator = torch.full((100,), 0.05), torch.Generator().manual_seed(0)
        >>> evaluation = evaluate_classification(p, epistemic, labels, ["no", "yes"], generator=generator)
        >>> evaluation["metrics"]["accuracy"]["value"]
        0.75
    """
    data = class_predictions(probabilities, epistemic, labels)
    names = _names(class_names, data.probabilities.shape[1])
    sampling = Resampling(resamples, generator, tick)
    metric_values = measure(CLASS_METRICS, data, sampling)
    reliability = curves.reliability(data)
    uncertainty = metrics.entropy(data.probabilities)
    order = uncertainty.argsort(stable=True).tolist()
    return {
        "task": "classification",
        "rows": len(data.labels),
        "classes": names,
        "metrics": metric_values,
        "curves": {
            "reliability": reliability,
            "sharpness": curves.confidence_histogram(data),
            "error_by_uncertainty": curves.class_groups(uncertainty, data),
            "risk_coverage": curves.risk_curve(uncertainty, data.wrong),
        },
        "confusion": curves.confusion(data),
        "per_class": curves.per_class(data, names),
        "most_certain": [_class_row(data, row, names) for row in order[:extremes]],
        "least_certain": [_class_row(data, row, names) for row in order[::-1][:extremes]],
        "verdict": _classification_verdict(data, metric_values, reliability, findings, sampling),
    }


def _interval_row(data: GaussianPredictions, row: int, level: float) -> dict[str, Any]:
    mean, std, target = (column[row].item() for column in (data.mean, data.std, data.targets))
    q = normal_quantile(level)
    low, high = (data.targets_at(z)[row].item() for z in (-q, q))
    return {
        "row": row,
        "prediction": mean,
        "low": low,
        "high": high,
        "target": target,
        "std": std,
        "epistemic_std": data.epistemic[row].sqrt().item(),
        "inside": low <= target <= high,
    }


def _class_row(data: ClassPredictions, row: int, names: Sequence[str]) -> dict[str, Any]:
    return {
        "row": row,
        "prediction": names[int(data.predicted[row])],
        "confidence": data.confidence[row].item(),
        "target": names[int(data.labels[row])],
        "entropy": metrics.entropy(data.probabilities[row : row + 1]).item(),
        "epistemic": data.epistemic[row].item(),
        "correct": not data.wrong[row].item(),
    }


def _regression_verdict(
    data: GaussianPredictions,
    level: float,
    metric_values: dict[str, Any],
    groups: dict[str, Any],
    more: Sequence[rules.Finding],
    sampling: Resampling,
) -> dict[str, Any]:
    N, z = len(data), data.z
    curve = metrics.calibration_curve(*data.columns, num_levels=51)
    furthest = (curve.observed - curve.expected).abs().argmax()
    worst = (curve.expected[furthest].item(), curve.observed[furthest].item())
    bound, expected = _interval_bounds(data, sampling)
    correlation = rank_correlation(data.errors.abs(), data.std)
    findings = [
        rules.levels_rule(metric_values["calibration_error"]["value"], bound, worst),
        rules.groups_rule(groups["coverage"], groups["count"]),
        rules.ranking_rule(correlation, N, expected, _fifths_ratio(data)),
        rules.bias_rule(z.mean().item(), z.std(correction=0).item(), N),
        rules.variance_rule(explained(*data.moments[::2])),
        *more,
    ]
    covered = round(metrics.coverage(*data.columns, level) * N)
    width_factor = z.abs().quantile(level).item() / normal_quantile(level)
    deciding = rules.coverage_rule(covered, N, level, width_factor)
    return rules.give_verdict(deciding, [finding for finding in findings if finding], rules.INTERVALS)


def _classification_verdict(
    data: ClassPredictions,
    metric_values: dict[str, Any],
    reliability: dict[str, Any],
    more: Sequence[rules.Finding],
    sampling: Resampling,
) -> dict[str, Any]:
    weighted = [
        n * abs(c - a)
        for n, c, a in zip(reliability["count"], reliability["confidence"], reliability["accuracy"], strict=True)
    ]
    heaviest = weighted.index(max(weighted))
    worst = (reliability["confidence"][heaviest], reliability["accuracy"][heaviest])
    bound, expected = _probability_bounds(data, sampling)
    wrong, N = int(data.wrong.sum()), len(data.labels)
    auroc = detect(metrics.entropy(data.probabilities), data.wrong)
    majority = data.labels.bincount().max().item() / N
    findings = [
        rules.reliability_rule(metric_values["ece"]["value"], bound, worst),
        rules.detection_rule(auroc, metric_values["auroc_total"]["low"] or 0.0, wrong, expected),
        rules.majority_rule(1 - wrong / N, majority),
        *more,
    ]
    return rules.give_verdict(rules.confidence_rule(data.confidence, N - wrong), findings, rules.PROBABILITIES)


def _interval_bounds(data: GaussianPredictions, sampling: Resampling) -> tuple[float, float]:
    """99 % bounds if the error bars were calibrated: the calibration error is below, the rank correlation above."""
    zero, one = torch.zeros_like(data.mean)[:, None], torch.ones_like(data.mean)[:, None]
    simulated = []
    for generator in sampling:
        z = torch.randn(len(data.mean), generator=generator, dtype=torch.float64)
        error = metrics.calibration_error(zero, one, z[:, None])
        simulated.append([error, rank_correlation((data.targets_at(z) - data.mean).abs(), data.std)])
    return _bounds(simulated)


def _probability_bounds(data: ClassPredictions, sampling: Resampling) -> tuple[float, float]:
    """99 % bounds if the probabilities were calibrated: the ECE is below, the AUROC of error detection above."""
    N, C = data.probabilities.shape
    uncertainty = metrics.entropy(data.probabilities)
    simulated = []
    for generator in sampling:
        wrong = torch.rand(N, generator=generator, dtype=torch.float64) >= data.confidence
        labels = (data.predicted + wrong.long()) % C  # neither depends on which wrong class it is
        simulated.append([metrics.ece(data.probabilities, labels), detect(uncertainty, labels != data.predicted)])
    return _bounds(simulated)


def _bounds(simulated: list[list[float]]) -> tuple[float, float]:
    """The 99 % quantile of the first column and the 1 % quantile of the second."""
    first, second = torch.tensor(simulated, dtype=torch.float64).T
    return first.quantile(CONFIDENCE).item(), second.nanquantile(1 - CONFIDENCE).item()


def _fifths_ratio(data: GaussianPredictions) -> float:
    """Root mean squared error of the least certain fifth of the rows over that of the most certain fifth."""
    order = data.errors[data.std.argsort(stable=True)].square()
    fifth = math.ceil(len(order) / 5)
    return (order[-fifth:].mean() / order[:fifth].mean()).sqrt().item()


def _names(class_names: Sequence[str], columns: int) -> list[str]:
    if len(class_names) != columns:
        raise ValueError(
            f"class_names must hold one name for each of the {columns} columns of probabilities, "
            f"but hold {len(class_names)}; name every class, also those without test rows"
        )
    return [str(name) for name in class_names]
