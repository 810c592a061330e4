"""Bayesian optimisation: DE-GP against an exact Gaussian process, BoTorch's EnsembleModel and random search.

Every method has the same initial points and the same number of evaluations, in batches, and all but random search
maximise the same acquisition function in the same way. EnsembleModel has the members of a DE-GP that was trained on its
own observations; it takes each member for a sample, where DE-GP takes all of them for one Gaussian process.
"""

from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from tqdm.auto import tqdm

from degp.imaging import Deadline
from degp.report import environment, save_results
from experiments.bo_summary import final_table, write_summary
from experiments.independent_runs import Jobs, earlier_records, finished
from experiments.options import Minutes, chosen

PROBLEMS = ("branin", "hartmann6", "ackley10", "noisy-hartmann3", "mixed-ackley8")
METHODS = ("DE-GP", "EnsembleModel", "SingleTaskGP", "random")


@dataclass(frozen=True)
class Config:
    """What all runs share.

    Attributes:
        initial: Sobol points before the first round.
        batch: evaluations a round.
        rounds: at most; a problem may have fewer.
        draws: of the posterior, in the acquisition function.
        restarts, raw_samples, iterations: of its maximisation.
        training: other settings of `degp.botorch.Training` than the default ones.
    """

    initial: int = 10
    batch: int = 5
    rounds: int = 10
    draws: int = 64
    restarts: int = 4
    raw_samples: int = 128
    iterations: int = 50
    training: tuple[tuple[str, int], ...] = ()


SMOKE = Config(4, 2, 1, 8, 1, 4, 2, (("members", 8), ("units", 16), ("extra_points", 4), ("steps", 2)))


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json and the figure.")] = Path("experiments/results/bo"),
    problems: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(PROBLEMS),
    methods: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(METHODS),
    seeds: Annotated[int, typer.Option(help="How many.")] = 10,
    first_seed: int = 0,
    jobs: Jobs = 1,
    minutes: Minutes = None,
    smoke: Annotated[bool, typer.Option(help="One small round of everything, into OUT/smoke: does it run?")] = False,
) -> None:
    """Regret of each method on each problem; what is in metrics.json already is not run again."""
    out, config, seeds = (out / "smoke", SMOKE, 1) if smoke else (out, Config(), seeds)
    problem_names, method_names = chosen(problems, PROBLEMS, "--problems"), chosen(methods, METHODS)
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
    from experiments.bo_runs import optimise  # here: BoTorch takes seconds to import and changes GPyTorch's settings

    return optimise(problem, method, seed, config)


def _place(record: dict[str, Any]) -> tuple[int, int, int]:
    """Of a run in metrics.json; its rounds stay as they are."""
    return PROBLEMS.index(record["problem"]), record["seed"], METHODS.index(record["method"])
