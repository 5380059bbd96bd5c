"""What networks think of a batch, and a warning when values leave what the rewards account for."""

import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from kalmanac._encoders.kalman_encoder import KalmanEncoder
from kalmanac._ops.sac_losses import Counted
from kalmanac._ops.transfer import Returning
from kalmanac._ops.windows import token_pads
from kalmanac._replay.sampling import Batch
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.episode_streams import Episode
from kalmanac._sac.networks import Actor, Critic, History, HistoryNetwork, read_history

MOST_ACTIONS = 64  # beyond it nobody reads a number for each


@torch.no_grad()
def diagnose(
    actor: Actor, critic: Critic, batch: Batch, settings: AgentSettings
) -> dict[str, Tensor]:
    """0-d tensors: mean gain and posterior variance of Kalman encoders; mean Q and share by action.

    Q is averaged over the steps at which the action is allowed.
    The plain names are the actor's, those that end in `_critic` the critic's.
    """
    history = read_history(batch)
    critic_history = read_history(batch, settings)
    tokens = Counted.of(~token_pads(batch.previous_action, batch.lengths))
    allowed = history.observation.action_mask
    metrics = beliefs(actor.network, history, tokens)
    for name, x in beliefs(critic.network, critic_history, tokens).items():
        metrics[f"{name}_critic"] = x
    if critic.discrete and actor.distribution.outputs <= MOST_ACTIONS:
        steps = Counted.of(batch.valid)
        share = torch.softmax(actor(history)[:, :-1], -1)
        q = critic.head(critic.network(critic_history.but_last())).mean(0)
        for a in range(share.shape[-1]):
            free = steps if allowed is None else Counted.of(batch.valid & allowed[:, :-1, a])
            metrics[f"train/q_action_{a}"] = free.mean(q[..., a])
            metrics[f"train/policy_action_{a}"] = steps.mean(share[..., a])
    return metrics


def beliefs(network: HistoryNetwork, history: History, tokens: Counted) -> dict[str, Tensor]:
    """Mean gain and posterior variance over tokens, channels and layers; {} without beliefs."""
    if not isinstance(network.encoder, KalmanEncoder):
        return {}
    features = network.observation_features(history.observation)
    filtered = network.encoder.beliefs(
        network.embed(features, history.previous_action, history.observation.previous_reward),
        history.lengths,
        reset=history.reset,
        observed=history.observation.observed,
    )
    return {  # (B, L, T + 1, N) each
        "train/gain_mean": tokens.mean(filtered.gain.mean((1, 3))),
        "train/posterior_variance_mean": tokens.mean(filtered.posterior.variance.mean((1, 3))),
    }


EVERY = 1_000  # updates between looks, at a number of half as many before: nobody waits for it
IN_A_ROW = 3  # looks at which the values were too large, and larger than at the look before
TIMES = 10.0  # the largest return of an episode; what lies below may be a discounted future
EPISODES = 10  # that must have ended, so that there is a scale
LOOKED_AT = ("train/q_mean", "train/ent_coef", "train/entropy")


class RunawayValuesWarning(UserWarning):
    """Mean Q is far beyond every return that was seen, and grows.

    Examples:
        >>> import warnings
        >>> from kalmanac import RunawayValuesWarning
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", RunawayValuesWarning)  # such a training ends at once
    """


class ValueCheck:
    """Compares mean Q with the returns of a training's episodes, and warns once.

    While the temperature falls, Q may hold what its entropy bonus is worth in all the steps to
    come, α |H| times `horizon` of them: most trainings begin so, and the bonus leaves with the
    temperature. `horizon` is 0 where targets have no entropy. `scale` tells what rewards are
    multiplied by before the critic sees them.
    """

    def __init__(
        self, *, bootstraps_truncated: bool, horizon: float,
        scale: Callable[[], float] = lambda: 1.0,
    ) -> None:  # fmt: skip
        self._bootstraps, self._scale = bootstraps_truncated, scale
        self._horizon, self._longest = horizon, 0
        self._temperature = 0.0  # at the look before
        self._largest, self._episodes, self._truncated = 0.0, 0, 0
        self._updates, self._before, self._suspicious = 0, 0.0, 0
        self.warned = False

    def on_episode(self, episode: Episode) -> None:
        """Take notice of an episode's return and of how it ended."""
        self._largest = max(self._largest, abs(episode.total_reward))
        self._longest = max(self._longest, episode.length)
        self._episodes += 1
        self._truncated += not episode.terminated

    def on_update(self, metrics: Mapping[str, Tensor]) -> None:
        """Look at mean Q now and then."""
        self._updates += 1
        if self._updates % EVERY == EVERY // 2:
            self._seen = Returning(torch.stack([metrics[name].detach() for name in LOOKED_AT]))
        if self.warned or self._updates % EVERY:
            return
        q, temperature, entropy = map(float, self._seen.array())
        q, falls = abs(q) / self._scale(), temperature < self._temperature
        goes_on = self._bootstraps and self._truncated > 0
        steps = self._horizon if goes_on else min(self._horizon, self._longest)
        bonus = abs(temperature * entropy) * steps / self._scale()
        most = TIMES * self._largest + (bonus if falls else 0.0)
        known = self._episodes >= EPISODES and self._largest > 0
        grows = known and q > most and q > self._before
        self._suspicious = self._suspicious + 1 if grows else 0
        self._before, self._temperature = q, temperature
        if self._suspicious == IN_A_ROW:
            self.warned = True
            warnings.warn(self._message(q), RunawayValuesWarning, stacklevel=2)

    def _message(self, q: float) -> str:
        symptom = (
            f"values run away: train/q_mean is {q:.3g} in size and grows, while the return of no "
            f"episode exceeds {self._largest:.3g}"
        )
        if self._bootstraps and self._truncated:
            share = self._truncated / self._episodes
            return (
                f"{symptom}. Likely cause: {share:.0%} of the episodes end as truncated, and what "
                "would come after is never seen; if that end is part of the task, set "
                "bootstrap_truncated=False (--bootstrap-truncated False)"
            )
        return (
            f"{symptom}. Likely cause: the entropy bonus outweighs the rewards; raise the rewards' "
            "scale, or lower initial_ent_coef or target_entropy"
        )
