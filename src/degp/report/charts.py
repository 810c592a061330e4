"""Charts of the report page: the curves of an evaluation as inline SVG in the colours and the font of the page."""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from degp.report.evaluation import Evaluation
from degp.report.verdict import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Chart", "draw_charts"]

# Placeholders, because matplotlib accepts no CSS variables; the page defines the colours, for light and dark mode.
INK, MUTED, GRID, OURS, BASELINE, BAD = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
PAGE_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    OURS: "var(--ours)",
    BASELINE: "var(--baseline)",
    BAD: "var(--bad)",
}
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.fontsize": 9,
}

MAX_BARS, MAX_LABEL = 12, 24  # columns, and characters of their names


@dataclass(frozen=True)
class Chart:
    """A chart with its title and caption."""

    name: str
    title: str
    caption: str
    svg: str


def draw_charts(
    evaluation: Evaluation, rival: tuple[str, Evaluation] | None = None, relevance: Mapping[str, float] | None = None
) -> list[Chart]:
    """The charts of an evaluation.

    Args:
        rival: name and evaluation of a baseline on the same rows, whose curves are drawn too.
        relevance: the share of each column, largest first.
    """
    drawn = REGRESSION if evaluation["task"] == "regression" else CLASSIFICATION
    theirs = rival[1]["curves"] | {"label": rival[0].lower()} if rival else None
    charts = [
        Chart(name, title, caption, _svg(name, title, partial(draw, ours=evaluation["curves"], theirs=theirs)))
        for name, (title, caption, draw) in drawn.items()
    ]
    if relevance:
        title, caption = RELEVANCE
        svg = _svg("relevance", title, partial(_relevance, shares=relevance))
        charts.insert(1, Chart("relevance", title, caption, svg))
    return charts


