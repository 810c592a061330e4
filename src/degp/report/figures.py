"""Figures drawn with matplotlib, and their style sheet: a method has the same colour, line and name in all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from degp.runtime.files import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "LINES",
    "STYLE",
    "Band",
    "band_grid",
    "draw_band",
    "legend_below",
    "look",
    "panels",
    "plain_ticks",
    "save_figure",
]

COLOURS = {
    "DE": "#b5651d",
    "rDE": "#7a5195",
    "RMS": "#2f9e6e",
    "DE-GP": "#1f5fbf",
    "NN-GP": "#444444",
    # other posteriors on the features of a network
    "exact GP": "#444444",
    "Laplace full": "#16a3b8",
    "Laplace KFAC": "#7fd1dd",
    "SNGP": "#e08214",
    "LoRA DE-GP": "#8fb2e8",
    "rank-one DE-GP": "#12335f",
    "fine-tuned": "#c0392b",
    "kNN": "#999999",
    # models and rules of decisions
    "SingleTaskGP": "#444444",
    "EnsembleModel": "#b5651d",
    "linear": "#d1495b",
    "ε-greedy": "#c9a227",
    "random": "#999999",
    "uniform": "#999999",
    # acquisition rules of active learning, all of them on DE-GP
    "joint information": "#1f5fbf",
    "variance reduction": "#4aa3df",
    "single information": "#12335f",
}
LINES: dict[str, Any] = {
    "DE": "--",
    "rDE": "-.",
    "RMS": (0, (1, 1)),
    "NN-GP": (0, (6, 1.5)),
    "exact GP": (0, (6, 1.5)),
    "Laplace full": (0, (3, 1, 1, 1)),
    "Laplace KFAC": (0, (4, 2)),
    "SNGP": (0, (4, 1, 1, 1, 1, 1)),
    "LoRA DE-GP": (0, (5, 1)),
    "rank-one DE-GP": (0, (2, 1)),
    "kNN": (0, (1, 2)),
    "SingleTaskGP": (0, (6, 1.5)),
    "EnsembleModel": "--",
    "linear": (0, (4, 1, 1, 1, 1, 1)),
    "ε-greedy": (0, (3, 1, 1, 1)),
    "random": (0, (1, 2)),
    "uniform": (0, (1, 2)),
    "variance reduction": (0, (5, 1)),
    "single information": (0, (2, 1)),
}
OTHER = "#888888"  # what has no colour of its own
DATA = "#d62728"
STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "figure.constrained_layout.use": True,
}


def look(name: str) -> dict[str, Any]:
    """Colour and line of a method, for `axes.plot`; of "DE-GP β = 0" or "DE, disagreement" those of its first word.

    Example:
        >>> look("DE-GP β = 0")
        {'color': '#1f5fbf', 'linestyle': '-'}
    """
    known = name if name in COLOURS else name.split()[0].rstrip(",")
    return {"color": COLOURS.get(known, OTHER), "linestyle": LINES.get(known, "-")}


def panels(rows: int, columns: int, *, width: float = 3.2, height: float = 2.6, **shared: Any) -> "tuple[Figure, Any]":
    """A figure in the style of all figures, and its axes as an array (rows, columns).

    Args:
        width: of a panel, in inches.
        height: of a panel, in inches.
        shared: `sharex` and `sharey` of `plt.subplots`.

    Example:
        >>> figure, grid = panels(1, 2)
        >>> line = grid[0, 0].plot([1, 2], label="DE-GP", **look("DE-GP"))
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        return plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False, **shared)


