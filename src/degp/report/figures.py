"""Figures drawn with matplotlib."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from degp.runtime.files import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "Band", "band_grid", "bars", "draw_band", "save_figure"]

COLOURS = {"DE": "#b5651d", "rDE": "#7a5195", "RMS": "#2f9e6e", "DE-GP": "#1f5fbf", "NN-GP": "#444444"}


@dataclass(frozen=True)
class Band:
    """A function of one variable with its uncertainty: mean and standard deviation at N inputs, M members."""

    inputs: Float[Tensor, "N"]
    mean: Float[Tensor, "N"]
    std: Float[Tensor, "N"]
    members: Float[Tensor, "M N"] | None = None


def draw_band(axes: "Axes", band: Band, data: tuple[Tensor, Tensor], *, colour: str = "#1f5fbf") -> None:
    """Draws the mean, one and two standard deviations around it, the members as thin lines and the data as dots."""
    x = band.inputs.numpy()
    mean, std = band.mean.numpy(), band.std.numpy()
    for width, alpha in ((2, 0.15), (1, 0.25)):
        axes.fill_between(x, mean - width * std, mean + width * std, color=colour, alpha=alpha, linewidth=0)
    if band.members is not None:
        axes.plot(x, band.members.numpy().T, color="black", linewidth=0.3, alpha=0.25)
    axes.plot(x, mean, color=colour, linewidth=1.6)
    axes.plot(*(values.numpy() for values in data), "o", color="#d62728", markersize=4, zorder=5)


def band_grid(
    bands: Mapping[tuple[str, str], Band], data: tuple[Tensor, Tensor], *, limits: tuple[float, float] = (-4.0, 4.0)
) -> "Figure":
    """A grid of bands by (row, column), in order of appearance."""
    import matplotlib.pyplot as plt

    rows, columns = (list(dict.fromkeys(key[axis] for key in bands)) for axis in (0, 1))
    size = (2.6 * len(columns) + 0.4, 2.1 * len(rows) + 0.4)
    figure, grid = plt.subplots(
        len(rows), len(columns), figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes = grid[i, j]
            draw_band(axes, bands[row, column], data, colour=_colour(row, column))
            axes.set_ylim(*limits)
            if i == 0:
                axes.set_title(column)
            if j == 0:
                axes.set_ylabel(row)
    return figure


def bars(values: Mapping[str, float], *, label: str, title: str = "") -> "Figure":
    """One labelled bar per name."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4.2, 0.45 * len(values) + 1.0), layout="constrained")
    drawn = axes.barh(list(values), list(values.values()), color=[COLOURS.get(name, "#888888") for name in values])
    axes.bar_label(drawn, fmt="%.3g", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(label)
    axes.set_title(title)
    return figure


def save_figure(figure: "Figure", path: Path | str, *, dpi: int = 150) -> Path:
    """Saves a figure atomically and closes it."""
    import matplotlib.pyplot as plt

    path = Path(path)
    with new_file(path) as draft:
        figure.savefig(draft, format=path.suffix.removeprefix("."), dpi=dpi)
    plt.close(figure)
    return path


def _colour(*names: str) -> str:
    return next((COLOURS[name] for name in names if name in COLOURS), "#1f5fbf")
