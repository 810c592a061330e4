"""A decision by ten networks of two layers of 256: the pass through them, the posterior, the draw, the best action."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from degp.bandits import Agent, EnsembleAgent, LinearAgent, Problem, Recipe, UniformAgent

PROBLEMS = {"Mushroom": Problem(117, 2), "Covertype": Problem(54, 7)}
ROUNDS = 300


def run() -> list[dict[str, Any]]:
    """Milliseconds of one core a decision, median and 95th percentile, in turns, and the ratio to a random member."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [row for name, problem in PROBLEMS.items() for row in _compare(name, problem)]
    finally:
        torch.set_num_threads(threads)


def _compare(name: str, problem: Problem) -> list[dict[str, Any]]:
    contexts = torch.randn(ROUNDS, problem.num_features, generator=torch.Generator().manual_seed(0))
    deciders = {agent: make(problem) for agent, make in AGENTS.items()}
    times: dict[str, list[float]] = {agent: [] for agent in deciders}
    for context in contexts:
        for agent, decider in deciders.items():
            start = time.thread_time()  # not the clock: a busy machine does not make a decision cost more
            decider.act(context)
            times[agent].append(1e3 * (time.thread_time() - start))
    medians = {agent: statistics.median(values) for agent, values in times.items()}
    return [
        {
            "problem": name,
            "agent": agent,
            "ms": medians[agent],
            "95 % below, ms": statistics.quantiles(values, n=20)[-1],
            "ratio to DE": medians[agent] / medians["DE"],
        }
        for agent, values in times.items()
    ]


def _networks(method: str) -> Callable[[Problem], Agent]:
    recipe = Recipe(method=method, initial_pulls=0, update_every=None)  # asked from the first round on
    return lambda problem: EnsembleAgent(problem, recipe, generator=torch.Generator().manual_seed(0))


AGENTS: dict[str, Callable[[Problem], Agent]] = {
    "DE-GP": _networks("degp"),
    "DE": _networks("de"),
    "linear": lambda problem: LinearAgent(problem, generator=torch.Generator().manual_seed(0)),
    "uniform": lambda problem: UniformAgent(problem, generator=torch.Generator().manual_seed(0)),
}
