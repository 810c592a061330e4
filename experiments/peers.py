"""Our estimators against what users would choose instead: boosted trees, a Gaussian process, other networks.

Every method has its best documented defaults and sees the same rows, on one thread. A cell is a method on a split of a
table; a cell that is done, or has failed, is not run again.
"""

import os
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from degp.report import environment, save_results
from degp.report.results import require_fields
from degp.runtime.files import read_json, write_json
from experiments.data.sources import DataSetError
from experiments.data.tables import CLASSIFICATION, MAX_ROWS, TABLES, table
from experiments.protocols.deadline import Deadline
from experiments.protocols.independent_runs import earlier_records
from experiments.protocols.options import Minutes, Seeds, chosen, whole_numbers
from experiments.protocols.peers.cells import EXTRAPOLATION, IID, KINDS, TRAIN_FRACTION, Cell, run_cell
from experiments.protocols.peers.classical import GP_ROWS
from experiments.protocols.peers.contract import LEVEL
from experiments.protocols.peers.registry import METHODS, missing_modules, package_version
from experiments.protocols.peers.summary import write_summary
from experiments.protocols.peers.workers import Failure, finished

Records = list[dict[str, Any]]
FIELDS = ("dataset", "kind", "split", "method")


@dataclass(frozen=True)
class Config:
    """What all cells share."""

    level: float = LEVEL
    train_fraction: float = TRAIN_FRACTION
    max_rows: int = MAX_ROWS
    gp_rows: int = GP_ROWS
    steps: int | None = None  # of our estimators; None is their own


SMOKE_DATASETS, SMOKE_METHODS = "diabetes,iris", "DE-GP,DE,rDE,RMS,GP,logistic,HGB"


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json, summary.md, tables.md and the figures.")] = Path(
        "experiments/results/peers"
    ),
    datasets: Annotated[str | None, typer.Option(help="Names, separated by commas; all by default.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names, separated by commas; all by default.")] = None,
    seeds: Seeds = "0,1,2",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes of one thread each; default: cores.")] = None,
    minutes: Minutes = None,
    cell_minutes: Annotated[float, typer.Option(min=0, help="A cell that takes longer has failed.")] = 20.0,
    smoke: Annotated[bool, typer.Option(help="Two small tables and two steps, into OUT/smoke.")] = False,
) -> None:
    """All methods on all tables; a table or a method that is unavailable is left out."""
    config = Config(steps=2) if smoke else Config()
    every = (SMOKE_DATASETS, SMOKE_METHODS) if smoke else (",".join(TABLES), ",".join(METHODS))
    tables = chosen(every[0] if datasets is None else datasets, TABLES, "--datasets")
    names = chosen(every[1] if methods is None else methods, METHODS, "--methods")
    splits = whole_numbers("0" if smoke else seeds)
    out = out / "smoke" if smoke else out
    records = earlier_records(out, asdict(config), FIELDS)
    store = _Store(out, config, records, _earlier_failures(out), _earlier_versions(out))
    cells = [cell for cell in _planned(tables, names, splits) if not store.has(cell)]
    _run(cells, store, workers or os.cpu_count() or 1, Deadline(minutes), 60 * cell_minutes)
    if store.records:
        store.summarise()


class _Store:
    """Records, failures and versions of packages, written at once."""

    def __init__(
        self, out: Path, config: Config, records: Records, failures: Records, versions: dict[str, str]
    ) -> None:
        self.out, self.config = out, config
        self.records, self.failures, self.versions = records, failures, versions
        self.commit = environment()["commit"]
        if failures:
            typer.echo(f"{len(failures)} failed cells are not run again; delete {out / 'failures.json'} to try them")

    def has(self, cell: Cell) -> bool:
        key = tuple(asdict(cell).values())
        return any(key == tuple(r[field] for field in FIELDS) for r in (*self.records, *self.failures))

    def add(self, cell: Cell, outcome: dict[str, Any] | Failure) -> None:
        if isinstance(outcome, Failure):
            self.failures = sorted([*self.failures, asdict(cell) | {"error": outcome.reason}], key=_place)
            write_json(self.out / "failures.json", self.failures)
            return
        self.records = sorted([*self.records, asdict(cell) | outcome | {"commit": self.commit}], key=_place)
        save_results(self.out, config=asdict(self.config), records=self.records)
        if cell.method not in self.versions:
            self.versions[cell.method] = package_version(METHODS[cell.method])
            write_json(self.out / "versions.json", self.versions)

    def summarise(self) -> None:
        write_summary(self.records, self.failures, self.versions, self.out)
        typer.echo((self.out / "summary.md").read_text(encoding="utf-8"))


