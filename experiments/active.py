"""Active learning: labels bought by joint information, by other rules of the same posterior, by DE, or at random.

After each purchase a DE-GP is trained anew on all labels bought so far, as `degp.botorch` does it: scales and noise by
the marginal likelihood, members that start as posterior draws. Every strategy is scored by it, so that they differ in
the labels that they bought and in nothing else. DE's disagreement is that of ReLU networks trained on the same labels.
"""

from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from degp.active import Rule, joint_information, single_information, variance, variance_reduction
from degp.data import UCI_NAMES
from degp.imaging import Deadline
from degp.report import save_results
from experiments.active_summary import write_summary
from experiments.independent_runs import Jobs, earlier_records, finished
from experiments.options import Minutes, chosen

Records = list[dict[str, Any]]
SETS = ("boston", "energy", "concrete", "kin8nm")  # the smallest of the UCI tables with a continuous target


@dataclass(frozen=True)
class Strategy:
    """By whose beliefs, and by which rule, labels are bought; no rule buys at random."""

    believer: str
    rule: Rule | None


STRATEGIES = {
    "joint information": Strategy("DE-GP", joint_information),
    "variance reduction": Strategy("DE-GP", variance_reduction),
    "single information": Strategy("DE-GP", single_information),
    "DE, disagreement": Strategy("DE", variance),
    "random": Strategy("DE-GP", None),
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
    """Of `degp.botorch.Training`."""

    members: int = 64
    units: int = 2048
    extra_points: int = 32
    steps: int = 20
    learning_rate: float = 1e-4
    epsilon: float = 1e-3


@dataclass(frozen=True)
class Config:
    """What all runs share."""

    start: int = 60  # bought at random: with fewer, the lengths of the prior are mere chance
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
    first_seed: Annotated[int, typer.Option(help="Seeds from 100 on are for trying things out.")] = 0,
    jobs: Jobs = 1,
    minutes: Minutes = None,
    smoke: Annotated[bool, typer.Option(help="A made-up table and three labels, into OUT/smoke: does it run?")] = False,
) -> None:
    """All strategies on all sets; what is in metrics.json already is not run again."""
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
    from experiments.active_runs import bought, table  # here: BoTorch takes seconds to import

    return bought(table(name), STRATEGIES[strategy], seed, config)


def _place(record: dict[str, Any]) -> tuple[int, int, str, int]:
    """Of a run in metrics.json, sets that are not ours last; its purchases stay as they are."""
    name, strategy = record["dataset"], record["strategy"]
    return record["seed"], (*SETS, name).index(name), name, list(STRATEGIES).index(strategy)
