"""Contextual bandits: Thompson sampling by DE-GP, a random member of DE, rDE and RMS, and simpler agents.

The paper's Mushroom and Covertype. Every agent plays the same rounds of a trial, their luck drawn beforehand. Networks,
batches, updates and optimiser are the paper's; DIFFERENCES says what is not.
"""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from degp import bandits
from degp.bandits import Agent, EnsembleAgent, LinearAgent, Played, Problem, Recipe, TableBandit, UniformAgent
from degp.files import read_json, write_json
from degp.imaging import Deadline
from degp.report import save_results
from degp.report.results import require_fields
from experiments.bandits_summary import write_summary
from experiments.independent_runs import Jobs, earlier_records, finished
from experiments.options import Device, Minutes, chosen

Records = list[dict[str, Any]]
FIELDS = ("trial", "environment", "agent")  # what tells runs apart
EVERY = 50  # rounds between two points of a curve
AGENT_SEEDS = 10_000  # apart from those of the rounds

DIFFERENCES = {
    "contexts": "quantities standardised; the authors' code has them raw",
    "updates": "every 50 rounds from the first on; the authors' code first trains after 550",
    "adam": "learning rate 0.001, new at each update; the authors' code has 0.1, divided further after each update",
    "alpha": "1 while a step sees all rounds, then batch / rounds; 1 in the text, 0.1 for Covertype in the code",
    "noise": "of rewards divided by reward_scale; 1/2 in the units of the rewards in the code",
    "prior": "the analytic NN-GP with the variances of the code, in place of 64 networks",
    "epsilon": "0.001; 0.05 in the paper",
}


@dataclass(frozen=True)
class Game:
    """An environment, and what was chosen for it on trials apart from the reported ones.

    Attributes:
        reward_scale: of the networks' agents.
        noise: by method, the noise variance of rewards so divided; DE and ε-greedy do not depend on it.
        linear: the linear agent's variances, in the units of the rewards.
    """

    make: Callable[[], TableBandit]
    reward_scale: float
    noise: dict[str, float]
    linear: dict[str, float]


def tried_out() -> TableBandit:
    """Three well separated classes, for a smoke test."""
    labels = torch.arange(90) % 3
    spread = 0.3 * torch.randn(90, 2, generator=torch.Generator().manual_seed(0))
    return bandits.classification(3 * torch.eye(3)[labels, :2] + spread, labels)


GAMES = {
    "mushroom": Game(
        bandits.mushroom,
        reward_scale=5.0,
        noise={"degp": 0.1, "rde": 0.02, "rms": 0.5},
        linear={"weight_variance": 10.0, "noise_variance": 30.0},
    ),
    "covertype": Game(
        bandits.covertype,
        reward_scale=1.0,
        noise={"degp": 0.1, "rde": 0.05, "rms": 0.05},
        linear={"weight_variance": 0.1, "noise_variance": 0.03},
    ),
}
TRIED_OUT = {"classes": Game(tried_out, 1.0, {}, {"noise_variance": 0.1})}
NETWORKS = {"DE-GP": "degp", "DE": "de", "rDE": "rde", "RMS": "rms", "ε-greedy": "greedy"}
AGENTS = (*NETWORKS, "linear", "uniform")


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json, curves.json and the figure.")] = Path(
        "experiments/results/bandits"
    ),
    games: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(GAMES),
    agents: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(AGENTS),
    trials: int = 5,
    rounds: int = 5000,
    batch_size: Annotated[int, typer.Option(help="Rounds a step.")] = 512,
    steps: Annotated[int, typer.Option(help="Steps an update.")] = 100,
    device: Device = "cpu",
    jobs: Jobs = 1,
    minutes: Minutes = None,
    smoke: Annotated[bool, typer.Option(help="A made-up game of 120 rounds, into OUT/smoke: does it run?")] = False,
) -> None:
    """All agents in all games; what is in metrics.json already is not played again."""
    names, recipe = chosen(games, GAMES, "--games"), Recipe(batch_size=batch_size, steps=steps)
    if smoke:
        out, names, trials, rounds = out / "smoke", list(TRIED_OUT), 1, 120
        recipe = Recipe(hidden_layers=(8,), members=3, steps=2)
    config = _config(recipe, rounds)
    records = earlier_records(out, config, FIELDS)
    curves = _curves(out, records)
    done = {(r["trial"], r["environment"], r["agent"]) for r in records}
    known = range(trials), names, chosen(agents, AGENTS, "--agents")
    tasks = [(*run, rounds, recipe, device) for run in product(*known) if run not in done]
    with closing(finished(_play, tasks, jobs=jobs, deadline=Deadline(minutes))) as runs:
        for _, (record, curve) in runs:
            curves = sorted([*curves, curve], key=_place)
            write_json(out / "curves.json", curves)
            records = sorted([*records, record], key=_place)
            save_results(out, config=config, records=records)
            _report(record)
    if records:
        write_summary(out)


