"""Figures: a score against the number of members, and against the number of labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from degp.report.figures import COLOURS, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

Records = Sequence[Mapping[str, Any]]
HEADS = ("DE", "rDE", "RMS", "DE-GP")
FLAT = {"exact GP": "#444444", "Laplace full": "#16a3b8", "SNGP": "#e08214"}  # without members
MORE = {**FLAT, "Laplace KFAC": "#7fd1dd", "LoRA DE-GP": "#8fb2e8", "fine-tuned": "#c0392b", "kNN": "#999999"}
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
    import matplotlib.pyplot as plt

    sizes = sorted({r["labels"] for r in records})
    figure, panels = plt.subplots(1, len(sizes), figsize=(3.2 * len(sizes), 3), squeeze=False, layout="constrained")
    for axes, labels in zip(panels[0], sizes, strict=True):
        here = [r for r in records if r["labels"] == labels]
        for method in HEADS:
            _curve(axes, [r for r in here if r["method"] == method], "members", score, method, COLOURS[method])
        for method, colour in FLAT.items():
            values = [r[score] for r in here if r["method"] == method]
            if values:
                axes.axhline(mean(values), color=colour, linestyle="--", linewidth=1.2, label=method)
        axes.set(title=f"{labels:,} labels", xlabel="members", xscale="log")
    panels[0][0].set_ylabel(title)
    panels[0][-1].legend(frameon=False, fontsize=7)
    return figure


def _by_labels(records: Records, score: str, title: str) -> "Figure":
    """A curve per method, ensembles of heads at their largest number of members."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
    for method, colour in {**{name: COLOURS[name] for name in HEADS}, **MORE}.items():
        own = [r for r in records if r["method"] == method]
        most = max((r["members"] or 0 for r in own), default=0)
        label = f"{method}, {most}" if most else method
        _curve(axes, [r for r in own if (r["members"] or 0) == most], "labels", score, label, colour)
    axes.set(xlabel="labels", ylabel=title, xscale="log")
    axes.legend(frameon=False, fontsize=7)
    return figure


def _curve(axes: "Axes", records: Records, x: str, score: str, label: str, colour: str) -> None:
    """Means over seeds as a line, single runs as dots."""
    by: dict[int, list[float]] = {}
    for record in records:
        by.setdefault(record[x], []).append(record[score])
    if not by:
        return
    places = sorted(by)
    axes.plot(
        places, [mean(by[place]) for place in places], "o-", color=colour, linewidth=1.6, markersize=3, label=label
    )
    for place in places:
        axes.plot([place] * len(by[place]), by[place], ".", color=colour, markersize=3, alpha=0.5)
