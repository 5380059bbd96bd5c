"""`kalmanac watch RUN`: play episodes with a trained agent; draw what it sees, believes and does.

Playing writes episode files; the pictures are drawn from these alone.
Without RUN, a small agent plays that comes with the package.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from kalmanac._bars import Bars
from kalmanac._cli.verb import Call, RefusedError, Verb, expect_at_least, need
from kalmanac._files.durable import refuse_link
from kalmanac._files.episode_file import read_episode
from kalmanac._files.run_reader import EVALUATIONS
from kalmanac._lab.episode_trace import refuse_without_latent_map
from kalmanac._lab.play import SHIPPED, file_name, load_run, record_episodes

BEST_ARM = "best-arm"


@dataclass(frozen=True)
class Options:
    """What to play and to draw."""

    episodes: int = 3
    """How many."""
    seed: int = 0
    """Of the first episode; the next ones count on."""
    out: Path | None = None
    """Where pictures and data go; None is RUN/evaluations, where `report` finds them."""
    stochastic: bool = False
    """Draw actions from the policy, as in training."""
    which: Literal["best", "last"] = "best"
    """Which model."""
    mu: float | None = None
    """Best Arm: the hidden mean."""
    sigma: float | None = None
    """Best Arm: the noise's standard deviation."""
    adversarial: bool = False
    """Best Arm: also the episode whose first two samples mislead."""
    latent: bool = False
    """Also the way through a two-dimensional latent space, over the policy's decisions; in Best Arm
    with the adversarial episode."""
    animation: bool = True
    """Leave an animation beside the stills."""
    trust: bool = False
    """Run the code that a folder of somebody else names."""


def watch(call: Call) -> int:
    """The verb."""
    need("matplotlib", "PIL")
    try:
        return _watch(Path(call.words[0]) if call.words else None, call.options)
    except FileNotFoundError:
        raise
    except OSError as error:
        file = "" if error.filename is None else f"out: got {error.filename}: "
        raise RefusedError(f"{file}{error.strerror}", 1) from None
    except KeyboardInterrupt:
        raise RefusedError("interrupted; what is written stays", 130) from None


def _watch(run: Path | None, options: Options) -> int:
    from kalmanac._report.episode_figure import draw_episode, heading
    from kalmanac._report.episodes import animate_episode, draw_latent

    expect_at_least(1, options, "episodes")
    expect_at_least(0, options, "seed")
    out = options.out or (
        run / EVALUATIONS if run else Path("watched", SHIPPED[options.latent].name)
    )
    run = run or SHIPPED[options.latent]
    model, experiment = load_run(run, options.which, options.trust)
    place = out.absolute()  # an environment may change the working directory
    if options.latent:
        refuse_without_latent_map(model)
    bandit = {"mu": options.mu, "sigma": options.sigma}
    bandit = {name: value for name, value in bandit.items() if value is not None}
    for name in bandit:
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
        changes={name: (value, value) for name, value in bandit.items()},
        adversarial=options.adversarial or (options.latent and experiment.env == BEST_ARM),
    )
    episodes = []
    for file in files:
        episode = read_episode(file)
        episodes.append(episode)
        print(heading(episode).replace("\n", ": "))
        print(f"  data       {out / file.name}")
        still = draw_episode(episode, _own(file.with_suffix(".png")))
        print(f"  still      {out / still.name}", flush=True)
        if options.animation:
            with Bars(sys.stdout, transient=True) as bars:
                bar = bars.add(None, "  drawing")
                on_frame = partial(_show, bars, bar)
                moving = animate_episode(episode, _own(file.with_suffix(".gif")), on_frame)
            print(f"  animation  {out / moving.name}", flush=True)
        else:
            file.with_suffix(".gif").unlink(missing_ok=True)  # of an earlier episode
    if options.latent:
        path = _own(place / f"{file_name(episodes[0])}-latent.png")
        print(f"latent space\n  still      {out / draw_latent(episodes, path).name}")
    return 0


def _own(path: Path) -> Path:
    """For a picture; a link that lies there is not followed."""
    refuse_link(path)
    return path


def _show(bars: Bars, bar: int, done: int, total: int) -> None:
    bars.update(bar, completed=done, total=total)


VERB = Verb(
    watch,
    Options,
    "Play episodes with a trained agent and draw them: an animation (GIF), a still (PNG) and the "
    "data behind them (NPZ) for each. RUN is a folder that `train` has left; without one, an agent "
    "plays that comes with the package.",
    words="[RUN]",
    most=1,
)
