"""What the records say: `summary.md` with mean ranks and where DE-GP is behind, `tables.md`, and diagrams of ranks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from degp.report.figures import save_figure
from degp.runtime.files import new_file
from experiments.data.tables import CLASSIFICATION, MAX_ROWS
from experiments.protocols.independent_runs import names
from experiments.protocols.peers.cells import EXTRAPOLATION, IID, SMALLEST_PROBABILITY
from experiments.protocols.peers.classical import GP_FEATURES, GP_ROWS
from experiments.protocols.peers.contract import LEVEL
from experiments.protocols.peers.ranks import Ranking, difference_diagram, rank
from experiments.protocols.peers.registry import METHODS

__all__ = ["FULL_NAMES", "GROUPS", "TITLES", "Group", "barely_begun", "behind", "compared", "losses", "write_summary"]

Records = Sequence[Mapping[str, Any]]
FOCUS = "DE-GP"
FULL_NAMES = {
    "GP": "scikit-learn GP",
    "DE": "deep ensemble",
    "Laplace": "laplace-torch",
    "HGB": "HistGradientBoosting",
    "logistic": "logistic regression",
}


@dataclass(frozen=True)
class Group:
    """Records that are ranked together.

    Attributes:
        ranked: scores and what each turns into a loss, lower is better; diagrams are drawn of the first two.
        shown: scores in the tables.
    """

    title: str
    slug: str
    kind: str
    classes: bool
    ranked: dict[str, Callable[[float], float]]
    shown: tuple[str, ...]

    def has(self, record: Mapping[str, Any]) -> bool:
        """Whether it ranks this record."""
        return record["kind"] == self.kind and (record["dataset"] in CLASSIFICATION) == self.classes


REAL = {"nll": float, "rmse": float, "crps": float, "coverage90": lambda share: abs(share - LEVEL)}
CLASS = {"nll": float, "accuracy": lambda share: -share, "ece": float}
REAL_SHOWN = ("rmse", "nll", "crps", "coverage90", "width90")
GROUPS = (
    Group("Regression, random splits", "regression", IID, False, REAL, REAL_SHOWN),
    Group("Regression, extrapolation", "extrapolation", EXTRAPOLATION, False, REAL, REAL_SHOWN),
    Group("Classification", "classification", IID, True, CLASS, ("accuracy", "nll", "ece", "auroc_errors")),
)
TITLES = {"rmse": "RMSE", "nll": "NLL", "crps": "CRPS", "coverage90": "coverage", "width90": "width", "ece": "ECE"}
TITLES |= {"auroc_errors": "AUROC of errors"}
RULES = f"""\
Each method has its documented defaults. NLL and CRPS of HGB, LightGBM, TabM and RealMLP, which give intervals, are
those of the Gaussian whose central {100 * LEVEL:.0f} % interval is the predicted one, with a standard deviation of at
least a thousandth of the training targets'; their RMSE is that of the predicted mean. Probabilities are at least
{SMALLEST_PROBABILITY:g}. NLL is in the units of the target. Tables have at most {MAX_ROWS} rows. GP takes at most
{GP_ROWS} of the training rows, and fewer for more than {GP_FEATURES} columns: rows² × columns is bounded. Extrapolation
trains on the 80 % of rows nearest to the mean of the standardised features. Times are CPU seconds on one thread. A
failed run takes the last rank."""


def write_summary(records: Records, failures: Records, versions: Mapping[str, str], folder: Path) -> None:
    """Writes all files; diagrams need matplotlib."""
    begun = barely_begun([*records, *failures])
    records, ranked = compared(records, failures)
    groups = [group for group in GROUPS if any(group.has(record) for record in records)]
    parts = [part for group in groups for part in _section(group, records, ranked)]
    used = ", ".join(f"{name} ({version})" for name, version in versions.items())
    head = ["# Our estimators and their peers", "", f"Methods: {used}.", "", RULES, *_omitted(begun), ""]
    _write(folder / "summary.md", [*head, *parts, *_failed(failures)])
    _write(folder / "tables.md", ["# Scores by table", "", RULES, "", *_tables(groups, records)])
    if find_spec("matplotlib") is not None:
        _draw(groups, records, ranked, folder)


def compared(records: Records, failures: Records) -> tuple[Records, Records]:
    """The records and failures that are ranked: of methods that are more than begun, on splits that all have run on."""
    begun = barely_begun([*records, *failures])

    def counts(row: Mapping[str, Any]) -> bool:
        return not any(row["method"] in begun[group.slug] for group in GROUPS if group.has(row))

    records, failures = (list(filter(counts, rows)) for rows in (records, failures))
    return complete(records, failures), failures


def barely_begun(records: Records) -> dict[str, list[str]]:
    """By group, the methods that have run on less than half of its splits: they would leave few to compare."""
    return {group.slug: _barely_begun([record for record in records if group.has(record)]) for group in GROUPS}


def _barely_begun(records: Records) -> list[str]:
    splits = {method: {_split_of(r) for r in records if r["method"] == method} for method in names(records, "method")}
    every = set().union(*splits.values())
    return [method for method, own in splits.items() if 2 * len(own) < len(every)]


def _omitted(begun: Mapping[str, list[str]]) -> list[str]:
    lines = [f"- {group.title}: {', '.join(begun[group.slug])}" for group in GROUPS if begun[group.slug]]
    return ["", "Omitted, since less than half of the runs are done:", "", *lines] if lines else []


def complete(records: Records, failures: Records) -> Records:
    """The records of splits that every method has run on, so that an interrupted run compares the same rows.

    Random splits and extrapolation are compared apart: a method may have run on one of them only.
    """
    methods: dict[tuple[Any, ...], set[str]] = {}
    for record in (*records, *failures):
        methods.setdefault(_split_of(record), set()).add(record["method"])
    most: dict[tuple[Any, ...], int] = {}
    for (name, kind, _), own in methods.items():
        most[name, kind] = max(most.get((name, kind), 0), len(own))
    return [r for r in records if len(methods[_split_of(r)]) == most[r["dataset"], r["kind"]]]


def _split_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return record["dataset"], record["kind"], record["split"]


def losses(records: Records, failures: Records, group: Group, score: str) -> dict[str, dict[str, float]]:
    """The mean loss over splits of each method by table; NaN where a split failed, absent where it did not run."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in filter(group.has, records):
        found.setdefault(record["method"], {}).setdefault(record["dataset"], []).append(
            group.ranked[score](record[score])
        )
    for record in filter(group.has, failures):
        found.setdefault(record["method"], {}).setdefault(record["dataset"], []).append(math.nan)
    return {method: {name: mean(values) for name, values in own.items()} for method, own in found.items()}


