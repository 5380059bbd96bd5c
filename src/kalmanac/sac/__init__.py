"""RecurrentSAC: learn, predict, save and load, under the names that users of SB3 know."""

from kalmanac.sac.acting import PolicyState
from kalmanac.sac.callbacks import Callback, Callbacks, EvalCallback
from kalmanac.sac.lockstep import Lockstep
from kalmanac.sac.loop import TrainingLoop
from kalmanac.sac.normaliser import Normaliser
from kalmanac.sac.progress import Progress
from kalmanac.sac.recent import RecentEpisodes
from kalmanac.sac.recurrent_sac import RecurrentSAC
from kalmanac.sac.session import Session
from kalmanac.sac.settings import TrainingSettings

__all__ = [
    "Callback",
    "Callbacks",
    "EvalCallback",
    "Lockstep",
    "Normaliser",
    "PolicyState",
    "Progress",
    "RecentEpisodes",
    "RecurrentSAC",
    "Session",
    "TrainingLoop",
    "TrainingSettings",
]
