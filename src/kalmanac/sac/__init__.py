"""RecurrentSAC: learn, predict, save and load, under the names that users of SB3 know."""

from kalmanac.sac.acting import PolicyState
from kalmanac.sac.callbacks import Callback, Callbacks, EvalCallback
from kalmanac.sac.loop import Member, TrainingLoop
from kalmanac.sac.normaliser import Normaliser
from kalmanac.sac.progress import Progress
from kalmanac.sac.recent import RecentEpisodes
from kalmanac.sac.recurrent_sac import RecurrentSAC
from kalmanac.sac.session import Session

__all__ = [
    "Callback",
    "Callbacks",
    "EvalCallback",
    "Member",
    "Normaliser",
    "PolicyState",
    "Progress",
    "RecentEpisodes",
    "RecurrentSAC",
    "Session",
    "TrainingLoop",
]
