"""Contextual bandits: Thompson sampling from an ensemble read as a Gaussian process, its baselines, and games to play.

agent = EnsembleAgent(Problem(num_features=4, num_actions=3))
action = agent.act(context)
agent.observe(context, action, reward)
"""

from degp.bandits.agents import Agent as Agent
from degp.bandits.agents import LinearAgent as LinearAgent
from degp.bandits.agents import UniformAgent as UniformAgent
from degp.bandits.ensemble_agent import EnsembleAgent as EnsembleAgent
from degp.bandits.environments import Environment as Environment
from degp.bandits.environments import Rounds as Rounds
from degp.bandits.environments import TableBandit as TableBandit
from degp.bandits.environments import classification as classification
from degp.bandits.environments import covertype as covertype
from degp.bandits.environments import mushroom as mushroom
from degp.bandits.feedback import PartialGaussian as PartialGaussian
from degp.bandits.loading import load_agent as load_agent
from degp.bandits.playing import Played as Played
from degp.bandits.playing import play as play
from degp.bandits.problem import Problem as Problem
from degp.bandits.recipe import Recipe as Recipe
from degp.bandits.rules import EpsilonGreedy as EpsilonGreedy
from degp.bandits.rules import ProcessDraw as ProcessDraw
from degp.bandits.rules import random_member as random_member
from degp.bandits.saving import AgentError as AgentError
