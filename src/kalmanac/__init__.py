"""kalmanac: Kalman-filter layers and recurrent actor-critic agents for partial observability."""

# This is the one public namespace: `from kalmanac import RecurrentSAC, KalmanLayer`. A name is
# imported when it is first asked for, so that `import kalmanac` takes no time. What is written
# twice, the imports for editors and type checkers and the table for Python, is compared by a test.

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kalmanac._version import __version__ as __version__

if TYPE_CHECKING:
    from kalmanac.checkpoint.document import BadFileError as BadFileError
    from kalmanac.disk.lock import FolderInUseError as FolderInUseError
    from kalmanac.encoders.dropout import Dropout as Dropout
    from kalmanac.encoders.encoder import HistoryEncoder as HistoryEncoder
    from kalmanac.encoders.kalman import Beliefs as Beliefs
    from kalmanac.encoders.kalman import KalmanLayer as KalmanLayer
    from kalmanac.encoders.kalman_encoder import KalmanEncoder as KalmanEncoder
    from kalmanac.encoders.table import ENCODERS as ENCODERS
    from kalmanac.encoders.table import encoder_settings as encoder_settings
    from kalmanac.encoders.table import make_encoder as make_encoder
    from kalmanac.envs.bayes import bayes_threshold as bayes_threshold
    from kalmanac.envs.best_arm import BestArm as BestArm
    from kalmanac.envs.checkpointable import environment_state as environment_state
    from kalmanac.envs.checkpointable import restore_environment as restore_environment
    from kalmanac.envs.extras import MissingExtraError as MissingExtraError
    from kalmanac.envs.registry import ENVS as ENVS
    from kalmanac.envs.registry import EnvironmentSpec as EnvironmentSpec
    from kalmanac.envs.registry import make_env as make_env
    from kalmanac.envs.registry import make_vector as make_vector
    from kalmanac.envs.sensors import ActionNoise as ActionNoise
    from kalmanac.envs.sensors import Corruption as Corruption
    from kalmanac.envs.sensors import FrameRepeat as FrameRepeat
    from kalmanac.envs.sensors import HiddenNumbers as HiddenNumbers
    from kalmanac.envs.sensors import ObservationDelay as ObservationDelay
    from kalmanac.envs.sensors import ObservationDropout as ObservationDropout
    from kalmanac.envs.sensors import ObservationNoise as ObservationNoise
    from kalmanac.envs.sensors import corrupted as corrupted
    from kalmanac.envs.track import Track as Track
    from kalmanac.envs.workers import WorkerError as WorkerError
    from kalmanac.envs.wrappers import Checkpointable as Checkpointable
    from kalmanac.envs.wrappers import PrivilegedObservation as PrivilegedObservation
    from kalmanac.episode_file import PlayedEpisode as PlayedEpisode
    from kalmanac.episode_file import read_episode as read_episode
    from kalmanac.experiment.description import Experiment as Experiment
    from kalmanac.experiment.failure import RunFailedError as RunFailedError
    from kalmanac.experiment.playing import record_episodes as record_episodes
    from kalmanac.experiment.room import NoRoomError as NoRoomError
    from kalmanac.experiment.running import resume as resume
    from kalmanac.experiment.running import resume_together as resume_together
    from kalmanac.experiment.running import run as run
    from kalmanac.experiment.running import run_together as run_together
    from kalmanac.experiment.trust import UntrustedError as UntrustedError
    from kalmanac.experiment.under_way import Outcome as Outcome
    from kalmanac.ops.scan.arguments import lengths_from_padding as lengths_from_padding
    from kalmanac.ops.scan.backends import BACKENDS as BACKENDS
    from kalmanac.ops.scan.backends import use_backend as use_backend
    from kalmanac.ops.scan.inputs import Belief as Belief
    from kalmanac.ops.scan.inputs import Filtering as Filtering
    from kalmanac.ops.scan.kalman import kalman_scan as kalman_scan
    from kalmanac.ops.scan.kalman import kalman_scan_packed as kalman_scan_packed
    from kalmanac.ops.scan.linear import linear_scan as linear_scan
    from kalmanac.report.episode_figure import draw_episode as draw_episode
    from kalmanac.rollout.evaluation import Evaluation as Evaluation
    from kalmanac.rollout.evaluation import evaluate_policy as evaluate_policy
    from kalmanac.rollout.streams import EnvironmentFailedError as EnvironmentFailedError
    from kalmanac.rollout.streams import Episode as Episode
    from kalmanac.sac.callbacks import Callback as Callback
    from kalmanac.sac.callbacks import EvalCallback as EvalCallback
    from kalmanac.sac.recurrent_sac import RecurrentSAC as RecurrentSAC
    from kalmanac.sac.session import Session as Session
    from kalmanac.sac.value_check import RunawayValuesWarning as RunawayValuesWarning
    from kalmanac.settings import SACSettings as SACSettings
    from kalmanac.suites import PRESETS as PRESETS
    from kalmanac.suites import SUITES as SUITES
    from kalmanac.suites.suite import Preset as Preset
    from kalmanac.suites.suite import Suite as Suite

