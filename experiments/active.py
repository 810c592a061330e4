"""Active learning: labels acquired by joint information, other rules of the same posterior, DE, or at random.

After each acquisition a DE-GP is trained from scratch on all labels so far, as in `degp.decisions.botorch`: MAP scales
and noise, members initialised as posterior draws. It scores all strategies, so that they differ in their labels only.
DE's disagreement is that of ReLU networks trained on the same labels.
"""

from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from degp.decisions.active import SelectionRule, joint_information, single_information, variance, variance_reduction
from degp.methods import Kind
from degp.report import save_results
from experiments.data import UCI_NAMES
from experiments.protocols.active_summary import write_summary
from experiments.protocols.deadline import Deadline
from experiments.protocols.independent_runs import Jobs, earlier_records, finished
from experiments.protocols.options import Minutes, chosen

Records = list[dict[str, Any]]
SETS = ("boston", "energy", "concrete", "kin8nm")  # the smallest of the UCI tables with a continuous target


@dataclass(frozen=True)
class Strategy:
    """The selection rule, and the method whose posterior it sees; None selects at random."""

    method: Kind
    rule: SelectionRule | None


STRATEGIES = {
    "joint information": Strategy(Kind.DEGP, joint_information),
    "variance reduction": Strategy(Kind.DEGP, variance_reduction),
    "single information": Strategy(Kind.DEGP, single_information),
    "DE, disagreement": Strategy(Kind.DE, variance),
    "random": Strategy(Kind.DEGP, None),
}


@dataclass(frozen=True)
class Networks:
    """A plain deep ensemble of ReLU networks."""

    members: int = 20
    widths: tuple[int, ...] = (50, 50)
    steps: int = 250
    learning_rate: float = 0.01


@dataclass(frozen=True)
class Readouts:
    """`degp.decisions.botorch.FitConfig` under the names of stored results."""

    members: int = 64
    units: int = 2048
    extra_points: int = 32  # measurement points
    steps: int = 20
    learning_rate: float = 1e-4
    epsilon: float = 1e-3


@dataclass(frozen=True)
class Config:
    """Shared by all runs."""

    start: int = 60  # at random; fewer do not determine the length scales
    batch: int = 10
    stop: int = 200
    pool: int = 2000  # rows at most
    test: int = 500  # rows at most, and a quarter of the set
    training: Readouts = Readouts()
    networks: Networks = Networks()


SMOKE = Config(3, 3, 6, training=Readouts(8, 16, 4, 2), networks=Networks(3, (4,), 2))


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json and the figure.")] = Path(
        "experiments/results/active"
    ),
    sets: Annotated[str, typer.Option(help="Names of UCI sets, separated by commas.")] = ",".join(SETS),
    strategies: Annotated[str, typer.Option(help="Names, separated by ';'.")] = ";".join(STRATEGIES),
    seeds: int = 5,
    first_seed: Annotated[int, typer.Option(help="Seeds from 100 on are for tuning.")] = 0,
    jobs: Jobs = 1,
    minutes: Minutes = None,
    smoke: Annotated[bool, typer.Option(help="Smoke test: a synthetic table, into OUT/smoke.")] = False,
) -> None:
    """All strategies on all sets; skips runs that metrics.json already has."""
    config = SMOKE if smoke else Config()
    names, asked = chosen(sets, UCI_NAMES, "--sets"), chosen(strategies, STRATEGIES, "--strategies", between=";")
    if smoke:
        out, names, seeds = out / "smoke", ["waves"], 1
    records = earlier_records(out, asdict(config), ("seed", "dataset", "strategy"))
    done = {(r["seed"], r["dataset"], r["strategy"]) for r in records}
    known = range(first_seed, first_seed + seeds), names, asked
    tasks = [(*run, config) for run in product(*known) if run not in done]
    with closing(finished(_run, tasks, jobs=jobs, deadline=Deadline(minutes))) as runs:
        for (seed, name, strategy, _), points in runs:
            facts = {"dataset": name, "strategy": strategy, "seed": seed}
            records = sorted([*records, *(facts | point for point in points)], key=_place)
            save_results(out, config=asdict(config), records=records)
            typer.echo(f"{name:10} {strategy:20} seed {seed}: RMSE {points[-1]['rmse']:.3f} with all labels")
    if records:
        write_summary(records, out)


def _run(seed: int, name: str, strategy: str, config: Config) -> Records:
    from experiments.protocols.active_runs import acquire, table  # BoTorch is slow to import

    return acquire(table(name), STRATEGIES[strategy], seed, config)


def _place(record: dict[str, Any]) -> tuple[int, int, str, int]:
    """Order of runs in metrics.json, sets outside SETS last; acquisitions keep theirs."""
    name, strategy = record["dataset"], record["strategy"]
    return record["seed"], (*SETS, name).index(name), name, list(STRATEGIES).index(strategy)
