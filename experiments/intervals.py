"""Do the default estimator's 90 % intervals hold? `DEGPRegressor()` as it comes, on the UCI tables and on two others.

No setting was ever chosen on the two others: scikit-learn's diabetes table, and the elevation of 2000 places in
Covertype by its other columns.
"""

import time
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from degp import metrics
from degp.data import kfold
from degp.report import environment, save_results
from degp.report.figures import COLOURS, legend_below, panels, save_figure
from degp.runtime.files import new_file
from degp.sklearn import DEGPRegressor
from degp.typing import Batch
from experiments.data import UCI_NAMES, covertype, uci
from experiments.protocols.deadline import Deadline
from experiments.protocols.independent_runs import Jobs, earlier_records, finished
from experiments.protocols.options import Device, Minutes, chosen

Records = list[dict[str, Any]]
UNSEEN = ("diabetes", "elevation")
SETS = (*UCI_NAMES, *UNSEEN)


@dataclass(frozen=True)
class Config:
    """What all runs share; the estimator has its defaults."""

    level: float = 0.9
    folds: int = 5
    seed: int = 0
    steps: int | None = None  # None is the estimator's own


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json, summary.md and the figure.")] = Path(
        "experiments/results/intervals"
    ),
    sets: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(SETS),
    device: Device = "cpu",
    jobs: Jobs = 1,
    minutes: Minutes = None,
    smoke: Annotated[bool, typer.Option(help="One epoch on a made-up table, into OUT/smoke: does it run?")] = False,
) -> None:
    """All folds of all sets; what is in metrics.json already is not run again."""
    config = Config(folds=2, steps=1) if smoke else Config()
    names = chosen(sets, SETS, "--sets")
    if smoke:
        out, names = out / "smoke", ["waves"]
    records = earlier_records(out, asdict(config), ("dataset", "fold"))
    done = {(r["dataset"], r["fold"]) for r in records}
    tasks = [(*run, device, config) for run in product(names, range(config.folds)) if run not in done]
    where = {"commit": environment()["commit"]}
    with closing(finished(_run, tasks, jobs=jobs, deadline=Deadline(minutes))) as runs:
        for (name, fold, *_), scores in runs:
            records = sorted([*records, {"dataset": name, "fold": fold, **scores, **where}], key=_place)
            save_results(out, config=asdict(config), records=records)
            typer.echo(f"{name:10} fold {fold}: coverage {scores['coverage90']:.3f}, {scores['seconds']:.0f} s")
    if records:
        _write_summary(records, out)


def _run(name: str, fold: int, device: str, config: Config) -> dict[str, Any]:
    """Scores of the estimator on one fold, in original units."""
    table = _table(name)
    train, test = kfold(len(table), config.folds, seed=config.seed)[fold]
    X, y = table.inputs.double().numpy(), table.targets.double().numpy()[:, 0]
    budget = {} if config.steps is None else {"steps": config.steps}
    start = time.perf_counter()
    model = DEGPRegressor(device=device, random_state=fold, **budget).fit(X[train], y[train])
    seconds = time.perf_counter() - start
    means, stds = (torch.tensor(values)[:, None] for values in model.predict(X[test], return_std=True))
    low, high = model.predict_interval(X[test], config.level).T
    truth = torch.tensor(y[test])[:, None]
    return {
        "rows": len(train),
        "alpha": model.alpha_,
        "rmse": metrics.rmse(means, truth),
        "nll": metrics.gaussian_nll(means, stds.square(), truth),
        "coverage90": float(((low <= y[test]) & (y[test] <= high)).mean()),
        "seconds": seconds,
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
    }


def _table(name: str) -> Batch:
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        return Batch(*(_columns(values) for values in load_diabetes(return_X_y=True)))
    if name == "elevation":
        rows = torch.randperm(500_000, generator=torch.Generator().manual_seed(0))[:2000]
        places = covertype().inputs[rows]
        return Batch(places[:, 1:], places[:, :1])
    if name == "waves":
        x = torch.linspace(-2, 2, 60)[:, None]
        return Batch(x, torch.sin(3 * x))
    return uci(name)


def _columns(values: Any) -> Tensor:
    return torch.tensor(values).reshape(len(values), -1)


def _place(record: dict[str, Any]) -> tuple[int, int]:
    return (*SETS, record["dataset"]).index(record["dataset"]), record["fold"]


def _write_summary(records: Records, out: Path) -> None:
    """`summary.md` and `coverage.png`."""
    by_set = {
        name: [r for r in records if r["dataset"] == name] for name in dict.fromkeys(r["dataset"] for r in records)
    }
    columns = ("coverage90", "rmse", "nll", "seconds")
    lines = [f"| data set | folds | rows | {' | '.join(columns)} |", "|---" * (3 + len(columns)) + "|"]
    for name, own in by_set.items():
        cells = " | ".join(f"{mean(r[column] for r in own):.3f}" for column in columns)
        lines.append(f"| {name} | {len(own)} | {own[0]['rows']} | {cells} |")
    seen = [mean(r["coverage90"] for r in own) for name, own in by_set.items() if name not in UNSEEN]
    if seen:
        lines += ["", f"Without {' and '.join(UNSEEN)}: {mean(seen):.3f} on average, {min(seen):.3f} at the least."]
    text = "# 90 % intervals of DEGPRegressor()\n\n" + "\n".join(lines) + "\n"
    with new_file(out / "summary.md") as draft:
        draft.write_text(text, encoding="utf-8")
    save_figure(_figure(by_set), out / "coverage.png")
    typer.echo(text)


def _figure(by_set: dict[str, Records]) -> Any:
    figure, grid = panels(1, 1, width=1.0 + 0.8 * len(by_set), height=3.3)
    axis = grid[0, 0]
    for x, own in enumerate(by_set.values()):
        values = [r["coverage90"] for r in own]
        axis.plot(
            [x] * len(values), values, "o", color=COLOURS["DE-GP"], alpha=0.35, markeredgewidth=0, label="one fold"
        )
        axis.plot(x, mean(values), "_", color=COLOURS["DE-GP"], markersize=18, markeredgewidth=2, label="mean")
    axis.axhline(0.9, color="black", linewidth=0.8, linestyle=":", label="nominal level")
    axis.set_xticks(range(len(by_set)), list(by_set), rotation=30, ha="right")
    axis.set_ylabel("coverage of 90 % intervals")
    axis.grid(False, axis="x")
    legend_below(figure, grid)
    return figure
