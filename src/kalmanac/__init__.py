"""kalmanac: Kalman-filter layers and recurrent actor-critic agents for partial observability."""

# This is the one public namespace: `from kalmanac import RecurrentSAC, KalmanLayer`. A name is
# imported when it is first asked for, so that `import kalmanac` takes no time. What is written
# twice, the imports for editors and type checkers and the table for Python, is compared by a test.

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kalmanac._version import __version__ as __version__

if TYPE_CHECKING:
    from kalmanac._encoders.contract import HistoryEncoder as HistoryEncoder
    from kalmanac._encoders.kalman import Beliefs as Beliefs
    from kalmanac._encoders.kalman import KalmanLayer as KalmanLayer
    from kalmanac._encoders.kalman_encoder import KalmanEncoder as KalmanEncoder
    from kalmanac._encoders.layers import Dropout as Dropout
    from kalmanac._encoders.registry import ENCODERS as ENCODERS
    from kalmanac._encoders.registry import encoder_settings as encoder_settings
    from kalmanac._encoders.registry import make_encoder as make_encoder
    from kalmanac._envs.actuators import ActionNoise as ActionNoise
    from kalmanac._envs.actuators import FrameRepeat as FrameRepeat
    from kalmanac._envs.bayes import bayes_threshold as bayes_threshold
    from kalmanac._envs.best_arm import BestArm as BestArm
    from kalmanac._envs.checkpointable import environment_state as environment_state
    from kalmanac._envs.checkpointable import restore_environment as restore_environment
    from kalmanac._envs.extras import MissingExtraError as MissingExtraError
    from kalmanac._envs.motor import Motor as Motor
    from kalmanac._envs.novel import HiddenNumbers as HiddenNumbers
    from kalmanac._envs.registry import ENVS as ENVS
    from kalmanac._envs.registry import EnvironmentSpec as EnvironmentSpec
    from kalmanac._envs.registry import make_env as make_env
    from kalmanac._envs.registry import make_vector as make_vector
    from kalmanac._envs.sensors import Corruption as Corruption
    from kalmanac._envs.sensors import ObservationDelay as ObservationDelay
    from kalmanac._envs.sensors import ObservationDropout as ObservationDropout
    from kalmanac._envs.sensors import ObservationNoise as ObservationNoise
    from kalmanac._envs.sensors import corrupted as corrupted
    from kalmanac._envs.track import Track as Track
    from kalmanac._envs.workers import WorkerError as WorkerError
    from kalmanac._envs.wrappers import Checkpointable as Checkpointable
    from kalmanac._envs.wrappers import PrivilegedObservation as PrivilegedObservation
    from kalmanac._files.document import BadFileError as BadFileError
    from kalmanac._files.episode_file import PlayedEpisode as PlayedEpisode
    from kalmanac._files.episode_file import read_episode as read_episode
    from kalmanac._files.lock import FolderInUseError as FolderInUseError
    from kalmanac._lab.active_run import Outcome as Outcome
    from kalmanac._lab.experiment import Experiment as Experiment
    from kalmanac._lab.failure import RunFailedError as RunFailedError
    from kalmanac._lab.play import record_episodes as record_episodes
    from kalmanac._lab.resources import NoRoomError as NoRoomError
    from kalmanac._lab.run import resume as resume
    from kalmanac._lab.run import resume_together as resume_together
    from kalmanac._lab.run import run as run
    from kalmanac._lab.run import run_together as run_together
    from kalmanac._lab.run_data import run_episodes as run_episodes
    from kalmanac._lab.trust import UntrustedError as UntrustedError
    from kalmanac._ops.scan.arguments import lengths_from_padding as lengths_from_padding
    from kalmanac._ops.scan.backends import BACKENDS as BACKENDS
    from kalmanac._ops.scan.backends import use_backend as use_backend
    from kalmanac._ops.scan.inputs import Belief as Belief
    from kalmanac._ops.scan.inputs import Filtering as Filtering
    from kalmanac._ops.scan.kalman import kalman_scan as kalman_scan
    from kalmanac._ops.scan.kalman import kalman_scan_packed as kalman_scan_packed
    from kalmanac._ops.scan.linear import linear_scan as linear_scan
    from kalmanac._report.episode_figure import draw_episode as draw_episode
    from kalmanac._sac.callbacks import Callback as Callback
    from kalmanac._sac.callbacks import CheckpointCallback as CheckpointCallback
    from kalmanac._sac.diagnostics import RunawayValuesWarning as RunawayValuesWarning
    from kalmanac._sac.environment_failure import EnvironmentFailedError as EnvironmentFailedError
    from kalmanac._sac.episode_data import EpisodeData as EpisodeData
    from kalmanac._sac.episode_streams import Episode as Episode
    from kalmanac._sac.eval_callback import EvalCallback as EvalCallback
    from kalmanac._sac.eval_callback import (
        StopTrainingOnRewardThreshold as StopTrainingOnRewardThreshold,
    )
    from kalmanac._sac.evaluation import Evaluation as Evaluation
    from kalmanac._sac.evaluation import evaluate_policy as evaluate_policy
    from kalmanac._sac.policy import Session as Session
    from kalmanac._sac.recurrent_sac import RecurrentSAC as RecurrentSAC
    from kalmanac._sac.training_log import Logger as Logger
    from kalmanac._settings import SACSettings as SACSettings
    from kalmanac._suites.registry import PRESETS as PRESETS
    from kalmanac._suites.registry import SUITES as SUITES
    from kalmanac._suites.suite import Preset as Preset
    from kalmanac._suites.suite import Suite as Suite