def _play(
    trial: int, name: str, agent: str, count: int, recipe: Recipe, device: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record and the curve of an agent in a game."""
    game = (GAMES | TRIED_OUT)[name]
    environment = _made(game.make)
    rounds = environment.rounds(count, generator=torch.Generator().manual_seed(trial))
    generator = torch.Generator(device).manual_seed(AGENT_SEEDS + trial)
    player = make_agent(agent, environment.problem, game, recipe, generator)
    start = time.perf_counter()
    played = bandits.play(player, rounds, progress=None)
    seconds = time.perf_counter() - start
    facts = {"environment": name, "agent": agent, "trial": trial, "rounds": len(rounds)}
    scores = {"cumulative_reward": float(played.rewards.sum()), "relative_regret": played.relative_regret}
    return {**facts, **scores, "seconds": seconds}, {**facts, "every": EVERY, **_curve(played)}


def _report(record: dict[str, Any]) -> None:
    run = f"{record['environment']:10} {record['agent']:9} trial {record['trial']}"
    typer.echo(f"{run}: {record['relative_regret']:6.2f} % of uniform regret, {record['seconds']:.0f} s")


@cache
def _made(make: Callable[[], TableBandit]) -> TableBandit:
    return make()  # reading half a million rows takes seconds


def make_agent(name: str, problem: Problem, game: Game, recipe: Recipe, generator: torch.Generator) -> Agent:
    """An agent by its name, new."""
    if name == "uniform":
        return UniformAgent(problem, generator=generator)
    if name == "linear":
        return LinearAgent(problem, **game.linear, generator=generator)
    method = NETWORKS[name]
    own = {"noise_variance": game.noise.get(method, recipe.noise_variance)} | (
        {"members": 1} if method == "greedy" else {}
    )
    return EnsembleAgent(
        problem, replace(recipe, method=method, reward_scale=game.reward_scale, **own), generator=generator
    )


def _config(recipe: Recipe, rounds: int) -> dict[str, Any]:
    """What all records share."""
    games = {name: {k: v for k, v in vars(game).items() if k != "make"} for name, game in GAMES.items()}
    return {"rounds": rounds, "recipe": asdict(recipe), "games": games, "differences": DIFFERENCES}


def _place(record: dict[str, Any]) -> tuple[int, int, int]:
    """Of a run in metrics.json and in curves.json."""
    games = [*GAMES, *TRIED_OUT]
    return record["trial"], games.index(record["environment"]), AGENTS.index(record["agent"])


def _curve(played: Played) -> dict[str, list[float]]:
    """Cumulative reward and regret, and the regret of uniform choice, every so many rounds."""
    columns = {"reward": played.rewards, "regret": played.regrets, "uniform_regret": played.uniform_regrets}
    return {name: values.double().cumsum(0)[EVERY - 1 :: EVERY].tolist() for name, values in columns.items()}


def _curves(out: Path, records: Records) -> Records:
    """Those that have a record: a run that was broken off between the two files is played again."""
    path = out / "curves.json"
    kept = read_json(path) if path.exists() else []
    require_fields(path, kept, FIELDS)
    recorded = {_place(record) for record in records}
    return [curve for curve in kept if _place(curve) in recorded]
