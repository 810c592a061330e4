"""One bandit decision by ten networks with two layers of 256: forward pass, posterior, draw and best action."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from degp.decisions.bandits import Agent, AgentConfig, EnsembleAgent, LinearAgent, Problem, UniformAgent
from degp.methods import Kind

PROBLEMS = {"Mushroom": Problem(117, 2), "Covertype": Problem(54, 7)}
ROUNDS = 300


def run() -> list[dict[str, Any]]:
    """Milliseconds of one core per decision, median and 95th percentile, interleaved, and the ratio to DE."""
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
            start = time.thread_time()  # CPU time, independent of other processes
            decider.act(context)
            times[agent].append(1e3 * (time.thread_time() - start))
    medians = {agent: statistics.median(values) for agent, values in times.items()}
    return [
        {
            "problem": name,
            "agent": agent,
            "ms": medians[agent],
            "95 % below, ms": statistics.quantiles(values, n=20)[-1],
            "ratio to DE": medians[agent] / medians[Kind.DE.label],
        }
        for agent, values in times.items()
    ]


def _networks(method: Kind) -> Callable[[Problem], Agent]:
    config = AgentConfig(method, initial_pulls=0, update_every=None)  # decides from the first round
    return lambda problem: EnsembleAgent(problem, config, generator=torch.Generator().manual_seed(0))


AGENTS: dict[str, Callable[[Problem], Agent]] = {
    **{kind.label: _networks(kind) for kind in (Kind.DEGP, Kind.DE)},
    "linear": lambda problem: LinearAgent(problem, generator=torch.Generator().manual_seed(0)),
    "uniform": lambda problem: UniformAgent(problem, generator=torch.Generator().manual_seed(0)),
}
