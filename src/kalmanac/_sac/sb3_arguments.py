"""Arguments of SB3 and sb3-contrib that go by another name here, or that have nothing behind them.

Whoever passes one is told what to write instead (docs/coming-from-sb3.md).
"""

import functools
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

_RATE = "update_to_data, the updates for each environment step"
_PPO = "none: it belongs to on-policy algorithms, and this one learns from a replay"
_SDE = "exploration_correlation, such as 0.9: noise that keeps its direction for some steps"
_RENDER = 'none: an environment made with render_mode="human" shows itself'
_MONITOR = "none: returns are counted here, whether or not a Monitor is around the environment"

MODEL: Mapping[str, str] = {
    "policy": "encoder, the first argument, a name of ENCODERS such as 'vssm+kf' or 'gru'",
    "policy_kwargs": "actor_hidden and critic_hidden (its net_arch), embedding, encoder_settings, "
    "image_channels or image_features",
    "train_freq": _RATE,
    "gradient_steps": _RATE,
    "n_steps": "context_length, the transitions in a window",
    "action_noise": "exploration_correlation, such as 0.9, for exploration with a memory (without "
    "it, the policy explores by its entropy; ActionNoise is an environment's)",
    "replay_buffer_class": "drawing, how windows are drawn from the replay",
    "replay_buffer_kwargs": "drawing, context_length and burn_in",
    "optimize_memory_usage": "none: the replay holds every observation once",
    "target_update_interval": "tau, the share that the target takes over with each update",
    "use_sde": _SDE,
    "sde_sample_freq": _SDE,
    "use_sde_at_warmup": _SDE,
    "stats_window_size": "log_interval of learn: rows hold means since the row before",
    "_init_setup_model": "env=None: the networks come to be with set_env",
    **dict.fromkeys(
        ("n_epochs", "gae_lambda", "clip_range", "clip_range_vf", "normalize_advantage",
         "vf_coef", "target_kl", "rollout_buffer_class", "rollout_buffer_kwargs"), _PPO,
    ),
}  # fmt: skip
LEARN: Mapping[str, str] = {
    "reset_num_timesteps": "none: num_timesteps goes on, and set_env or a new model begins anew",
    "use_masking": "none: masks are heard wherever the environment tells of them",
}
LOAD: Mapping[str, str] = {
    "custom_objects": "the settings themselves, such as learning_rate=1e-4",
    "print_system_info": "none: `kalmanac doctor` tells versions and devices",
    "force_reset": "none: an environment that is given is always reset",
}
EVALUATE: Mapping[str, str] = {
    "return_episode_rewards": "none: what comes back has returns and lengths of all episodes",
    "callback": "each_step, called before every vector step",
    "reward_threshold": "none: compare the mean yourself",
    "render": _RENDER,
    "warn": _MONITOR,
    "use_masking": LEARN["use_masking"],
}
EVAL_CALLBACK: Mapping[str, str] = {
    "render": _RENDER, "warn": _MONITOR, "use_masking": LEARN["use_masking"]
}  # fmt: skip
CHECKPOINT_CALLBACK: Mapping[str, str] = {
    "save_vecnormalize": "none: a model with normalize_observations=True saves its statistics",
}

P = ParamSpec("P")
R = TypeVar("R")


def answering(arguments: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function answer these arguments: TypeError with what to write in their place."""

    def answer(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def answered(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name in arguments:
                    raise TypeError(f"{name}: got an argument of SB3, expected {arguments[name]}")
            return function(*args, **kwargs)

        return answered

    return answer
