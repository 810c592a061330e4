"""From a saved folder back to the agent."""

from pathlib import Path

import torch

from degp.decisions.bandits.agents import Agent, LinearAgent, UniformAgent
from degp.decisions.bandits.ensemble_agent import EnsembleAgent
from degp.decisions.bandits.problem import Problem
from degp.decisions.bandits.saving import AgentError, read

__all__ = ["load_agent"]

AGENTS = {kind.__name__: kind for kind in (UniformAgent, LinearAgent, EnsembleAgent)}


def load_agent(folder: Path | str, *, problem: Problem | None = None, device: str = "cpu") -> Agent:
    """The agent that `save` wrote; it resumes bit-for-bit.

    Args:
        problem: checked against the saved one, where given.
        device: the one it was saved on, to which its random state belongs.
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
        raise AgentError(f"{folder} must be as save wrote it, but {error}; copy it again") from None
