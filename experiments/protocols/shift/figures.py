"""Two figures of methods under shift: corrupted NLL and OOD detection of all, and scores against training time."""

import math
import re
from collections.abc import Mapping
from statistics import mean
from typing import TYPE_CHECKING

from degp.report.figures import COLOURS, legend_below, look, panels, plain_ticks
from experiments.protocols.image_records import Facts, Records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {"nll_corrupted": "NLL under 19 corruptions", "auroc_svhn_entropy": "AUROC, SVHN, by entropy"}
PARETO = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "nll_corrupted": "NLL under 19 corruptions",
    "auroc_svhn_entropy": "AUROC, SVHN, by entropy",
}
FALLING = ("nll", "nll_corrupted")  # lower is better
PLAIN = ("DE", "rDE", "RMS", "DE-GP")  # of the Pareto figure: neither controls nor peers
KINDS = {"whole networks": "o", "rank-one members": "^", "heads": "s"}
PEERS = {"SNGP": COLOURS["SNGP"], "last-layer Laplace": COLOURS["Laplace full"], "MC dropout": COLOURS["fine-tuned"]}
PLAIN_PRIOR = re.compile(r", prior lite resnet8( S=5)?(?=,|$)")


def interval_figure(values: Mapping[str, Mapping[str, tuple[float, float]]]) -> "Figure":
    """Each method's centre and half-width, ordered by the first panel's score."""
    methods = sorted(values, key=lambda method: values[method]["nll_corrupted"][0], reverse=True)
    figure, grid = panels(1, len(PANELS), width=5.0, height=1.0 + 0.3 * len(methods), sharey=True)
    for axes, (score, title) in zip(grid[0], PANELS.items(), strict=True):
        for place, method in enumerate(methods):
            centre, half = values[method][score]
            error = None if math.isnan(half) else half
            axes.errorbar(centre, place, xerr=error, fmt="o", color=colour(method), capsize=3)
        axes.set_xlabel(title)
        axes.grid(False, axis="y")
    grid[0, 0].set_yticks(range(len(methods)), [short(method) for method in methods], fontsize="small")
    return figure


def pareto_figure(records: Records) -> "Figure":
    """Means over seeds against seconds of training per epoch; M beside each, hollow with context images."""
    plain = [r for r in records if r["method"] in PLAIN and not r.get("augmentation")]
    points: dict[tuple[str, str, bool, int], Records] = {}
    for record in plain:
        key = kind(record), record["method"], bool(record.get("context")), record["members"]
        points.setdefault(key, []).append(record)
    figure, grid = panels(2, 2, width=3.6, height=2.9, sharex=True)
    for axes, (score, title) in zip(grid.flat, PARETO.items(), strict=True):
        places = {key: _place(own, score) for key, own in points.items()}
        places = {key: place for key, place in places.items() if not math.isnan(place[1])}
        for (networks, method, context, members), (x, y) in places.items():
            name = f"{method}, {networks}" + (", context" if context else "")
            style = {"color": look(method)["color"], "markerfacecolor": "white" if context else None}
            axes.plot(x, y, KINDS[networks], markersize=6, label=name, **style)
            axes.annotate(f"{members}", (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
        _front(axes, list(places.values()), falling=score in FALLING)
        axes.set_ylabel(title)
        axes.set_xscale("log")
        axes.margins(x=0.15, y=0.1)
    for axes in grid[-1]:
        plain_ticks(axes.xaxis)
        axes.set_xlabel("seconds of training per epoch")
    legend_below(figure, grid, "numbers: members; line: no other is as fast and better")
    return figure


def kind(record: Facts) -> str:
    """How members share weights, by the name of their networks."""
    network = record["network"]
    if "rank-one" in network:
        return "rank-one members"
    return "heads" if "trunk" in network or "heads" in network else "whole networks"


def colour(method: str) -> str:
    """Of a peer that has one, else of the method that it was trained as."""
    known = [own for name, own in PEERS.items() if name in method]
    return known[0] if known else look(method)["color"]


def short(method: str) -> str:
    """A label without what is usual in this experiment: β and the prior of 8 layers."""
    return PLAIN_PRIOR.sub("", method.replace(", β = 0.1", "")).replace("32 context images", "context")


def _place(records: Records, score: str) -> tuple[float, float]:
    values = [record[score] for record in records if record.get(score) is not None]
    return mean(record["seconds_per_epoch"] for record in records), mean(values) if values else math.nan


def _front(axes: "Axes", points: list[tuple[float, float]], *, falling: bool) -> None:
    """A line through the points that no faster one surpasses."""
    sign, front = (-1 if falling else 1), []
    for x, y in sorted(points):
        if not front or sign * y > sign * front[-1][1]:
            front.append((x, y))
    if front:
        axes.plot(*zip(*front, strict=True), color="#bbbbbb", linewidth=1, zorder=0)
