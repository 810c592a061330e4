"""Contextual bandits: Thompson sampling from an ensemble treated as a Gaussian process, and baselines.

    agent = EnsembleAgent(Problem(num_features=4, num_actions=3))
    action = agent.act(context)
    agent.observe(context, action, reward)

`observe` learns from the reward of the chosen action only.
"""

from degp.decisions.bandits.agents import Agent, LinearAgent, UniformAgent
from degp.decisions.bandits.config import AgentConfig
from degp.decisions.bandits.ensemble_agent import EnsembleAgent
from degp.decisions.bandits.feedback import PartialGaussian
from degp.decisions.bandits.loading import load_agent
from degp.decisions.bandits.problem import Problem
from degp.decisions.bandits.rules import EpsilonGreedy, ThompsonSampling
from degp.decisions.bandits.saving import AgentError

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentError",
    "EnsembleAgent",
    "EpsilonGreedy",
    "LinearAgent",
    "PartialGaussian",
    "Problem",
    "ThompsonSampling",
    "UniformAgent",
    "load_agent",
]
