"""Figures: a score against the number of members, and against the number of labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from degp.report.figures import legend_below, look, panels, plain_ticks, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

Records = Sequence[Mapping[str, Any]]
HEADS = ("DE", "rDE", "RMS", "DE-GP")
FLAT = ("exact GP", "Laplace full", "SNGP")  # without members
MORE = (*FLAT, "Laplace KFAC", "LoRA DE-GP", "rank-one DE-GP", "fine-tuned", "kNN")
NOTE = "lines: mean over label subsets; dots: one subset"
IMAGES = {"nll": "NLL", "auroc_svhn_mi": "SVHN AUROC by MI", "nll_corrupted": "NLL, corrupted"}
MAILS = {"nll": "NLL", "auroc_hard_ham_mi": "hard ham AUROC by MI", "nll_hard_ham": "NLL, hard ham"}


def draw(records: Records, folder: Path, data: str) -> None:
    """`<score>_by_members.png` and `<score>_by_labels.png`; DE-GP at α = 1."""
    for score, title in (MAILS if data == "mails" else IMAGES).items():
        own = [r for r in records if r.get(score) is not None and r["alpha"] in (None, 1.0)]
        if own:
            save_figure(_by_members(own, score, title), folder / f"{score}_by_members.png")
            save_figure(_by_labels(own, score, title), folder / f"{score}_by_labels.png")


def _by_members(records: Records, score: str, title: str) -> "Figure":
    """A panel per label count; methods without members are horizontal lines."""
    sizes = sorted({r["labels"] for r in records})
    figure, grid = panels(1, len(sizes), height=3.2)
    for axes, labels in zip(grid[0], sizes, strict=True):
        here = [r for r in records if r["labels"] == labels]
        for method in HEADS:
            _curve(axes, [r for r in here if r["method"] == method], "members", score, method, look(method))
        for method in FLAT:
            values = [r[score] for r in here if r["method"] == method]
            if values:
                axes.axhline(mean(values), linewidth=1.2, label=method, **look(method))
        axes.set(title=f"{labels:,} labels", xlabel="members", xscale="log")
        plain_ticks(axes.xaxis)
        axes.set_xticks(sorted({r["members"] for r in here if r["method"] in HEADS}))
    grid[0, 0].set_ylabel(title)
    legend_below(figure, grid, NOTE)
    return figure


def _by_labels(records: Records, score: str, title: str) -> "Figure":
    """A curve per method, ensembles of heads at their largest number of members."""
    figure, grid = panels(1, 1, width=4.6, height=4.2)
    axes = grid[0, 0]
    for method in (*HEADS, *MORE):
        own = [r for r in records if r["method"] == method]
        most = max((r["members"] or 0 for r in own), default=0)
        label = f"{method}, {most} {'heads' if method in HEADS else 'members'}" if most else method
        _curve(axes, [r for r in own if (r["members"] or 0) == most], "labels", score, label, look(method))
    axes.set(xlabel="labels", ylabel=title, xscale="log")
    plain_ticks(axes.xaxis)
    sizes = sorted({r["labels"] for r in records})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    legend_below(figure, grid, NOTE)
    return figure


def _curve(axes: "Axes", records: Records, x: str, score: str, label: str, style: dict[str, Any]) -> None:
    """Means over seeds as a line, single runs as dots."""
    by: dict[int, list[float]] = {}
    for record in records:
        by.setdefault(record[x], []).append(record[score])
    if not by:
        return
    places = sorted(by)
    axes.plot(places, [mean(by[place]) for place in places], marker="o", markersize=3, label=label, **style)
    for place in places:
        axes.plot([place] * len(by[place]), by[place], ".", color=style["color"], markersize=3, alpha=0.5)
