"""The active-learning records as tables and a figure: `summary.md` and `active.png`."""

import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from degp.report.figures import legend_below, look, panels, plain_ticks, save_figure
from experiments.protocols.independent_runs import names

__all__ = ["labels_needed", "write_summary"]

Records = list[dict[str, Any]]


def write_summary(records: Records, folder: Path) -> None:
    """Writes both into the folder."""
    sets = names(records, "dataset")
    last = max(record["labels"] for record in records)
    lines = [
        "# Active learning",
        "",
        f"Labels from which the mean RMSE stays at or below that of {last} random labels, interpolated:",
        "",
        *_table(records, lambda name, strategy: _needed_cell(records, name, strategy, last)),
    ]
    for score in ("rmse", "nll"):
        for labels in (last // 2, last):
            lines += ["", f"{score.upper()} with {labels} labels, mean ± standard error over seeds:", ""]
            lines += _table(records, lambda n, s, score=score, labels=labels: _cell(_at(records, n, s, labels, score)))
    (folder / "summary.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    save_figure(_figure(records, sets), folder / "active.png")


def labels_needed(records: Records, dataset: str, strategy: str, last: int) -> float:
    """Labels from which the mean RMSE stays at or below that of `last` random labels, or infinity."""
    target = mean(_at(records, dataset, "random", last, "rmse"))
    labels, errors = _curve(records, dataset, strategy, "rmse")
    above = [k for k, error in enumerate(errors) if error > target]
    if not above:
        return float(labels[0])
    k = above[-1]
    if k + 1 == len(labels):
        return math.inf
    share = (errors[k] - target) / (errors[k] - errors[k + 1])
    return labels[k] + share * (labels[k + 1] - labels[k])


def _needed_cell(records: Records, dataset: str, strategy: str, last: int) -> str:
    if not all(_at(records, dataset, own, last, "rmse") for own in ("random", strategy)):
        return "–"  # not yet run
    needed = labels_needed(records, dataset, strategy, last)
    return f"{needed:.0f}" if math.isfinite(needed) else f"> {last}"


def _table(records: Records, cell: Any) -> list[str]:
    strategies = names(records, "strategy")
    head = [f"| data set | {' | '.join(strategies)} |", "|---" * (len(strategies) + 1) + "|"]
    rows = [[name, *(cell(name, strategy) for strategy in strategies)] for name in names(records, "dataset")]
    return head + [f"| {' | '.join(row)} |" for row in rows]


def _figure(records: Records, sets: list[str]) -> Any:
    figure, grid = panels(2, len(sets), width=2.8, height=2.7)
    for column, name in enumerate(sets):
        for row, score in enumerate(("rmse", "nll")):
            axes = grid[row, column]
            for strategy in names(records, "strategy"):
                labels, errors = _curve(records, name, strategy, score)
                spread = [_error(_at(records, name, strategy, n, score)) for n in labels]
                low, high = (np.array(errors) + sign * np.array(spread) for sign in (-1, 1))
                axes.fill_between(labels, low, high, color=look(strategy)["color"], alpha=0.15, linewidth=0)
                axes.plot(labels, errors, label=strategy, **look(strategy))
            axes.set(title=name if row == 0 else "", ylabel=score.upper() if column == 0 else "")
            axes.set_xlabel("labels" if row else "")
            if score == "rmse":
                axes.set_yscale("log")
                plain_ticks(axes.yaxis)
    legend_below(figure, grid, "mean over seeds; bands: ± 1 standard error")
    return figure


def _curve(records: Records, dataset: str, strategy: str, score: str) -> tuple[list[int], list[float]]:
    own = [r for r in records if (r["dataset"], r["strategy"]) == (dataset, strategy)]
    labels = sorted({record["labels"] for record in own})
    return labels, [mean(_at(records, dataset, strategy, n, score)) for n in labels]


def _at(records: Records, dataset: str, strategy: str, labels: int, score: str) -> list[float]:
    """One value per seed, at the number of labels nearest to the given one."""
    own = [r for r in records if (r["dataset"], r["strategy"]) == (dataset, strategy)]
    near = min({record["labels"] for record in own}, key=lambda n: abs(n - labels), default=None)
    return [record[score] for record in own if record["labels"] == near]


def _error(values: list[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _cell(values: list[float]) -> str:
    return f"{mean(values):.3f} ± {_error(values):.3f}" if values else "–"
