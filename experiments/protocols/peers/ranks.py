"""Ranks over tables, whether they differ by more than chance, and the critical-difference diagram (Demšar, 2006)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Ranking", "critical_difference", "difference_diagram", "indistinguishable", "rank"]


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over tables, 1 is best.

    Attributes:
        means: by method, the best first.
        tables: that all methods have.
        p_value: of the Friedman test that all methods are alike; None for fewer than three methods or two tables.
        difference: between two mean ranks that the Nemenyi test finds significant at 5 %.
    """

    means: dict[str, float]
    tables: list[str]
    p_value: float | None
    difference: float


def rank(losses: Mapping[str, Mapping[str, float]]) -> Ranking:
    """From the losses of each method by table, lower is better; NaN, for a failure, shares the last rank.

    Without a table that all methods have, no method is ranked.
    """
    from scipy.stats import friedmanchisquare, rankdata

    methods = list(losses)
    every = dict.fromkeys(name for own in losses.values() for name in own)
    tables = [name for name in every if all(name in own for own in losses.values())]
    if not tables:
        return Ranking({}, [], None, math.inf)
    values = np.array([[losses[method][name] for method in methods] for name in tables])
    ranks = np.array([rankdata(np.where(np.isnan(row), np.inf, row)) for row in values])
    means = dict(sorted(zip(methods, ranks.mean(0).tolist(), strict=True), key=lambda item: item[1]))
    testable = len(methods) > 2 and len(tables) > 1
    p_value = float(friedmanchisquare(*ranks.T).pvalue) if testable else None
    return Ranking(means, tables, p_value, critical_difference(len(methods), len(tables)))


def critical_difference(num_methods: int, num_tables: int, level: float = 0.05) -> float:
    """Nemenyi's q √( k (k + 1) / 6N ), with q the studentised range's quantile over √2."""
    from scipy.stats import studentized_range

    if num_methods < 2 or num_tables < 1:
        return math.inf
    q = studentized_range.ppf(1 - level, num_methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(num_methods * (num_methods + 1) / (6 * num_tables)))


def indistinguishable(ranking: Ranking) -> list[tuple[str, str]]:
    """The largest groups, as their best and worst method, within which no two differ significantly."""
    names, means = list(ranking.means), list(ranking.means.values())
    ends = [max(j for j, mean in enumerate(means) if mean - means[i] <= ranking.difference) for i in range(len(means))]
    return [(names[i], names[end]) for i, end in enumerate(ends) if end > i and (i == 0 or ends[i - 1] < end)]


def difference_diagram(ranking: Ranking, colours: Mapping[str, str], title: str) -> Any:
    """Methods on the axis of mean ranks; a bar joins those that do not differ significantly."""
    import matplotlib.pyplot as plt

    names, groups = list(ranking.means), indistinguishable(ranking)
    half = -(-len(names) // 2)
    height = 0.5 + 0.28 * len(groups)
    figure, axes = plt.subplots(figsize=(7, 1.4 + 0.26 * half + 0.1 * len(groups)), layout="constrained")
    axes.hlines(0, 1, len(names), color="black", linewidth=1)
    axes.plot(range(1, len(names) + 1), [0] * len(names), "|", color="black", markersize=6)
    for place in range(1, len(names) + 1):
        axes.annotate(str(place), (place, 0.15), ha="center", va="bottom", fontsize=8)
    for level, (first, last) in enumerate(groups):
        ends = ranking.means[first] - 0.05, ranking.means[last] + 0.05
        axes.hlines(-0.35 - 0.28 * level, *ends, color="#555555", linewidth=3)
    for number, name in enumerate(names):
        left = number < half
        depth = -height - 0.5 * (number if left else len(names) - 1 - number)
        side = 0.6 if left else len(names) + 0.4
        axes.plot([ranking.means[name]] * 2 + [side], [0, depth, depth], color=colours[name], linewidth=1.2)
        label = f"{name} {ranking.means[name]:.2f}"
        axes.annotate(label, (side, depth), ha="right" if left else "left", va="center", fontsize=9)
    if ranking.difference < len(names) - 1:
        axes.plot([1, 1 + ranking.difference], [0.95, 0.95], "|-", color="black", linewidth=1)
        text = f"critical difference {ranking.difference:.2f}; grey bars join methods that differ by less"
        axes.annotate(text, (1, 1.05), fontsize=8)
    axes.set(xlim=(-1.8, len(names) + 2.8), title=title)
    axes.axis("off")
    return figure
