"""Figures that compare methods: lines with one per seed, and box plots over corruption types."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from degp.report.figures import legend_below, look, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = tuple[Sequence[int | float], Sequence[int | float]]  # x and y
STYLES = ("-", "--", ":", "-.")
HEIGHT, LEGEND_ROW, MARGIN = 3.1, 0.2, 0.2  # in inches
USUAL = "DE-GP α = 0.01, β = 0.1"  # the paper's settings of CIFAR-10: DE-GP's own colour, a solid line
SHADES = ((1.0, 0.0), (0.55, 1.0), (0.6, 0.0), (0.3, 1.0))  # share of the colour, and the grey it is mixed with


def line_panels(panels: Mapping[str, Mapping[str, Sequence[Line]]], *, x_label: str, y_label: str) -> "Figure":
    """One panel per title: per label the mean of its lines, which share their x, and each line thinly."""
    figure, grid = _panels(len(panels))
    styles, (names, shared) = _styles(panels.values()), short_names(panels.values())
    for axes, (title, labelled) in zip(grid, panels.items(), strict=True):
        for label in labelled:
            style = styles[label]
            for x, y in labelled[label]:
                axes.plot(x, y, linewidth=0.6, alpha=0.4, **style)
            ys = np.array([y for _, y in labelled[label]], dtype=float)
            axes.plot(labelled[label][0][0], ys.mean(0), linewidth=1.6, label=names[label], **style)
        if all(isinstance(x, int) for lines in labelled.values() for xs, _ in lines for x in xs):
            axes.xaxis.get_major_locator().set_params(integer=True)
        _name(axes, title, x_label, y_label)
    repeated = any(len(lines) > 1 for labelled in panels.values() for lines in labelled.values())
    _add_legend(figure, grid, "; ".join([*(["thick: mean over seeds; thin: one seed"] * repeated), *shared]))
    return figure


def box_panels(
    panels: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]], *, x_label: str, y_label: str
) -> "Figure":
    """One panel per title, below each other: per label one box at each x, over the values there."""
    figure, grid = _stacked(len(panels))
    styles, (names, shared) = _styles(panels.values()), short_names(panels.values())
    for axes, (title, labelled) in zip(grid, panels.items(), strict=True):
        width = 0.8 / max(1, len(labelled))
        for index, label in enumerate(labelled):
            shift = (index - (len(labelled) - 1) / 2) * width
            boxes, style = labelled[label], styles[label]
            drawn = axes.boxplot(
                list(boxes.values()),
                positions=[x + shift for x in boxes],
                widths=0.9 * width,
                patch_artist=True,
                manage_ticks=False,
                flierprops={"markersize": 2},
                medianprops={"color": "black"},
            )
            for box in drawn["boxes"]:
                box.set(facecolor=style["color"], linestyle=style["linestyle"], alpha=0.7)
            drawn["boxes"][0].set_label(names[label])
        axes.set_xticks(sorted({x for boxes in labelled.values() for x in boxes}))
        _name(axes, title, x_label if axes is grid[-1] else "", y_label)
    note = "boxes: quartiles over corruptions; line: median; dots: outliers"
    legend_below(figure, np.array(grid), "; ".join([note, *shared]))
    return figure


def _panels(number: int) -> "tuple[Figure, Sequence[Axes]]":
    figure, grid = panels(1, number, width=4.2, height=HEIGHT)
    return figure, grid[0]


def _stacked(number: int) -> "tuple[Figure, Sequence[Axes]]":
    figure, grid = panels(number, 1, width=7.5, height=2.6, sharex=True)
    return figure, grid[:, 0]


def _name(axes: "Axes", title: str, x_label: str, y_label: str) -> None:
    """Small axis labels: a long one must fit its panel."""
    axes.set_title(title)
    axes.set_xlabel(x_label, fontsize="small")
    axes.set_ylabel(y_label, fontsize="small")


def _add_legend(figure: "Figure", grid: "Sequence[Axes]", note: str) -> None:
    """One legend below all panels, no wider than they are, with its own space."""
    handles = {label: h for axes in grid for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    for columns in range(min(len(handles), 2 * len(grid)), 0, -1):
        legend = figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize="small", frameon=False
        )
        if columns == 1 or legend.get_window_extent().width < figure.bbox.width:
            break
        legend.remove()
    legend.set_title(note, prop={"size": "small"})
    needed = legend.get_window_extent().width / figure.dpi + MARGIN
    figure.set_figwidth(max(figure.get_figwidth(), needed))
    figure.set_figheight(HEIGHT + LEGEND_ROW * (bool(note) + -(-len(handles) // columns)))


def short_names(panels: Iterable[Mapping[str, Any]]) -> tuple[dict[str, str], list[str]]:
    """Names by label, without the settings that all variants of a method share, and these settings."""
    settings = {label: _settings(label) for labelled in panels for label in labelled}
    common: dict[str, list[str]] = {}
    for method, own in settings.values():
        common[method] = [one for one in common.get(method, own) if one in own]
    names = {
        label: ", ".join([method, *(one for one in own if one not in common[method])])
        for label, (method, own) in settings.items()
    }
    return names, [f"{method}: {', '.join(shared)}" for method, shared in common.items() if shared]


def _settings(label: str) -> tuple[str, list[str]]:
    """ "DE-GP α = 0.01, β = 0" is DE-GP with two settings; other labels have none."""
    method = re.match(r"\S+(?= α = )", label)
    return (method[0], label[method.end() + 1 :].split(", ")) if method else (label, [])


def _styles(panels: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """One colour per method; variants such as "DE-GP" and "DE-GP β = 0" differ in shade and line style.

    For all panels together: they share one legend.
    """
    labels = dict.fromkeys(label for labelled in panels for label in labelled)
    labels = dict.fromkeys(sorted(labels, key=lambda label: label != USUAL))
    numbers = {method: count() for method in {label.split()[0] for label in labels}}
    return {label: _style(label.split()[0], next(numbers[label.split()[0]])) for label in labels}


def _style(method: str, number: int) -> dict[str, Any]:
    from matplotlib.colors import to_rgb

    share, grey = SHADES[number % len(SHADES)]
    usual = look(method)
    colour = tuple(share * part + (1 - share) * grey for part in to_rgb(usual["color"]))
    style = STYLES[(number + number // len(SHADES)) % len(STYLES)]  # a repeated shade has another style
    return {"color": colour, "linestyle": style if number else usual["linestyle"]}
