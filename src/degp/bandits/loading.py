"""The way back from an agent's folder to the agent."""

from pathlib import Path

import torch

from degp.bandits.agents import Agent, LinearAgent, UniformAgent
from degp.bandits.ensemble_agent import EnsembleAgent
from degp.bandits.problem import Problem
from degp.bandits.saving import AgentError, read

AGENTS = {kind.__name__: kind for kind in (UniformAgent, LinearAgent, EnsembleAgent)}


def load_agent(folder: Path | str, *, problem: Problem | None = None, device: str = "cpu") -> Agent:
    """The agent that `save` wrote: from here on it decides and learns as if it had never stopped, to the bit.

    Args:
        problem: what it is to be used for, where that should be checked.
        device: that it was saved on; its random state is of that device.
    """
    saved = read(folder)
    if saved.agent not in AGENTS:
        raise AgentError(
            f"an agent must be one of {', '.join(AGENTS)}, but {folder} has a {saved.agent!r}; update degp"
        )
    if problem is not None and problem != saved.problem:
        raise AgentError(
            f"the agent in {folder} must be for {problem}, but it is for {saved.problem}; load another one"
        )
    try:
        return AGENTS[saved.agent].from_saved(saved, torch.Generator(device))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, AgentError):
            raise
        raise AgentError(f"{folder} must be as save wrote it, but {error}; copy it anew") from None