def _planned(datasets: list[str], methods: list[str], splits: list[int]) -> list[Cell]:
    """All cells of what is available, split by split, so that an interrupted run has complete splits."""
    usable = [method for method in methods if _is_installed(method)]
    if not usable:
        raise typer.BadParameter(f"--methods: none of {', '.join(methods)} is installed; pip install 'degp[peers]'")
    found = []
    for name in datasets:
        try:
            found.append((name, table(name).num_classes))
        except (DataSetError, OSError) as error:
            typer.echo(f"{name} is unavailable and left out: {error}", err=True)
    runs = [(IID, split) for split in splits] + [(EXTRAPOLATION, 0)]
    return [
        Cell(name, kind, split, method)
        for kind, split in runs
        for name, num_classes in found
        for method in usable
        if METHODS[method].fit_for(num_classes) is not None
        if kind == IID or name not in CLASSIFICATION
    ]


def _is_installed(method: str) -> bool:
    missing = missing_modules(METHODS[method])
    if missing:
        package = METHODS[method].package
        typer.echo(
            f"{method} is unavailable and left out: no module {', '.join(missing)}; pip install {package}", err=True
        )
    return not missing


def _run(cells: list[Cell], store: _Store, workers: int, deadline: Deadline, limit_seconds: float) -> None:
    tasks = [(cell, store.config.steps) for cell in cells]
    left, start = list(cells), time.monotonic()
    seconds: dict[str, list[float]] = {}
    with closing(
        finished(run_cell, tasks, workers=workers, deadline=deadline, limit_seconds=limit_seconds)
    ) as outcomes:
        for (cell, _), outcome in outcomes:
            store.add(cell, outcome)
            left.remove(cell)
            if not isinstance(outcome, Failure):
                seconds.setdefault(cell.method, []).append(outcome["fit_seconds"] + outcome["predict_seconds"])
            rest = _remaining_minutes(left, seconds, time.monotonic() - start)
            typer.echo(f"[{len(cells) - len(left)}/{len(cells)}, {rest:.0f} min left] {_line(cell, outcome)}")
    if left:
        typer.echo(f"the time is up with {len(left)} of {len(cells)} cells left; run the same command to resume")


def _remaining_minutes(left: list[Cell], seconds: dict[str, list[float]], elapsed: float) -> float:
    """By the mean CPU time of each method so far, and of all for one without any, at the pace of the cells so far."""
    means = {method: mean(values) for method, values in seconds.items()}
    if not means:
        return 0.0
    typical, done = mean(means.values()), sum(map(sum, seconds.values()))
    return sum(means.get(cell.method, typical) for cell in left) * elapsed / done / 60


def _line(cell: Cell, outcome: dict[str, Any] | Failure) -> str:
    name = f"{cell.dataset:15} {cell.kind:13} {cell.split} {cell.method:9}"
    if isinstance(outcome, Failure):
        return f"{name} failed: {outcome.reason}"
    return f"{name} NLL {outcome['nll']:.3f}, {outcome['fit_seconds']:.1f} s"


def _place(record: dict[str, Any]) -> tuple[int, int, int, int]:
    """Order in metrics.json."""
    dataset, kind, split, method = (record[field] for field in FIELDS)
    return list(TABLES).index(dataset), KINDS.index(kind), split, list(METHODS).index(method)


def _earlier_failures(out: Path) -> Records:
    path = out / "failures.json"
    failures = read_json(path) if path.exists() else []
    require_fields(path, failures, (*FIELDS, "error"))
    return failures


def _earlier_versions(out: Path) -> dict[str, str]:
    path = out / "versions.json"
    return read_json(path) if path.exists() else {}
