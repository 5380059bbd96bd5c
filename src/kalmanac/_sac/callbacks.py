"""Callbacks: how metrics, files and early ends reach or leave the training loop."""

import inspect
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from torch import Tensor

from kalmanac._files.durable import make_folder
from kalmanac._sac.cuda_graph import Row
from kalmanac._sac.episode_streams import Episode
from kalmanac._sac.sb3_arguments import CHECKPOINT_CALLBACK, answering

if TYPE_CHECKING:
    from kalmanac._sac.recurrent_sac import RecurrentSAC

# a function is called with the model after every vector step; False ends the training
AnyCallback = Union["Callback", Callable[["RecurrentSAC"], object]]
AnyCallbacks = AnyCallback | Iterable[AnyCallback] | None

MOST = 100  # as SB3 counts them


class RecentEpisodes:
    """The last 100 episodes. Those of the random warm-up leave when the first one after it ends."""

    def __init__(self) -> None:
        self._episodes: deque[Episode] = deque(maxlen=MOST)
        self._learning = False

    def add(self, model: "RecurrentSAC", episode: Episode) -> None:
        """Add an episode that has just ended."""
        if model.num_updates > 0 and not self._learning:
            self._episodes.clear()
            self._learning = True
        self._episodes.append(episode)

    def figures(self) -> list[str]:
        """Mean return and length in words; nothing before the first episode's end."""
        n = len(self._episodes)
        if n == 0:
            return []
        reward = sum(episode.total_reward for episode in self._episodes) / n
        length = sum(episode.length for episode in self._episodes) / n
        return [f"return {reward:.3g}", f"length {length:.4g}"]

    def state_dict(self) -> dict[str, Any]:
        """What the next means depend on."""
        return {
            "returns": [episode.total_reward for episode in self._episodes],
            "lengths": [episode.length for episode in self._episodes],
            "learning": self._learning,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Means go on where `state_dict` was called."""
        for reward, length in zip(state["returns"], state["lengths"], strict=True):
            self._episodes.append(Episode(reward, length, False, 0, {}))
        self._learning = state.get("learning", False)


class Callback:
    """What a training calls on its way. This one does nothing; override what you need.

    Where `on_step` is all, a function of the model does as well. `parent` is the `EvalCallback`
    that this one was given to, if any.

    Examples:
        >>> from kalmanac import Callback, RecurrentSAC, Track
        >>> class Lengths(Callback):
        ...     def on_episode(self, model, episode):
        ...         print(model.num_timesteps, episode.length)
        ...     def on_step(self, model):
        ...         return model.num_timesteps < 25  # False ends the training
        >>> model = RecurrentSAC("gru", Track(horizon=10), seed=0).learn(100, Lengths())
        10 10
        20 10
        >>> model.num_timesteps
        25
        >>> model.learn(100, lambda model: model.num_timesteps < 30).num_timesteps
        30
    """

    parent: Any = None

    def on_start(self, model: "RecurrentSAC") -> None:
        """Before the first step."""

    def on_episode(self, model: "RecurrentSAC", episode: Episode) -> None:
        """After the step that finished this training episode."""

    def on_update(self, model: "RecurrentSAC", metrics: Mapping[str, Tensor]) -> None:
        """After an update, on a GPU perhaps some more. Reading one of the 0-d metrics waits.

        They cannot be changed; `dict(metrics)` can.
        """

    def on_step(self, model: "RecurrentSAC") -> bool | None:
        """After a vector step and its updates. False ends the training."""

    def on_end(self, model: "RecurrentSAC") -> None:
        """After the last step, also if an error ended the training."""

    def state_dict(self) -> dict[str, Any]:
        """What it must remember when the training is interrupted: arrays, tensors, plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called; `on_start` comes after it."""


class FunctionCallback(Callback):
    """A function of the model as a callback."""

    def __init__(self, function: Callable[["RecurrentSAC"], object]) -> None:
        self.function = function

    def on_step(self, model: "RecurrentSAC") -> bool:
        """Call it; only False ends the training, NumPy's and PyTorch's too."""
        answer: Any = self.function(model)
        if getattr(answer, "shape", None) == ():
            answer = answer.item()
        return answer is not False


def as_callback(name: str, given: Any) -> Callback:
    """A callback, or a function made one; TypeError for anything else."""
    if isinstance(given, Callback):
        return given
    if not callable(given) or isinstance(given, type):
        kind = given.__name__ if isinstance(given, type) else type(given).__name__
        raise TypeError(f"{name}: got {kind}, expected a Callback or a function of the model")
    try:
        inspect.signature(given).bind(None)
    except TypeError:
        raise TypeError(
            f"{name}: got {given!r}, expected a function of one argument, the model (SB3 calls its "
            "own with locals and globals)"
        ) from None
    except ValueError:  # one that is not written in Python may not tell
        pass
    return FunctionCallback(given)


class Callbacks(Callback):
    """Several callbacks, called in order."""

    def __init__(self, callbacks: AnyCallbacks = None) -> None:
        several = isinstance(callbacks, Iterable) and not isinstance(callbacks, Callback)
        each: Any = callbacks if several and not callable(callbacks) else [callbacks]
        self.members = [as_callback("callback", one) for one in each if one is not None]

    def on_start(self, model: "RecurrentSAC") -> None:
        """See `Callback`."""
        for member in self.members:
            member.on_start(model)

    def on_episode(self, model: "RecurrentSAC", episode: Episode) -> None:
        """See `Callback`."""
        for member in self.members:
            member.on_episode(model, episode)

    def on_update(self, model: "RecurrentSAC", metrics: Mapping[str, Tensor]) -> None:
        """See `Callback`."""
        row = Row.of(metrics)  # one kind, however the update was made
        for member in self.members:
            member.on_update(model, row)

    def on_step(self, model: "RecurrentSAC") -> bool:
        """False if any of them says so; all are asked."""
        answers = [member.on_step(model) for member in self.members]
        return False not in answers

    def on_end(self, model: "RecurrentSAC") -> None:
        """See `Callback`."""
        for member in self.members:
            member.on_end(model)


class CheckpointCallback(Callback):
    """Saves the model whenever another `save_freq` environment steps are done.

    Args:
        save_freq: environment steps, of all environments together.
        save_path: a folder, made where it is missing, for PREFIX_STEP_steps.safetensors.
        name_prefix: how the files' names begin.
        save_replay_buffer: also write the replay, as PREFIX_replay_buffer_STEP_steps.replay.
        verbose: 2 prints each file's name.

    Examples:
        >>> from kalmanac import CheckpointCallback, RecurrentSAC, Track
        >>> save = CheckpointCallback(20, "models", name_prefix="track", verbose=2)
        >>> model = RecurrentSAC("gru", Track(), seed=0).learn(40, save)
        Saving model checkpoint to ...track_20_steps.safetensors
        Saving model checkpoint to ...track_40_steps.safetensors
        >>> RecurrentSAC.load("models/track_20_steps.safetensors").num_timesteps
        20
    """

    @answering(CHECKPOINT_CALLBACK)
    def __init__(
        self, save_freq: int, save_path: str | os.PathLike[str], name_prefix: str = "rl_model",
        save_replay_buffer: bool = False, verbose: int = 0,
    ) -> None:  # fmt: skip
        if save_freq < 1:
            raise ValueError(f"save_freq: got {save_freq}, expected at least 1")
        self.save_freq, self.verbose = save_freq, verbose
        # an environment may change the working directory
        self.save_path, self.name_prefix = Path(save_path).absolute(), name_prefix
        self.save_replay_buffer = save_replay_buffer
        self._next = save_freq

    def on_start(self, model: "RecurrentSAC") -> None:
        """Count from where the model stands."""
        self._next = (model.num_timesteps // self.save_freq + 1) * self.save_freq

    def on_step(self, model: "RecurrentSAC") -> None:
        """Save if it is time."""
        step = model.num_timesteps
        if step < self._next:
            return
        self._next = (step // self.save_freq + 1) * self.save_freq
        make_folder(self.save_path)
        path = self.save_path / f"{self.name_prefix}_{step}_steps.safetensors"
        model.save(path)
        if self.verbose >= 2:
            print(f"Saving model checkpoint to {path}")
        if self.save_replay_buffer:
            replay = self.save_path / f"{self.name_prefix}_replay_buffer_{step}_steps.replay"
            model.save_replay_buffer(replay)
            if self.verbose >= 2:
                print(f"Saving model replay buffer checkpoint to {replay}")
