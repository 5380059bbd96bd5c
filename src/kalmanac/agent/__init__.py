"""The agent: recurrent soft actor-critic networks, their losses, and the learner around them."""

from kalmanac.agent.heads import ActionDistribution, Categorical, PolicyOutput, SquashedGaussian
from kalmanac.agent.learner import Learner, Metrics
from kalmanac.agent.networks import Actor, Critic, HistoryNetwork
from kalmanac.agent.settings import AgentSettings

__all__ = [
    "ActionDistribution",
    "Actor",
    "AgentSettings",
    "Categorical",
    "Critic",
    "HistoryNetwork",
    "Learner",
    "Metrics",
    "PolicyOutput",
    "SquashedGaussian",
]