_HOMES = {
    "RecurrentSAC": "kalmanac.sac.recurrent_sac",
    "SACSettings": "kalmanac.settings",
    "Session": "kalmanac.sac.session",
    "Callback": "kalmanac.sac.callbacks",
    "EvalCallback": "kalmanac.sac.callbacks",
    "Episode": "kalmanac.rollout.streams",
    "RunawayValuesWarning": "kalmanac.sac.value_check",
    "BadFileError": "kalmanac.checkpoint.document",
    "ENCODERS": "kalmanac.encoders.table",
    "make_encoder": "kalmanac.encoders.table",
    "encoder_settings": "kalmanac.encoders.table",
    "HistoryEncoder": "kalmanac.encoders.encoder",
    "KalmanLayer": "kalmanac.encoders.kalman",
    "KalmanEncoder": "kalmanac.encoders.kalman_encoder",
    "Beliefs": "kalmanac.encoders.kalman",
    "Dropout": "kalmanac.encoders.dropout",
    "kalman_scan": "kalmanac.ops.scan.kalman",
    "kalman_scan_packed": "kalmanac.ops.scan.kalman",
    "linear_scan": "kalmanac.ops.scan.linear",
    "Belief": "kalmanac.ops.scan.inputs",
    "Filtering": "kalmanac.ops.scan.inputs",
    "BACKENDS": "kalmanac.ops.scan.backends",
    "use_backend": "kalmanac.ops.scan.backends",
    "lengths_from_padding": "kalmanac.ops.scan.arguments",
    "make_env": "kalmanac.envs.registry",
    "make_vector": "kalmanac.envs.registry",
    "ENVS": "kalmanac.envs.registry",
    "EnvironmentSpec": "kalmanac.envs.registry",
    "BestArm": "kalmanac.envs.best_arm",
    "Track": "kalmanac.envs.track",
    "bayes_threshold": "kalmanac.envs.bayes",
    "Corruption": "kalmanac.envs.sensors",
    "corrupted": "kalmanac.envs.sensors",
    "ObservationNoise": "kalmanac.envs.sensors",
    "ObservationDropout": "kalmanac.envs.sensors",
    "ObservationDelay": "kalmanac.envs.sensors",
    "ActionNoise": "kalmanac.envs.sensors",
    "FrameRepeat": "kalmanac.envs.sensors",
    "HiddenNumbers": "kalmanac.envs.sensors",
    "PrivilegedObservation": "kalmanac.envs.wrappers",
    "Checkpointable": "kalmanac.envs.wrappers",
    "environment_state": "kalmanac.envs.checkpointable",
    "restore_environment": "kalmanac.envs.checkpointable",
    "EnvironmentFailedError": "kalmanac.rollout.streams",
    "MissingExtraError": "kalmanac.envs.extras",
    "WorkerError": "kalmanac.envs.workers",
    "evaluate_policy": "kalmanac.rollout.evaluation",
    "Evaluation": "kalmanac.rollout.evaluation",
    "Experiment": "kalmanac.experiment.description",
    "run": "kalmanac.experiment.running",
    "run_together": "kalmanac.experiment.running",
    "resume": "kalmanac.experiment.running",
    "resume_together": "kalmanac.experiment.running",
    "Outcome": "kalmanac.experiment.under_way",
    "PRESETS": "kalmanac.suites",
    "Preset": "kalmanac.suites.suite",
    "SUITES": "kalmanac.suites",
    "Suite": "kalmanac.suites.suite",
    "RunFailedError": "kalmanac.experiment.failure",
    "NoRoomError": "kalmanac.experiment.room",
    "UntrustedError": "kalmanac.experiment.trust",
    "FolderInUseError": "kalmanac.disk.lock",
    "record_episodes": "kalmanac.experiment.playing",
    "read_episode": "kalmanac.episode_file",
    "draw_episode": "kalmanac.report.episode_figure",
    "PlayedEpisode": "kalmanac.episode_file",
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