def behind(records: Records, group: Group, score: str, focus: str = FOCUS) -> list[tuple[str, str]]:
    """Tables, each with its best method, that is better than `focus` in every split."""
    found = []
    for name in names([r for r in records if group.has(r)], "dataset"):
        by_split: dict[str, dict[int, float]] = {}
        for record in records:
            if group.has(record) and record["dataset"] == name:
                by_split.setdefault(record["method"], {})[record["split"]] = group.ranked[score](record[score])
        best = min(by_split, key=lambda method: mean(by_split[method].values()))
        own, others = by_split.get(focus, {}), by_split[best]
        if own and all(others.get(split, math.inf) < value for split, value in own.items()):
            found.append((name, best))
    return found


def _section(group: Group, records: Records, failures: Records) -> list[str]:
    own = [record for record in records if group.has(record)]
    rankings = {score: rank(losses(records, failures, group, score)) for score in group.ranked}
    methods = list(rankings["nll"].means)
    first = rankings["nll"]
    lines = [f"## {group.title}", "", f"Mean ranks over {len(first.tables)} tables; 1 is best.", ""]
    heads = ["method", *(TITLES.get(score, score) for score in group.ranked), "fit, s", "predict, s"]
    rows = [
        [method, *(f"{rankings[score].means[method]:.2f}" for score in group.ranked), *_times(own, method)]
        for method in methods
    ]
    lines += [*_markdown(heads, rows), "", *(_test(score, rankings[score]) for score in list(group.ranked)[:2]), ""]
    return [*lines, *_losing(group, records), ""]


