"""Contextual bandits: Thompson sampling by DE-GP, DE, rDE and RMS against simpler agents, on Mushroom and Covertype.

All agents play the same rounds of a trial, with rewards drawn in advance. Networks, batches, updates and optimiser are
the paper's, except for DIFFERENCES. α is 1 in units of Bayes' weight B/N, that is min(1, 512/N) as the paper counts it.
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

from degp.decisions.bandits import (
    Agent,
    AgentConfig,
    EnsembleAgent,
    EpsilonGreedy,
    LinearAgent,
    Problem,
    UniformAgent,
)
from degp.methods import Kind
from degp.report import save_results
from degp.report.results import require_fields
from degp.runtime.files import read_json, write_json
from experiments.data import bandits as environments
from experiments.data.bandits import TableBandit
from experiments.protocols.bandits import Played, play
from experiments.protocols.bandits_summary import write_summary
from experiments.protocols.deadline import Deadline
from experiments.protocols.independent_runs import Jobs, earlier_records, finished
from experiments.protocols.options import Device, Minutes, chosen

Records = list[dict[str, Any]]
FIELDS = ("trial", "environment", "agent")  # identify a run
EVERY = 50  # rounds between points of a curve
AGENT_SEEDS = 10_000  # disjoint from the seeds of the rounds

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
    """An environment and its hyper-parameters, tuned on other trials than the reported ones.

    Attributes:
        reward_scale: of the ensemble agents.
        noise: noise variance of scaled rewards by method; DE and ε-greedy do not depend on it.
        linear: variances of the linear agent, in units of the rewards.
    """

    make: Callable[[], TableBandit]
    reward_scale: float
    noise: dict[Kind, float]
    linear: dict[str, float]


def separated_classes() -> TableBandit:
    """Three well separated classes, for a smoke test."""
    labels = torch.arange(90) % 3
    spread = 0.3 * torch.randn(90, 2, generator=torch.Generator().manual_seed(0))
    return environments.classification(3 * torch.eye(3)[labels, :2] + spread, labels)


GAMES = {
    "mushroom": Game(
        environments.mushroom,
        reward_scale=5.0,
        noise={Kind.DEGP: 0.1, Kind.RDE: 0.02, Kind.RMS: 0.5},
        linear={"weight_variance": 10.0, "noise_variance": 30.0},
    ),
    "covertype": Game(
        environments.covertype,
        reward_scale=1.0,
        noise={Kind.DEGP: 0.1, Kind.RDE: 0.05, Kind.RMS: 0.05},
        linear={"weight_variance": 0.1, "noise_variance": 0.03},
    ),
}
SMOKE_GAMES = {"classes": Game(separated_classes, 1.0, {}, {"noise_variance": 0.1})}
EPSILON_GREEDY = EpsilonGreedy(0.05)
NETWORKS: dict[str, dict[str, Any]] = {
    **{kind.label: {"method": kind} for kind in (Kind.DEGP, Kind.DE, Kind.RDE, Kind.RMS)},
    "ε-greedy": {"method": Kind.DE, "rule": EPSILON_GREEDY, "members": 1},
}
AGENTS = (*NETWORKS, "linear", "uniform")


def main(
    out: Annotated[Path, typer.Option(help="Folder for metrics.json, curves.json and the figure.")] = Path(
        "experiments/results/bandits"
    ),
    games: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(GAMES),
    agents: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(AGENTS),
    trials: int = 5,
    rounds: int = 5000,
    batch_size: Annotated[int, typer.Option(help="Rounds per step.")] = 512,
    steps: Annotated[int, typer.Option(help="Steps per update.")] = 100,
    device: Device = "cpu",
    jobs: Jobs = 1,
    minutes: Minutes = None,
    smoke: Annotated[bool, typer.Option(help="Smoke test: a synthetic game of 120 rounds, into OUT/smoke.")] = False,
) -> None:
    """All agents in all games; skips runs that metrics.json already has."""
    names, settings = chosen(games, GAMES, "--games"), AgentConfig(batch_size=batch_size, steps=steps)
    if smoke:
        out, names, trials, rounds = out / "smoke", list(SMOKE_GAMES), 1, 120
        settings = AgentConfig(hidden_layers=(8,), members=3, steps=2)
    config = _config(settings, rounds)
    records = earlier_records(out, config, FIELDS)
    curves = _curves(out, records)
    done = {(r["trial"], r["environment"], r["agent"]) for r in records}
    known = range(trials), names, chosen(agents, AGENTS, "--agents")
    tasks = [(*run, rounds, settings, device) for run in product(*known) if run not in done]
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
    trial: int, name: str, agent: str, count: int, settings: AgentConfig, device: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record and the curve of an agent in a game."""
    game = (GAMES | SMOKE_GAMES)[name]
    environment = _made(game.make)
    rounds = environment.rounds(count, generator=torch.Generator().manual_seed(trial))
    generator = torch.Generator(device).manual_seed(AGENT_SEEDS + trial)
    player = make_agent(agent, environment.problem, game, settings, generator)
    start = time.perf_counter()
    played = play(player, rounds, progress=None)
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


def make_agent(name: str, problem: Problem, game: Game, settings: AgentConfig, generator: torch.Generator) -> Agent:
    """A new agent by its name."""
    if name == "uniform":
        return UniformAgent(problem, generator=generator)
    if name == "linear":
        return LinearAgent(problem, **game.linear, generator=generator)
    own = NETWORKS[name]
    noise = game.noise.get(own["method"], settings.noise_variance)
    config = replace(settings, **own, reward_scale=game.reward_scale, noise_variance=noise)
    return EnsembleAgent(problem, config, generator=generator)


def _config(settings: AgentConfig, rounds: int) -> dict[str, Any]:
    """Shared by all records, in the form of stored results: ε of ε-greedy in place of a rule."""
    recipe = {name: value for name, value in asdict(settings).items() if name != "rule"}
    recipe["exploration"] = EPSILON_GREEDY.probability
    games = {name: {k: v for k, v in vars(game).items() if k != "make"} for name, game in GAMES.items()}
    return {"rounds": rounds, "recipe": recipe, "games": games, "differences": DIFFERENCES}


def _place(record: dict[str, Any]) -> tuple[int, int, int]:
    """Order of runs in metrics.json and in curves.json."""
    games = [*GAMES, *SMOKE_GAMES]
    return record["trial"], games.index(record["environment"]), AGENTS.index(record["agent"])


def _curve(played: Played) -> dict[str, list[float]]:
    """Cumulative reward, regret and regret of uniform choice, every EVERY rounds."""
    columns = {"reward": played.rewards, "regret": played.regrets, "uniform_regret": played.uniform_regrets}
    return {name: values.double().cumsum(0)[EVERY - 1 :: EVERY].tolist() for name, values in columns.items()}


def _curves(out: Path, records: Records) -> Records:
    """Those with a record: a run interrupted between writing the two files is repeated."""
    path = out / "curves.json"
    kept = read_json(path) if path.exists() else []
    require_fields(path, kept, FIELDS)
    recorded = {_place(record) for record in records}
    return [curve for curve in kept if _place(curve) in recorded]