def plain_ticks(axis: Any) -> None:
    """Ticks of a logarithmic axis as plain numbers, 0.5 or 20, instead of powers of ten.

    Example:
        >>> figure, grid = panels(1, 1)
        >>> line = grid[0, 0].semilogx([0.5, 20], [1, 2])
        >>> plain_ticks(grid[0, 0].xaxis)
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(MaxNLocator(5) if high < 10 * low else LogLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def legend_below(figure: "Figure", grid: Any, note: str = "") -> None:
    """One legend for all panels, below them, with a line that says what bands and dots are.

    Example:
        >>> figure, grid = panels(1, 2)
        >>> lines = [axes.plot([1, 2], label=name, **look(name)) for axes, name in zip(grid.flat, ["DE", "DE-GP"])]
        >>> legend_below(figure, grid, "mean of five seeds")
    """
    entries = {label: h for axes in grid.flat for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    style: dict[str, Any] = {"loc": "outside lower center", "fontsize": 9, "frameon": False}
    style |= {"title": note, "title_fontsize": 8.5} if note else {}
    for columns in range(max(1, min(len(entries), int(1.1 * figure.get_figwidth()))), 0, -1):
        legend = figure.legend(entries.values(), entries.keys(), ncols=columns, **style)
        if columns == 1 or legend.get_window_extent().width < figure.bbox.width:
            return
        legend.remove()


@dataclass(frozen=True)
class Band:
    """A function of one variable with its uncertainty: mean and standard deviation at N inputs, M members."""

    inputs: Float[Tensor, "N"]
    mean: Float[Tensor, "N"]
    std: Float[Tensor, "N"]
    members: Float[Tensor, "M N"] | None = None


def draw_band(axes: "Axes", band: Band, data: tuple[Tensor, Tensor], *, colour: str = COLOURS["DE-GP"]) -> None:
    """Draws the mean, one and two standard deviations around it, the members as thin lines and the data as dots.

    Example:
        >>> x = torch.linspace(-1, 1, 50)
        >>> figure, grid = panels(1, 1)
        >>> draw_band(grid[0, 0], Band(x, mean=x.sin(), std=0.1 + 0.2 * x.abs()), data=(x[::10], x[::10].sin()))
    """
    x = band.inputs.numpy()
    mean, std = band.mean.numpy(), band.std.numpy()
    for width, alpha in ((2, 0.15), (1, 0.25)):
        axes.fill_between(x, mean - width * std, mean + width * std, color=colour, alpha=alpha, linewidth=0)
    if band.members is not None:
        axes.plot(x, band.members.numpy().T, color="black", linewidth=0.3, alpha=0.25)
    axes.plot(x, mean, color=colour)
    axes.plot(*(values.numpy() for values in data), "o", color=DATA, markersize=4, zorder=5)


def band_grid(
    bands: Mapping[tuple[str, str], Band],
    data: tuple[Tensor, Tensor],
    *,
    limits: tuple[float, float] = (-4.0, 4.0),
    labels: tuple[str, str] = ("input x", "function f(x)"),
    size: tuple[float, float] = (2.6, 2.2),
) -> "Figure":
    """A grid of bands by (row, column), in order of appearance, with the names of what is drawn below it.

    Args:
        bands: each is one panel.
        data: inputs and targets, drawn as dots.
        limits: of the vertical axes.
        labels: of the horizontal and the vertical axes.
        size: width and height of a panel, in inches.
    """
    rows, columns = (list(dict.fromkeys(key[axis] for key in bands)) for axis in (0, 1))
    figure, grid = panels(len(rows), len(columns), width=size[0], height=size[1], sharex=True, sharey=True)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes = grid[i, j]
            draw_band(axes, bands[row, column], data, colour=_colour(row, column))
            axes.set_ylim(*limits)
            axes.set_title(column if i == 0 else "")
            axes.set_xlabel(labels[0] if i == len(rows) - 1 else "")
            axes.set_ylabel(f"{row}\n{labels[1]}" if len(rows) > 1 else labels[1] if j == 0 else "")
    for axes in grid[:, 1:].flat:
        axes.set_ylabel("")
    _band_legend(figure, members=any(band.members is not None for band in bands.values()))
    return figure


def _band_legend(figure: "Figure", *, members: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: dict[str, Any] = {
        "data": Line2D([], [], marker="o", linestyle="", color=DATA, markersize=4),
        "mean": Line2D([], [], color=OTHER, linewidth=1.6),
        "± 1 standard deviation": Patch(color=OTHER, alpha=0.4),
        "± 2": Patch(color=OTHER, alpha=0.15),
    }
    if members:
        entries["members"] = Line2D([], [], color="black", linewidth=0.5, alpha=0.5)
    columns = len(entries) if figure.get_figwidth() > 5 else 2
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, fontsize=9, frameon=False
    )


def save_figure(figure: "Figure", path: Path | str, *, dpi: int = 150) -> Path:
    """Saves a figure atomically and closes it.

    Example:
        >>> figure, grid = panels(1, 2)
        >>> save_figure(figure, "curves.png").name
        'curves.png'
    """
    import matplotlib.pyplot as plt

    path = Path(path)
    with new_file(path) as draft:
        figure.savefig(draft, format=path.suffix.removeprefix("."), dpi=dpi)
    plt.close(figure)
    return path


def _colour(*names: str) -> str:
    return next((COLOURS[name] for name in names if name in COLOURS), COLOURS["DE-GP"])
