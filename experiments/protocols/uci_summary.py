"""What the UCI records say: means with standard errors, paired differences to DE, ranks, and the paper's figure."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from degp.report.figures import COLOURS, panels, save_figure

Records = Sequence[dict[str, Any]]
METHODS = ("DE", "rDE", "RMS", "NN-GP", "DE-GP")
STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # two-sided 95 % quantile for that many folds


def write_summary(records: Records, folder: Path) -> None:
    """`summary.md` and a figure for each protocol."""
    protocols = list(dict.fromkeys(r["protocol"] for r in records))
    pages = [_page([r for r in records if r["protocol"] == p], p) for p in protocols]
    (folder / "summary.md").write_text("# UCI regression\n\n" + "\n".join(pages), encoding="utf-8")
    for protocol in protocols:
        save_figure(_figure([r for r in records if r["protocol"] == protocol]), folder / f"figure3_{protocol}.png")


def mean_ranks(records: Records, score: str) -> dict[str, float]:
    """Each method's rank by its mean over folds, averaged over the data sets; 1 is best.

    Only methods that have run on all sets are ranked: the exact process does without large ones.
    """
    sets = dict.fromkeys(r["dataset"] for r in records)
    ranked = [method for method in METHODS if all(_scores(records, name, method, score) for name in sets)]
    ranks: dict[str, list[int]] = {method: [] for method in ranked}
    for name in sets:
        order = sorted(ranked, key=lambda method: mean(_scores(records, name, method, score)))
        for rank, method in enumerate(order, start=1):
            ranks[method].append(rank)
    return {method: mean(values) for method, values in ranks.items() if values}


def paired_difference(records: Records, name: str, method: str, score: str) -> tuple[float, float]:
    """Mean over folds of a method's score minus DE's, and half of its 95 % interval; NaN for less than two folds."""
    own, other = (_by_fold(records, name, m, score) for m in (method, "DE"))
    differences = [own[fold] - other[fold] for fold in own if fold in other]
    if len(differences) < 2:
        return math.nan, math.nan
    return mean(differences), STUDENT_95[len(differences)] * stdev(differences) / math.sqrt(len(differences))


def _page(records: Records, protocol: str) -> str:
    sets = list(dict.fromkeys(r["dataset"] for r in records))
    lines = [f'## Protocol "{protocol}"', ""]
    for score, title in (("nll", "NLL"), ("rmse", "RMSE")):
        lines += [f"### {title} (original units, mean ± s.e. over folds; lower is better)", ""]
        lines += _table(
            "data set", METHODS, [[name, *(_cell(records, name, m, score) for m in METHODS)] for name in sets]
        )
        ranks = mean_ranks(records, score)
        ranked = (f"{ranks[m]:.2f}" if m in ranks else "–" for m in METHODS)
        lines += [f"| **mean rank** | {' | '.join(ranked)} |", ""]
        lines += [f"Difference to DE in {title}, paired over folds, with its 95 % interval:", ""]
        others = [m for m in METHODS if m != "DE"]
        rows = [[name, *(_difference(records, name, m, score) for m in others)] for name in sets]
        lines += [*_table("data set", others, rows), ""]
    lines += ["### Coverage of 90 % intervals, and what DE-GP took for α", ""]
    rows = [[n, *(_coverage(records, n, m) for m in METHODS), _alphas(records, n)] for n in sets]
    lines += [*_table("data set", (*METHODS, "α by fold"), rows), ""]
    epochs = {n: max(r.get("epochs") or 0 for r in records if r["dataset"] == n) for n in sets}
    counted = [f"{name} {number}" for name, number in epochs.items() if number]  # estimators count steps
    return "\n".join([*lines, *([f"Epochs at most: {', '.join(counted)}.", ""] if counted else [])])


def _table(corner: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    head = [f"| {corner} | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    return head + [f"| {' | '.join(row)} |" for row in rows]


def _cell(records: Records, name: str, method: str, score: str) -> str:
    values = _scores(records, name, method, score)
    if not values:
        return "–"
    text = f"{mean(values):.3f}" + (f" ± {_error(values):.3f}" if len(values) > 1 else "")
    present = [m for m in METHODS if _scores(records, name, m, score)]
    best = min(present, key=lambda m: mean(_scores(records, name, m, score)))
    return f"**{text}**" if method == best else text


def _coverage(records: Records, name: str, method: str) -> str:
    values = _scores(records, name, method, "coverage90")
    return f"{mean(values):.3f}" if values else "–"


def _difference(records: Records, name: str, method: str, score: str) -> str:
    centre, half = paired_difference(records, name, method, score)
    if math.isnan(centre):
        return "–"
    return f"{centre:+.3f} ± {half:.3f}{' *' if abs(centre) > half else ''}"


def _alphas(records: Records, name: str) -> str:
    own = [r for r in records if r["dataset"] == name and r["method"] == "DE-GP"]
    return ", ".join(f"{r['alpha']:g}" for r in sorted(own, key=lambda r: r["fold"]))


def _scores(records: Records, name: str, method: str, score: str) -> list[float]:
    return list(_by_fold(records, name, method, score).values())


def _by_fold(records: Records, name: str, method: str, score: str) -> dict[int, float]:
    own = [r for r in records if r["dataset"] == name and r["method"] == method]
    return {r["fold"]: r[score] for r in sorted(own, key=lambda r: r["fold"])}


def _error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _figure(records: Records) -> Any:
    sets = list(dict.fromkeys(r["dataset"] for r in records))
    figure, axes = panels(2, len(sets), width=1.7, height=2.3)
    for row, (score, title) in enumerate((("nll", "NLL"), ("rmse", "RMSE"))):
        for column, name in enumerate(sets):
            axis = axes[row, column]
            for x, method in enumerate(METHODS):
                values = _scores(records, name, method, score)
                if values:
                    axis.errorbar(x, mean(values), _error(values), fmt="o", capsize=3, color=COLOURS[method])
            axis.set_xticks(range(len(METHODS)), METHODS if row else [""] * len(METHODS), rotation=90)
            axis.set_xlim(-0.6, len(METHODS) - 0.4)
            axis.set_title(name if row == 0 else "")
            axis.set_ylabel(title if column == 0 else "")
            axis.grid(False, axis="x")
    figure.supxlabel("mean over folds, original units; bars: ± 1 standard error", fontsize=9)
    return figure
