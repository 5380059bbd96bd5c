"""`kalmanac watch RUN`: play episodes with a trained agent; draw what it sees, believes and does.

Playing writes episode files (`kalmanac.episode_file`); the pictures are drawn from these alone.
Without RUN, a small agent plays that comes with the package.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gymnasium

from kalmanac.disk import refuse_link
from kalmanac.episode_file import read_episode
from kalmanac.experiment import Experiment, Trust, ask_on_terminal, read_trusted
from kalmanac.experiment.latent_map import refuse_without_latent_map
from kalmanac.experiment.playing import file_name, record_episodes
from kalmanac.printable import MESSAGE, one_line
from kalmanac.rollout import EnvironmentFailedError
from kalmanac.runlog import MODELS
from kalmanac.sac import RecurrentSAC

PRETRAINED = Path(__file__).parent / "pretrained"
BEST_ARM = "best-arm"
SHIPPED = {False: PRETRAINED / "best-arm", True: PRETRAINED / "best-arm-two-channels"}  # latent?


def main(argv: Sequence[str]) -> int:
    """The verb. Exit status 2 for a call that cannot be understood, in one line."""
    parser = argparse.ArgumentParser(
        prog="kalmanac watch",
        description="Play episodes with a trained agent and draw them: an animation (GIF), a still "
        "(PNG) and the data behind them (NPZ) for each.",
    )
    parser.add_argument(
        "run", type=Path, nargs="?", metavar="RUN",
        help="a folder that `train` has left; default: an agent that comes with the package",
    )  # fmt: skip
    parser.add_argument("--episodes", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first episode; the next ones count on"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="default: watched/NAME, the run folder's name"
    )
    parser.add_argument(
        "--stochastic", action="store_true", help="draw actions from the policy, as in training"
    )
    parser.add_argument("--which", choices=tuple(MODELS), default="best", help="which model")
    parser.add_argument("--mu", type=float, help="Best Arm: the hidden mean")
    parser.add_argument("--sigma", type=float, help="Best Arm: the noise's standard deviation")
    parser.add_argument(
        "--adversarial", action="store_true",
        help="Best Arm: also the episode whose first two samples mislead",
    )  # fmt: skip
    parser.add_argument(
        "--latent", action="store_true",
        help="also the way through a two-dimensional latent space, over the policy's decisions; "
        "in Best Arm with the adversarial episode",
    )  # fmt: skip
    parser.add_argument("--no-animation", action="store_true", help="stills only")
    parser.add_argument(
        "--trust", action="store_true", help="run the code that a folder of somebody else names"
    )
    options = parser.parse_args(argv)
    try:
        return _watch(options)
    except ModuleNotFoundError as error:
        if error.name in ("matplotlib", "PIL"):
            return _refuse(f"needs {error.name}: pip install 'kalmanac[report]'", 1)
        return _refuse(str(error), 2)
    except (ValueError, TypeError, FileNotFoundError, gymnasium.error.Error) as error:
        return _refuse(str(error), 2)
    except EnvironmentFailedError as error:
        return _refuse(str(error), 1)
    except OSError as error:
        file = "" if error.filename is None else f"out: got {error.filename}: "
        return _refuse(f"{file}{error.strerror}", 1)
    except KeyboardInterrupt:
        return _refuse("interrupted; what is written stays", 130)


def load(run: Path, which: str, trust: Trust = False) -> tuple[RecurrentSAC, Experiment]:
    """The agent of a run, and what it was trained for."""
    experiment = read_trusted(run, trust, ask_on_terminal)
    file = run / MODELS[which]
    if not file.is_file():
        raise FileNotFoundError(f"run: got {run}, expected one with {file.name}")
    return RecurrentSAC.load(file, device="cpu"), experiment


def _watch(options: argparse.Namespace) -> int:
    from kalmanac.report.animation import animate_episode
    from kalmanac.report.episode_figure import draw_episode, heading
    from kalmanac.report.latent_figure import draw_latent

    if options.episodes < 1:
        raise ValueError(f"episodes: got {options.episodes}, expected at least 1")
    if options.seed < 0:
        raise ValueError(f"seed: got {options.seed}, expected at least 0")
    run = options.run or SHIPPED[options.latent]
    model, experiment = load(run, options.which, options.trust)
    out = options.out or Path("watched", run.resolve().name)
    place = out.absolute()  # an environment may change the working directory
    if options.latent:
        refuse_without_latent_map(model)
    told = {"mu": options.mu, "sigma": options.sigma}
    told = {name: value for name, value in told.items() if value is not None}
    for name in told:
        if experiment.env != BEST_ARM:
            raise ValueError(
                f"{name}: got an agent for {experiment.env}, expected one for best-arm"
            )
    files = record_episodes(
        model,
        experiment,
        place,
        episodes=options.episodes,
        seed=options.seed,
        deterministic=not options.stochastic,
        changes={name: (value, value) for name, value in told.items()},
        adversarial=options.adversarial or (options.latent and experiment.env == BEST_ARM),
    )
    played = []
    for file in files:
        episode = read_episode(file)
        played.append(episode)
        print(heading(episode).replace("\n", ": "))
        print(f"  data       {out / file.name}")
        still = draw_episode(episode, _own(file.with_suffix(".png")))
        print(f"  still      {out / still.name}", flush=True)
        if options.no_animation:
            file.with_suffix(".gif").unlink(missing_ok=True)  # of an earlier episode
        else:
            with _bar() as bar:
                moving = animate_episode(episode, _own(file.with_suffix(".gif")), bar)
            print(f"  animation  {out / moving.name}", flush=True)
    if options.latent:
        path = _own(place / f"{file_name(played[0])}-latent.png")
        print(f"latent space\n  still      {out / draw_latent(played, path).name}")
    return 0


def _own(path: Path) -> Path:
    """For a picture; a link that lies there is not followed."""
    refuse_link(path)
    return path


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A bar for the frames, gone when they are written; nothing where there is no terminal."""
    from rich.progress import Progress

    with Progress(transient=True, disable=not sys.stdout.isatty()) as progress:
        task = progress.add_task("  drawing", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _refuse(text: str, status: int) -> int:
    print(f"kalmanac watch: {one_line(text, MESSAGE)}", file=sys.stderr)
    return status
