"""Contextual bandits: Thompson sampling by DE-GP, a random member of DE, rDE and RMS, and simpler agents.

The paper's Mushroom and Covertype. Every agent plays the same rounds of a trial, their luck drawn beforehand. Networks,
batches, updates and optimiser are the paper's; DIFFERENCES says what is not.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from degp import bandits
from degp.bandits import Agent, EnsembleAgent, LinearAgent, Played, Problem, Recipe, TableBandit, UniformAgent
from degp.files import write_json
from degp.report import load_results, save_results
from experiments.bandits_summary import write_summary

Records = list[dict[str, Any]]
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
    device: Annotated[str, typer.Option(help="cpu or cuda, for the networks.")] = "cpu",
    smoke: Annotated[bool, typer.Option(help="A made-up game of 120 rounds, into OUT/smoke: does it run?")] = False,
) -> None:
    """All agents in all games; what is in metrics.json already is not played again."""
    known = TRIED_OUT if smoke else GAMES
    chosen = {name: known[name] for name in (known if smoke else games.split(","))}
    recipe = Recipe(batch_size=batch_size, steps=steps)
    if smoke:
        out, trials, rounds, recipe = out / "smoke", 1, 120, Recipe(hidden_layers=(8,), members=3, steps=2)
    config = _config(recipe, rounds, out)
    for trial in range(trials):
        for name, game in chosen.items():
            for agent in agents.split(","):
                if not _is_done(out, name, agent, trial):
                    _play(out, config, name, game, agent, trial, recipe, device)
    write_summary(out)


def _play(
    out: Path, config: dict[str, Any], name: str, game: Game, agent: str, trial: int, recipe: Recipe, device: str
) -> None:
    environment = _made(game.make)
    rounds = environment.rounds(config["rounds"], generator=torch.Generator().manual_seed(trial))
    generator = torch.Generator(device).manual_seed(AGENT_SEEDS + trial)
    player = make_agent(agent, environment.problem, game, recipe, generator)
    start = time.perf_counter()
    played = bandits.play(player, rounds, progress=None)
    seconds = time.perf_counter() - start
    typer.echo(f"{name:10} {agent:9} trial {trial}: {played.relative_regret:6.2f} % of uniform regret, {seconds:.0f} s")
    facts = {"environment": name, "agent": agent, "trial": trial, "rounds": len(rounds)}
    write_json(out / "curves.json", [*_curves(out), {**facts, "every": EVERY, **_curve(played)}])
    scores = {"cumulative_reward": float(played.rewards.sum()), "relative_regret": played.relative_regret}
    save_results(out, config=config, records=[*_records(out), {**facts, **scores, "seconds": seconds}])


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


def _config(recipe: Recipe, rounds: int, out: Path) -> dict[str, Any]:
    """What all records share, as it is read back; an error where the folder's records were made otherwise."""
    games = {name: {k: v for k, v in vars(game).items() if k != "make"} for name, game in GAMES.items()}
    config = {"rounds": rounds, "recipe": asdict(recipe), "games": games, "differences": DIFFERENCES}
    config = json.loads(json.dumps(config))
    if (out / "metrics.json").exists() and load_results(out)["config"] != config:
        raise typer.BadParameter(f"{out} holds results with other settings; choose another --out, or take it away")
    return config


def _is_done(out: Path, environment: str, agent: str, trial: int) -> bool:
    return (environment, agent, trial) in {(r["environment"], r["agent"], r["trial"]) for r in _records(out)}


def _curve(played: Played) -> dict[str, list[float]]:
    """Cumulative reward and regret, and the regret of uniform choice, every so many rounds."""
    columns = {"reward": played.rewards, "regret": played.regrets, "uniform_regret": played.uniform_regrets}
    return {name: values.double().cumsum(0)[EVERY - 1 :: EVERY].tolist() for name, values in columns.items()}


def _records(out: Path) -> Records:
    return load_results(out)["records"] if (out / "metrics.json").exists() else []


def _curves(out: Path) -> Records:
    """Those that have a record: a run that was broken off between the two files is played again."""
    path = out / "curves.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [curve for curve in kept if _is_done(out, curve["environment"], curve["agent"], curve["trial"])]