# OpenMP's threads sleep while they wait for each other. By default they spin, and on cores that
# other work keeps busy an update takes 20 times as long. The library looks when torch loads it.
if not any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")):
    os.environ["OMP_WAIT_POLICY"] = "passive"

_HOMES = {
    "RecurrentSAC": "kalmanac._sac.recurrent_sac",
    "SACSettings": "kalmanac._settings",
    "Session": "kalmanac._sac.policy",
    "Callback": "kalmanac._sac.callbacks",
    "EvalCallback": "kalmanac._sac.eval_callback",
    "StopTrainingOnRewardThreshold": "kalmanac._sac.eval_callback",
    "CheckpointCallback": "kalmanac._sac.callbacks",
    "Logger": "kalmanac._sac.training_log",
    "Episode": "kalmanac._sac.episode_streams",
    "EpisodeData": "kalmanac._sac.episode_data",
    "RunawayValuesWarning": "kalmanac._sac.diagnostics",
    "BadFileError": "kalmanac._files.document",
    "ENCODERS": "kalmanac._encoders.registry",
    "make_encoder": "kalmanac._encoders.registry",
    "encoder_settings": "kalmanac._encoders.registry",
    "HistoryEncoder": "kalmanac._encoders.contract",
    "KalmanLayer": "kalmanac._encoders.kalman",
    "KalmanEncoder": "kalmanac._encoders.kalman_encoder",
    "Beliefs": "kalmanac._encoders.kalman",
    "Dropout": "kalmanac._encoders.layers",
    "kalman_scan": "kalmanac._ops.scan.kalman",
    "kalman_scan_packed": "kalmanac._ops.scan.kalman",
    "linear_scan": "kalmanac._ops.scan.linear",
    "Belief": "kalmanac._ops.scan.inputs",
    "Filtering": "kalmanac._ops.scan.inputs",
    "BACKENDS": "kalmanac._ops.scan.backends",
    "use_backend": "kalmanac._ops.scan.backends",
    "lengths_from_padding": "kalmanac._ops.scan.arguments",
    "make_env": "kalmanac._envs.registry",
    "make_vector": "kalmanac._envs.registry",
    "ENVS": "kalmanac._envs.registry",
    "EnvironmentSpec": "kalmanac._envs.registry",
    "BestArm": "kalmanac._envs.best_arm",
    "Track": "kalmanac._envs.track",
    "Motor": "kalmanac._envs.motor",
    "bayes_threshold": "kalmanac._envs.bayes",
    "Corruption": "kalmanac._envs.sensors",
    "corrupted": "kalmanac._envs.sensors",
    "ObservationNoise": "kalmanac._envs.sensors",
    "ObservationDropout": "kalmanac._envs.sensors",
    "ObservationDelay": "kalmanac._envs.sensors",
    "ActionNoise": "kalmanac._envs.actuators",
    "FrameRepeat": "kalmanac._envs.actuators",
    "HiddenNumbers": "kalmanac._envs.novel",
    "PrivilegedObservation": "kalmanac._envs.wrappers",
    "Checkpointable": "kalmanac._envs.wrappers",
    "environment_state": "kalmanac._envs.checkpointable",
    "restore_environment": "kalmanac._envs.checkpointable",
    "EnvironmentFailedError": "kalmanac._sac.environment_failure",
    "MissingExtraError": "kalmanac._envs.extras",
    "WorkerError": "kalmanac._envs.workers",
    "evaluate_policy": "kalmanac._sac.evaluation",
    "Evaluation": "kalmanac._sac.evaluation",
    "Experiment": "kalmanac._lab.experiment",
    "run": "kalmanac._lab.run",
    "run_together": "kalmanac._lab.run",
    "resume": "kalmanac._lab.run",
    "resume_together": "kalmanac._lab.run",
    "Outcome": "kalmanac._lab.active_run",
    "PRESETS": "kalmanac._suites.registry",
    "Preset": "kalmanac._suites.suite",
    "SUITES": "kalmanac._suites.registry",
    "Suite": "kalmanac._suites.suite",
    "RunFailedError": "kalmanac._lab.failure",
    "NoRoomError": "kalmanac._lab.resources",
    "UntrustedError": "kalmanac._lab.trust",
    "FolderInUseError": "kalmanac._files.lock",
    "record_episodes": "kalmanac._lab.play",
    "run_episodes": "kalmanac._lab.run_data",
    "read_episode": "kalmanac._files.episode_file",
    "draw_episode": "kalmanac._report.episode_figure",
    "PlayedEpisode": "kalmanac._files.episode_file",
}

__all__ = ["__version__", *_HOMES]


if not TYPE_CHECKING:  # so that type checkers see a name that is not there

    def __getattr__(name: str) -> Any:
        """Import the public name that is asked for, once."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names, imported or not, beside the module's own."""
    return sorted({*globals(), *_HOMES})


class _WithGymnasium:
    """Registers "kalmanac/BestArm-v0" as soon as somebody imports Gymnasium."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find Gymnasium where others do, and have `kalmanac._envs` imported right after it."""
        if name != "gymnasium":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        if (spec := find_spec(name)) is None or (loader := spec.loader) is None:
            return spec
        execute = loader.exec_module

        def execute_and_register(module: Any) -> None:
            execute(module)
            import_module("kalmanac._envs")

        loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    import_module("kalmanac._envs")
else:
    sys.meta_path.insert(0, _WithGymnasium())