def _relevance(axes: "Axes", shares: Mapping[str, float]) -> None:
    largest = list(shares.items())[:MAX_BARS]
    rest = sum(shares.values()) - sum(share for _, share in largest)
    bars = [(_label(name), share) for name, share in largest]
    bars += [(f"{len(shares) - MAX_BARS} others", rest)] if len(shares) > MAX_BARS else []
    places = range(len(bars))
    axes.barh(places, [share for _, share in bars], color=OURS, alpha=0.8, height=0.7)
    axes.set_yticks(places, [name for name, _ in bars])
    axes.invert_yaxis()
    axes.set(xlabel="share of the squared distance between rows")
    _in_percent(axes.xaxis)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def _label(name: str) -> str:
    """A column's name for an axis: short, and without matplotlib's mathematics."""
    return (name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…").replace("$", r"\$")


def _predictions(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    curve = ours["predictions"]
    for inside, colour, label in ((True, OURS, "inside"), (False, BAD, "outside")):
        rows = [i for i, covered in enumerate(curve["inside"]) if covered == inside]
        if rows:
            x, y, low, high = ([curve[key][i] for i in rows] for key in ("actual", "predicted", "low", "high"))
            axes.vlines(x, low, high, color=colour, alpha=0.35, linewidth=1)
            axes.plot(x, y, "o", color=colour, markersize=2.6, markeredgewidth=0, label=f"true value {label}")
    ends = [*curve["actual"], *curve["predicted"]]
    axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="true value", ylabel=f"prediction, {percent(curve['level'])} interval")
    _in_units(axes.xaxis, axes.yaxis)
    axes.legend(loc="upper left")


def _coverage(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    _fractions(axes, ours, theirs, "coverage", x="expected", y="observed")
    axes.set(xlabel="nominal level of the interval", ylabel="observed coverage")


def _calibration(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    _fractions(axes, ours, theirs, "calibration", x="expected", y="observed")
    axes.set(xlabel="predicted quantile level", ylabel="fraction of targets below")


def _reliability(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    _fractions(axes, ours, theirs, "reliability", x="confidence", y="accuracy", marker="o")
    axes.set(xlabel="confidence", ylabel="accuracy")


def _fractions(
    axes: "Axes", ours: Evaluation, theirs: Evaluation | None, name: str, *, x: str, y: str, marker: str = ""
) -> None:
    """Observed against expected fractions, with the diagonal of perfect calibration."""
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    curve = ours[name]
    _band(axes, curve[x], curve)
    if theirs:
        other = theirs[name]
        axes.plot(other[x], other[y], color=BASELINE, marker=marker, markersize=4, linewidth=1.6, label=theirs["label"])
    axes.plot(curve[x], curve[y], color=OURS, marker=marker, markersize=5, label="this model")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    _in_percent(axes.xaxis, axes.yaxis, step=0.2)
    axes.legend(loc="upper left")


def _pit(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    curve = ours["pit"]
    axes.axhspan(curve["low"], curve["high"], color=MUTED, alpha=0.18, linewidth=0, label="99 % if calibrated")
    axes.stairs(curve["counts"], curve["edges"], fill=True, color=OURS, alpha=0.55, linewidth=0, label="this model")
    if theirs:
        axes.stairs(theirs["pit"]["counts"], curve["edges"], color=BASELINE, linewidth=1.6, label=theirs["label"])
    axes.set(xlim=(0, 1), xlabel="probability integral transform (PIT)", ylabel="rows")
    _in_percent(axes.xaxis, step=0.2)
    axes.margins(y=0.28)
    axes.legend(loc="upper center", ncols=2)
    axes.grid(False, axis="x")


def _widths(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    curve = ours["sharpness"]
    axes.stairs(curve["total"], curve["edges"], fill=True, color=OURS, alpha=0.55, linewidth=0, label="total")
    axes.stairs(curve["epistemic"], curve["edges"], color=INK, linewidth=1.4, label="epistemic part")
    if theirs:
        other = theirs["sharpness"]
        axes.stairs(other["total"], other["edges"], color=BASELINE, linewidth=1.6, label=f"total, {theirs['label']}")
    axes.set(xlabel="predicted standard deviation, in units of the target", ylabel="rows")
    _in_units(axes.xaxis)
    axes.set_xlim(left=0)
    axes.legend()
    axes.grid(False, axis="x")


def _confidence(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    curve = ours["sharpness"]
    both = [correct + wrong for correct, wrong in zip(curve["correct"], curve["wrong"], strict=True)]
    axes.stairs(
        both, curve["edges"], baseline=curve["wrong"], fill=True, color=OURS, alpha=0.55, linewidth=0, label="correct"
    )
    axes.stairs(curve["wrong"], curve["edges"], fill=True, color=BAD, alpha=0.8, linewidth=0, label="wrong")
    axes.set(xlim=(0, 1), xlabel="confidence", ylabel="rows")
    _in_percent(axes.xaxis, step=0.2)
    axes.legend(loc="upper left")
    axes.grid(False, axis="x")


def _error_by_width(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    _predicted_errors(axes, ours, theirs)
    axes.set(xlabel="predicted error (standard deviation)", ylabel="observed error (RMSE)")
    _in_units(axes.xaxis, axes.yaxis)


def _error_by_confidence(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    _predicted_errors(axes, ours, theirs)
    axes.set(xlabel="predicted error rate", ylabel="observed error rate")
    _in_percent(axes.xaxis, axes.yaxis)


def _predicted_errors(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    """Observed against predicted error of groups of rows."""
    curve = ours["error_by_uncertainty"]
    _band(axes, curve["predicted"], curve)
    other = theirs["error_by_uncertainty"] if theirs else {"predicted": [], "observed": []}
    top = 1.08 * max(*curve["predicted"], *curve["observed"], *other["predicted"], *other["observed"], 1e-9)
    axes.plot([0, top], [0, top], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    if theirs:
        axes.plot(
            other["predicted"],
            other["observed"],
            "s-",
            color=BASELINE,
            markersize=4,
            linewidth=1,
            label=theirs["label"],
        )
    axes.plot(curve["predicted"], curve["observed"], "o-", color=OURS, markersize=5.5, linewidth=1, label="this model")
    axes.set(xlim=(0, top), ylim=(0, top))
    axes.legend(loc="best")


def _risk_in_units(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    _risk(axes, ours, theirs)
    axes.set_ylabel("mean absolute error")
    _in_units(axes.yaxis)


def _risk_as_rate(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    _risk(axes, ours, theirs)
    axes.set_ylabel("error rate")
    _in_percent(axes.yaxis)


def _risk(axes: "Axes", ours: Evaluation, theirs: Evaluation | None) -> None:
    for curves, colour, width in ((theirs, BASELINE, 1.6), (ours, OURS, 2.0)):
        if curves:
            curve, label = curves["risk_coverage"], curves.get("label", "this model")
            axes.plot(curve["kept"], curve["error"], color=colour, linewidth=width, label=label)
    axes.set(xlim=(0, 1), xlabel="fraction of rows kept, most certain first")
    axes.set_ylim(bottom=0)
    _in_percent(axes.xaxis, step=0.2)
    axes.legend(loc="best")


def _band(axes: "Axes", x: list[float], curve: Evaluation) -> None:
    axes.fill_between(x, curve["low"], curve["high"], color=MUTED, alpha=0.18, linewidth=0, label="99 % if calibrated")


def _in_units(*axes: Any) -> None:
    """Few ticks, with thousands separated, for values in units of the target."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}".replace("-", "−")))


def _in_percent(*axes: Any, step: float | None = None) -> None:
    """Ticks of fractions, at multiples of the step if there is one."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    for axis in axes:
        if step is not None:
            axis.set_major_locator(MultipleLocator(step))
        axis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:.3g} %"))


Draw = Callable[..., None]  # axes, ours, theirs

RELEVANCE = (
    "Relevance of the columns",
    "How much each column contributes to the distance of two rows in the prior. The prior's length scales maximise the "
    "marginal likelihood of the training rows.",
)

REGRESSION: dict[str, tuple[str, str, Draw]] = {
    "predictions": (
        "Predicted and true values",
        "Up to 200 of the test rows. A bar that crosses the dashed line covers the true value.",
        _predictions,
    ),
    "coverage": (
        "Coverage of the intervals",
        "The dashed line is perfect calibration. Below it intervals are too narrow, above it too wide.",
        _coverage,
    ),
    "calibration": (
        "Calibration of the quantiles",
        "The dashed line is perfect calibration. Above it predictions are too high, below it too low.",
        _calibration,
    ),
    "pit": (
        "Histogram of the PIT",
        "It is uniform if calibrated. U-shaped: too narrow; hump-shaped: too wide; sloped: biased.",
        _pit,
    ),
    "sharpness": (
        "Sharpness",
        "More data would reduce the epistemic part. Narrower error bars are better only if they remain calibrated.",
        _widths,
    ),
    "error_by_uncertainty": (
        "Predicted and observed error",
        "Each dot is a group of rows of similar uncertainty. On the dashed line both errors are equal.",
        _error_by_width,
    ),
    "risk_coverage": (
        "Selective prediction",
        "The error should fall towards the left, where only the rows with the narrowest intervals are kept.",
        _risk_in_units,
    ),
}

CLASSIFICATION: dict[str, tuple[str, str, Draw]] = {
    "reliability": (
        "Reliability of the confidence",
        "The dashed line is perfect calibration. Below it predictions are overconfident, above it underconfident.",
        _reliability,
    ),
    "sharpness": (
        "Sharpness",
        "Confident predictions are on the right. Errors should be on the left.",
        _confidence,
    ),
    "error_by_uncertainty": (
        "Predicted and observed error rate",
        "Each dot is a group of rows of similar uncertainty. On the dashed line both rates are equal.",
        _error_by_confidence,
    ),
    "risk_coverage": (
        "Selective prediction",
        "The error rate should fall towards the left, where only the most certain rows are kept.",
        _risk_as_rate,
    ),
}


def _svg(name: str, title: str, draw: Callable[["Axes"], None]) -> str:
    """The drawing as an inline `<svg>` element that scales with the page and has a title for screen readers."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with mpl.rc_context(STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=(4.7, 3.5), layout="constrained")
        draw(figure.subplots())
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue(), name, title)


def _inline(svg: str, name: str, title: str) -> str:
    """An SVG file without prolog and metadata, with unique ids and the colours of the page."""
    view = svg.partition('viewBox="')[2].partition('"')[0]
    body = svg[svg.index("<defs>") :]
    body = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", body)
    body = re.sub("|".join(PAGE_COLOURS), lambda found: PAGE_COLOURS[found[0]], body)
    opening = f'<svg viewBox="{view}" role="img" aria-labelledby="{name}-title">'
    return f'{opening}<title id="{name}-title">{title}</title>{body}'
