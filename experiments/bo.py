"""Bayesian optimisation: DE-GP against an exact Gaussian process, BoTorch's EnsembleModel and random search.

All methods share initial points, number of evaluations and batch size; all but random search maximise the same
acquisition function in the same way. EnsembleModel has the members of a DE-GP trained on its own observations, but
treats each member as a sample, where DE-GP treats them as one Gaussian process.
"""

from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from tqdm.auto import tqdm

from degp.methods import Kind
from degp.report import environment, save_results
from experiments.protocols.bo_summary import final_table, write_summary
from experiments.protocols.deadline import Deadline
from experiments.protocols.independent_runs import Jobs, earlier_records, finished
from experiments.protocols.options import Minutes, chosen

PROBLEMS = ("branin", "hartmann6", "ackley10", "noisy-hartmann3", "mixed-ackley8")
COMPARED = (Kind.DEGP.label, "EnsembleModel", "SingleTaskGP", "random")


@dataclass(frozen=True)
class Config:
    """Shared by all runs.

    Attributes:
        initial: Sobol points before the first round.
        batch: evaluations per round.
        rounds: at most; a problem may have fewer.
        draws: of the posterior, in the acquisition function.
        restarts, raw_samples, iterations: of its maximisation.
        training: changes to the defaults of `degp.decisions.botorch.FitConfig`.
    """

    initial: int = 10
    batch: int = 5
    rounds: int = 10
    draws: int = 64
    restarts: int = 4
    raw_samples: int = 128
    iterations: int = 50
    training: tuple[tuple[str, int], ...] = ()


SMOKE = Config(4, 2, 1, 8, 1, 4, 2, (("members", 8), ("units", 16), ("measurement_points", 4), ("steps", 2)))


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json and the figure.")] = Path("experiments/results/bo"),
    problems: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(PROBLEMS),
    methods: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(COMPARED),
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 10,
    first_seed: int = 0,
    jobs: Jobs = 1,
    minutes: Minutes = None,
    smoke: Annotated[bool, typer.Option(help="Smoke test: one small round of everything, into OUT/smoke.")] = False,
) -> None:
    """Regret of each method on each problem; skips runs that metrics.json already has."""
    out, config, seeds = (out / "smoke", SMOKE, 1) if smoke else (out, Config(), seeds)
    problem_names, method_names = chosen(problems, PROBLEMS, "--problems"), chosen(methods, COMPARED)
    known = problem_names, range(first_seed, first_seed + seeds), method_names
    records = earlier_records(out, asdict(config), ("problem", "seed", "method"))
    done = {(r["problem"], r["seed"], r["method"]) for r in records}
    tasks = [(*run, config) for run in product(*known) if run not in done]
    where = {"commit": environment()["commit"]}
    with closing(finished(_optimise, tasks, jobs=jobs, deadline=Deadline(minutes))) as runs:
        for (problem, seed, method, _), rounds in (bar := tqdm(runs, total=len(tasks), unit="run")):
            bar.set_postfix_str(f"{problem} {method} seed {seed}")
            records += [{"problem": problem, "method": method, "seed": seed, **r, **where} for r in rounds]
            records.sort(key=_place)
            save_results(out, config=asdict(config), records=records)
    write_summary(records, out)
    Console().print(final_table(records), highlight=False)


def _optimise(problem: str, seed: int, method: str, config: Config) -> list[dict[str, Any]]:
    from experiments.protocols.bo_runs import optimise  # BoTorch is slow to import and changes GPyTorch's settings

    return optimise(problem, method, seed, config)


def _place(record: dict[str, Any]) -> tuple[int, int, int]:
    """Order of runs in metrics.json; rounds keep theirs."""
    return PROBLEMS.index(record["problem"]), record["seed"], COMPARED.index(record["method"])
