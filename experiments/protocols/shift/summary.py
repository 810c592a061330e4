"""Methods under shift compared: paired differences from rDE with intervals, and one figure."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from degp.report.figures import look, panels, save_figure
from degp.runtime.files import new_file
from experiments.protocols.image_runs import Place, Records, display, label, records_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE = "rDE"
COMPARED = ("nll", "accuracy", "nll_corrupted", "accuracy_corrupted", "auroc_svhn_mi", "auroc_svhn_entropy")
PANELS = {"nll_corrupted": "NLL under 19 corruptions", "auroc_svhn_entropy": "AUROC, SVHN, by entropy"}
QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # of Student's t, 97.5 %, from 1 degree on
Group = tuple[str, int]  # network and epochs


def write_comparison(place: Place) -> None:
    """`differences.md`, and `shift.png` of each network and number of epochs with the corruptions."""
    if not place.mesh.is_first:
        return
    records = [record for record in records_in(place) if record.get("nll_corrupted") is not None]
    groups: dict[Group, Records] = {}
    for record in records:
        groups.setdefault((record["network"], record["epochs"]), []).append(record)
    lines = ["| network | epochs | method | seeds | " + " | ".join(map(display, COMPARED)) + " |\n"]
    lines.append("|" + " --- |" * (4 + len(COMPARED)) + "\n")
    for (network, epochs), own in groups.items():
        for method, cells in differences(own).items():
            lines.append(f"| {display(network)} | {epochs} | {method} | {' | '.join(cells)} |\n")
        suffix = "" if len(groups) == 1 else f"_{network}_{epochs}".replace(" ", "_")
        save_figure(interval_figure(own), place.out / f"shift{suffix}.png")
    if records:
        with new_file(place.out / "differences.md") as draft:
            draft.write_text("".join(lines), encoding="utf-8")


def differences(records: Records) -> dict[str, list[str]]:
    """Per method the number of seeds it shares with rDE, and its mean lead with a 95 % interval over these seeds."""
    baseline = {r["seed"]: r for r in records if label(r) == BASELINE}
    table = {}
    for method in dict.fromkeys(label(r) for r in records if label(r) != BASELINE):
        own = [r for r in records if label(r) == method and r["seed"] in baseline]
        cells = [interval([r[score] - baseline[r["seed"]][score] for r in own if score in r]) for score in COMPARED]
        table[method] = [str(len(own)), *(_signed(*cell) for cell in cells)]
    return table


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of the 95 % interval by Student's t; NaN for what cannot be known."""
    if not values:
        return math.nan, math.nan
    if len(values) == 1:
        return values[0], math.nan
    degrees = min(len(values) - 1, len(QUANTILES))
    return mean(values), QUANTILES[degrees - 1] * stdev(values) / math.sqrt(len(values))


def interval_figure(records: Records) -> "Figure":
    """Corrupted NLL and OOD detection of every method: means over seeds, with 95 % intervals of several."""
    methods = sorted({label(r) for r in records}, key=lambda m: _values(records, m, "nll_corrupted")[0], reverse=True)
    figure, grid = panels(1, len(PANELS), width=5.5, height=1.2 + 0.35 * len(methods), sharey=True)
    for axes, (score, title) in zip(grid[0], PANELS.items(), strict=True):
        for place, method in enumerate(methods):
            centre, half = _values(records, method, score)
            error, colour = None if math.isnan(half) else half, look(method)["color"]
            axes.errorbar(centre, place, xerr=error, fmt="o", color=colour, capsize=3)
        axes.set_xlabel(title)
        axes.grid(False, axis="y")
    grid[0, 0].set_yticks(range(len(methods)), methods, fontsize="small")
    return figure


def _values(records: Records, method: str, score: str) -> tuple[float, float]:
    return interval([r[score] for r in records if label(r) == method and r.get(score) is not None])


def _signed(centre: float, half: float) -> str:
    if math.isnan(centre):
        return "–"
    return f"{centre:+.4f}" + ("" if math.isnan(half) else f" ± {half:.4f}")
