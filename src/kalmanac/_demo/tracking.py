"""The demo's second task: a wandering target, noisy readings of it, and many of them missing.

The agent, vssm+kf, is told which readings are missing, and its action is an estimate of where the
target is. How sure its filter is can be read from the variances of its channels. They are in units
of the latent state, which training leaves open; one factor, fitted on episodes that are not drawn,
turns their mean into the variance of the estimate.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac._demo.bandit import Trained
from kalmanac._envs.track import exact_filter
from kalmanac._files.run_reader import MODELS
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import evaluation_environment
from kalmanac._sac.recurrent_sac import RecurrentSAC

MISSING, BURST = 0.4, 6.0  # share of readings, and steps of a gap on average
HORIZON = 64
FIT_EPISODES, FIT_SEED = 128, 1_000_003  # behind the factor, apart from those of the training
TEST_EPISODES, TEST_SEED = 128, 2_000_003  # behind the errors; the first good one is drawn
GAPS = (3, 4)  # an episode that is drawn has so many gaps of so many steps or more

Floats = NDArray[np.float64]


def tracking(seed: int = 0) -> Experiment:
    """What the agent learns; an estimate has no later consequences, so nothing is bootstrapped."""
    return Experiment(
        env="track",
        env_settings={"horizon": HORIZON},
        dropout=MISSING,
        dropout_burst=BURST,
        total_steps=16_000,
        num_envs=16,
        seed=seed,
        learning_starts=2_000,
        update_to_data=0.05,
        batch_size=16,
        context_length=HORIZON,
        learning_rate=3e-3,
        gamma=0.0,
        tau=0.05,
        ent_coef=0.01,
        actor_hidden=(64,),
        critic_hidden=(64, 64),
        eval_every=2_000,
        eval_episodes=64,
    )


class Episodes(NamedTuple):
    """Episodes side by side, (episodes, T) each; of one episode, (T,)."""

    reading: Floats
    observed: NDArray[np.bool_]
    target: Floats
    estimate: Floats
    latent_variance: Floats  # the mean over the channels of the agent's filter


class TrackingResult(NamedTuple):
    """One episode (T,) with what both filters believe, and the errors of many episodes."""

    episode: Episodes
    band: Floats  # the agent's standard deviation
    exact_mean: Floats
    exact_band: Floats
    error: float  # mean squared error of the agent's estimate
    exact_error: float
    coverage: float  # how often the target is within two standard deviations of the estimate
    correlation: float  # of the two bands


def track(trained: Trained) -> TrackingResult:
    """The agent and the exact filter in new episodes, and the first of them with enough gaps."""
    model = RecurrentSAC.load(trained.place / MODELS["best"], device="cpu")
    factor = fitted_factor(play_episodes(model, trained.experiment, FIT_EPISODES, FIT_SEED))
    new = play_episodes(model, trained.experiment, TEST_EPISODES, TEST_SEED)
    band = np.sqrt(factor * new.latent_variance)
    mean, variance = exact_filter(new.reading, new.observed)
    exact_band = np.sqrt(variance)
    shown = first_with_gaps(new.observed)
    return TrackingResult(
        episode=Episodes(*(x[shown] for x in new)),
        band=band[shown],
        exact_mean=mean[shown],
        exact_band=exact_band[shown],
        error=float(np.mean((new.estimate - new.target) ** 2)),
        exact_error=float(np.mean((mean - new.target) ** 2)),
        coverage=float(np.mean(np.abs(new.estimate - new.target) <= 2 * band)),
        correlation=float(np.corrcoef(band.ravel(), exact_band.ravel())[0, 1]),
    )


def as_lines(tracked: TrackingResult) -> str:
    """What came of the tracking, in words."""
    error, exact = tracked.error, tracked.exact_error
    return (
        f"Track, {MISSING:.0%} of the noisy readings missing: mean squared error of vssm+kf "
        f"{error:.3f}, of the exact filter {exact:.3f}: {error / exact:.2f} times.\n"
        f"The target is within the agent's ± 2σ {tracked.coverage:.0%} of the time; its σ and the "
        f"exact filter's correlate at {tracked.correlation:.2f}.\n"
        "The agent's σ²: the mean of its filter's variances times one factor, fitted on other "
        "episodes. How it widens in gaps\nis the Kalman layer's own arithmetic, there before "
        "any training; the estimate is learned.\n"
    )


def play_episodes(model: RecurrentSAC, experiment: Experiment, number: int, seed: int) -> Episodes:
    """Play without exploration, and look into the filter at every step."""
    env = evaluation_environment(experiment, "in", number)
    session, steps = model.session(), list[tuple[Any, ...]]()
    observation, infos = env.reset(seed=seed)
    for _ in range(HORIZON):
        estimate = session.act(observation, observed=infos["observed"])
        variance = session.state.encoder.variance[:, -1].mean(-1).numpy()
        truth = infos["privileged"][:, 0]
        step = (observation[:, 0], infos["observed"], truth, estimate[:, 0], variance)
        steps.append(tuple(np.array(x) for x in step))
        observation, _, _, _, infos = env.step(estimate)
    env.close()
    return Episodes(*(np.stack(x, 1) for x in zip(*steps, strict=True)))


def fitted_factor(episodes: Episodes) -> float:
    """From the filter's mean variance to the estimate's, so that both agree on average."""
    error = np.mean((episodes.estimate - episodes.target) ** 2)
    return float(error / np.mean(episodes.latent_variance))


def first_with_gaps(observed: NDArray[np.bool_]) -> int:
    """The first episode that begins with a reading and has enough long gaps, or else the first."""
    many, long = GAPS
    for i, there in enumerate(observed):
        if there[0] and sum(end - start >= long for start, end in gaps_of(there)) >= many:
            return i
    return 0


def gaps_of(observed: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where readings (T,) are missing: [start, end) of each gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], observed, [True]])))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]
