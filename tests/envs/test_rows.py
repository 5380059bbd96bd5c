"""What holds for every environment of the table, whoever adds a row."""

import json

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env, data_equivalence

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.registry import ENVS, make_vector
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._sac.callbacks import Callback
from tests.envs.rows import ROWS


def play(env, steps, seed=0):
    """What `steps` random steps bring."""
    codec, rng = action_codec(env.single_action_space), np.random.default_rng(seed)
    return [env.step(codec.decode(codec.sample(rng, env.num_envs))) for _ in range(steps)]


@pytest.mark.filterwarnings("ignore:.*a symmetric and normalized space")  # we map any bounds
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")  # it is
@pytest.mark.parametrize("name", ROWS)
def test_gymnasium_accepts_it(name):
    check_env(ENVS[name].single(), skip_render_check=True)


@pytest.mark.parametrize("name", ROWS)
def test_the_seed_decides_all(name):
    one, other = make_vector(name, 2), make_vector(name, 2)
    first = one.reset(seed=5)
    assert data_equivalence(first, other.reset(seed=5), exact=True)
    assert data_equivalence(play(one, 60), play(other, 60), exact=True)
    if "MineSweeper" not in name and "Bandit" not in name:  # they begin with the same reading
        other.reset(seed=6)
        assert not data_equivalence(play(one, 20), play(other, 20), exact=True)
    again = one.reset(seed=5)
    assert data_equivalence(first, again, exact=True)


@pytest.mark.parametrize("name", ROWS)
def test_left_in_mid_episode_and_entered_again_it_goes_on_bit_by_bit(name):
    if name.startswith("bullet/"):
        pytest.skip("PyBullet has no state that can be left and entered again")
    env = make_vector(name, 2)
    env.reset(seed=1)
    play(env, 7)
    state = environment_state(env)
    steps = min(2 * ENVS[name].horizon, 450 if name.startswith("popgym") else 40)
    ahead = play(env, steps, seed=3)
    fresh = make_vector(name, 2)
    restore_environment(fresh, state)
    assert data_equivalence(ahead, play(fresh, steps, seed=3), exact=True)
    restore_environment(env, state)  # the state was not used up
    assert data_equivalence(ahead, play(env, steps, seed=3), exact=True)


@pytest.mark.parametrize("agent", ["vssm+kf", "oracle"])
@pytest.mark.parametrize("name", ROWS)
def test_agents_train_in_it(name, agent):
    experiment = Experiment(
        env=name, num_envs=2, total_steps=300, learning_starts=100, batch_size=4,
        context_length=8, update_to_data=0.1, actor_hidden=(16,), critic_hidden=(16,),
        noise=0.3 if name.startswith("dmc/") else 0.0,
    ).changed({"encoder": agent})  # fmt: skip
    env = training_environment(experiment)
    model = make_model(experiment, env, "cpu")
    parts = {"actor": model.learner.actor, "critic": model.learner.critic}
    before = {name: [p.detach().clone() for p in part.parameters()] for name, part in parts.items()}
    losses = []

    class Watch(Callback):
        def on_update(self, model, metrics):
            losses.append(torch.stack([v for k, v in metrics.items() if k.endswith("_loss")]))

    model.learn(300, callback=Watch())
    env.close()
    assert (model.num_timesteps, len(losses)) == (300, 20)
    assert torch.stack(losses).isfinite().all()
    for part in parts:
        moved = [
            not torch.equal(a, b)
            for a, b in zip(before[part], parts[part].parameters(), strict=True)
        ]
        assert all(moved), part


def test_the_states_of_popgym_and_dmc_are_plain_data():
    for name in ("dmc/reacher-easy", "popgym/CountRecallEasy"):
        env = make_vector(name, 1)
        env.reset(seed=0)
        text = json.dumps(environment_state(env), default=lambda array: array.tolist())
        ahead = play(env, 30)
        fresh = make_vector(name, 1)
        told = json.loads(text)
        restore_environment(fresh, told | {"over": np.array(told["over"])})
        assert data_equivalence(ahead, play(fresh, 30), exact=True)