def _times(own: Records, method: str) -> list[str]:
    mine = [record for record in own if record["method"] == method]
    return [f"{median(r[key] for r in mine):.3g}" if mine else "–" for key in ("fit_seconds", "predict_seconds")]


def _test(score: str, ranking: Ranking) -> str:
    if ranking.p_value is None:
        return f"- {TITLES.get(score, score)}: too few tables or methods for a test."
    return (
        f"- {TITLES.get(score, score)}: Friedman test p = {ranking.p_value:.2g}; mean ranks that differ by more than "
        f"{ranking.difference:.2f} differ significantly (Nemenyi, 5 %)."
    )


def _losing(group: Group, records: Records) -> list[str]:
    lines = [f"### Where {FOCUS} is behind", ""]
    rows = []
    for score in list(group.ranked)[:2]:
        for name, best in behind(records, group, score):
            cells = (_cell(records, group, name, method, score) for method in (FOCUS, best))
            rows.append([name, TITLES.get(score, score), *cells, best])
    if not rows:
        return [*lines, "On no table is another method ahead in every split."]
    lines += ["The best method of a table, where it is ahead in every split:", ""]
    return lines + _markdown(["table", "score", FOCUS, "best", "method"], rows)


def _tables(groups: Sequence[Group], records: Records) -> list[str]:
    lines = []
    for group in groups:
        own = [record for record in records if group.has(record)]
        for name in names(own, "dataset"):
            here = [record for record in own if record["dataset"] == name]
            rows = [[m, *(_cell(here, group, name, m, score) for score in group.shown)] for m in names(here, "method")]
            splits = len({record["split"] for record in here})
            lines += [f"## {name}: {group.title.lower()}", "", f"Mean ± standard error over {splits} splits.", ""]
            lines += [*_markdown(["method", *(TITLES.get(score, score) for score in group.shown)], rows), ""]
    return lines


def _cell(records: Records, group: Group, name: str, method: str, score: str) -> str:
    own = [r[score] for r in records if group.has(r) and (r["dataset"], r["method"]) == (name, method)]
    values = [value for value in own if value is not None]
    if not values:
        return "–"
    error = f" ± {stdev(values) / math.sqrt(len(values)):.2g}" if len(values) > 1 else ""
    return f"{mean(values):.4g}{error}"


def _failed(failures: Records) -> list[str]:
    if not failures:
        return []
    rows = [[r["method"], r["dataset"], r["kind"], str(r["split"]), r["error"].replace("|", "/")] for r in failures]
    return ["## Failed runs", "", *_markdown(["method", "table", "kind", "split", "reason"], rows), ""]


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def _draw(groups: Sequence[Group], records: Records, failures: Records, folder: Path) -> None:
    colours = {_full(name): method.colour for name, method in METHODS.items()}
    for group in groups:
        for score in list(group.ranked)[:2]:
            ranking = rank(losses(records, failures, group, score))
            if len(ranking.means) > 1 and ranking.tables:
                title = f"{group.title}: mean rank in {TITLES.get(score, score)}, {len(ranking.tables)} tables"
                ranking = replace(ranking, means={_full(name): place for name, place in ranking.means.items()})
                save_figure(difference_diagram(ranking, colours, title), folder / f"ranks_{group.slug}_{score}.png")


def _full(name: str) -> str:
    return FULL_NAMES.get(name, name)


def _write(path: Path, lines: Sequence[str]) -> None:
    with new_file(path) as draft:
        draft.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
