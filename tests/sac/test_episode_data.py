"""Episodes in the environment's own units: added, counted, refused by index, read back."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from kalmanac._envs.extras import MissingExtraError
from kalmanac._sac import episode_data
from kalmanac._sac.episode_data import EpisodeData
from kalmanac._sac.evaluation import evaluate_policy
from tests.envs.kinds import Everything
from tests.sac.small import Wandering, small, wandering


def walk(steps=5, seed=0, *, terminated=False) -> EpisodeData:
    """An episode of `Wandering`: three features, two actions in [-2, 4]."""
    rng, last = np.random.default_rng(seed), np.arange(steps) == steps - 1
    return EpisodeData(
        observations=rng.standard_normal((steps + 1, 3), np.float32),
        actions=rng.uniform(-2, 4, (steps, 2)).astype(np.float32),
        rewards=rng.standard_normal(steps).astype(np.float32),
        terminations=last & terminated,
        truncations=last & (not terminated),
    )


def same(one: EpisodeData, other: EpisodeData) -> None:
    for name in ("observations", "actions", "rewards"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-5)
    for name in ("terminations", "truncations"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("env", [True, False])
@pytest.mark.parametrize("size", [None, 90])
def test_episodes_go_in_and_come_out(env, size):
    model = small("gru", wandering(2) if env else None, buffer_size=size)
    if not env:
        model.set_spaces(Wandering().observation_space, Wandering().action_space)
    told = [walk(5, 0), walk(1, 1, terminated=True), walk(8, 2)]
    added = model.add_episodes(one if i else vars(one) for i, one in enumerate(told))
    assert added[:2] == (3, 14)
    assert added.mean_reward == pytest.approx(np.mean([one.rewards.sum() for one in told]))
    assert (model.replay.episodes, model.replay.steps, model.num_timesteps) == (3, 14, 0)
    for one, other in zip(model.episodes(), told, strict=True):
        same(one, other)
    model.set_env(wandering(3))
    assert model.replay.steps == 14
    model.learn(21)
    assert model.replay.steps == 35
    assert model.num_updates == 21 - 6, "what was added counts as warm-up"


def test_added_in_the_middle_of_a_training_they_end_the_episodes_under_way():
    model = small("gru", wandering(2, longest=1000)).learn(30)
    model.add_episodes([walk()])
    assert (model.replay.episodes, model.replay.steps) == (3, 35)
    model.learn(10)
    assert (model.replay.episodes, model.num_timesteps) == (5, 40)


WRONG = {
    "rewards[2]: got nan, expected finite numbers": {"rewards": [0.0, 1, np.nan, 0, 0]},
    "rewards: got <U1 of shape (5,), expected numbers": {"rewards": list("abcde")},
    "observations[3]: got inf, expected finite numbers": {
        "observations": np.where(np.arange(18).reshape(6, 3) == 10, np.inf, 0)
    },
    "observations: got 5 entries, expected 6": {"observations": np.zeros((5, 3))},
    "observations[0]: observation: got shape (1, 4), expected": {"observations": np.zeros((6, 4))},
    "actions[1]: action: got 0.0 to 4.5, expected values within": {
        "actions": [[0, 0], [0, 4.5], [0, 0], [9, 9], [0, 0]]
    },
    "actions: got 4 entries, expected 5": {"actions": np.zeros((4, 2))},
    "terminations[1]: got True before the last of 5 steps": {
        "terminations": np.array([False, True, False, False, True])
    },
    "truncations: got int64 of shape (5,), expected flags": {"truncations": [0, 0, 0, 0, 1]},
    "rewards[1]: got 1e+39, expected finite numbers of float32": {"rewards": [0, 1e39, 0, 0, 0]},
    "rewards: got list, expected an array of numbers": {"rewards": [0, [1, 2], 0, 0, 0]},
    "observations[0]: got inf, expected finite": {"observations": np.full((6, 3), 1e39)},
    "actions: got array(3), expected 5 entries": {"actions": np.array(3)},
}


@pytest.mark.parametrize(("message", "change"), WRONG.items(), ids=WRONG)
def test_what_is_wrong_is_named_and_nothing_is_taken(message, change):
    model = small("gru", wandering(1))
    with pytest.raises(ValueError, match=r"^episodes") as error:
        model.add_episodes([walk(), replace(walk(), **change)])
    assert str(error.value).startswith(f"episodes[1].{message}")
    assert model.replay.steps == 0


TRUTH = np.ones((6, 1))
WRONG_INFOS = {
    ".infos['privileged'][2]: got nan, expected finite numbers of float32": (
        {"privileged": np.where(np.arange(6)[:, None] == 2, np.nan, 0)}
    ),
    ".infos['privileged'][0]: got inf, expected finite": {"privileged": 1e39 * TRUTH},
    ".infos['privileged']: got shape (6, 2), expected (6, 1)": {"privileged": np.ones((6, 2))},
    ".infos['privileged']: got list, expected an array of numbers": {"privileged": list("abcdef")},
    ".infos['privileged']: got None, expected 6 entries": {"privileged": None},
    ".infos['privileged']: got 5 entries, expected 6": {"privileged": TRUTH[:5]},
    ".infos: got 3, expected names with values": 3,
}


@pytest.mark.parametrize(("message", "infos"), WRONG_INFOS.items(), ids=WRONG_INFOS)
def test_a_refusal_leaves_replay_statistics_and_open_episodes_as_they_were(message, infos):
    model = small(
        "gru", wandering(2, longest=1000), privileged_critic=True, normalize_observations=True
    ).learn(30)
    good = replace(walk(), infos={"privileged": TRUTH})
    with pytest.raises((ValueError, TypeError), match=r"^episodes\[1\]") as error:
        model.add_episodes([good, replace(good, infos=infos)])
    assert str(error.value).startswith(f"episodes[1]{message}")
    assert (model.replay.steps, model.normalizer.count) == (30, 32)
    assert model.learn(10).replay.episodes == 2, "those under way go on"


def test_an_episode_for_which_there_is_no_room_is_refused_before_any_is_taken():
    model = small("gru", wandering(2), buffer_size=20).learn(10)
    before = model.replay.episodes
    with pytest.raises(ValueError, match=r"^episodes\[1\]: got 11 steps, expected at most 10, the"):
        model.add_episodes([walk(10), walk(11)])
    assert (model.replay.episodes, model.replay.steps) == (before, 10)
    assert model.learn(10).num_timesteps == 20


def test_images_and_features_of_an_episode_are_equally_many():
    model = small("gru", Everything(), image_channels=(2,), image_features=3).learn(10)
    good = next(model.episodes())
    short = {**good.observations, "camera": good.observations["camera"][:1]}
    with pytest.raises(ValueError, match=r"^episodes\[1\]\.observations: got 1 entries, expected"):
        model.add_episodes([good, replace(good, observations=short)])
    assert model.learn(4).replay.steps == 14


def test_an_interruption_leaves_a_training_that_goes_on(monkeypatch):
    model = small("gru", wandering(2, longest=1000)).learn(30)

    def interrupted(episode):
        raise KeyboardInterrupt

    monkeypatch.setattr(model.replay, "add_episode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.add_episodes([walk()])
    assert model.learn(10).num_timesteps == 40


def test_spaces_of_refused_data_are_not_taken_over():
    class Dataset(list):
        observation_space, action_space = Wandering().observation_space, Wandering().action_space

    model = small("gru")
    with pytest.raises(ValueError, match=r"^episodes\[0\]\.rewards"):
        model.add_episodes(Dataset([replace(walk(), rewards=["a"])]))
    with pytest.raises(ValueError, match=r"^env: got None"):
        _ = model.observation_space
    assert model.add_episodes(Dataset([walk()])).episodes == 1


def test_what_is_missing_is_named():
    model = small("gru", wandering(1))
    with pytest.raises(ValueError, match=r"^episodes\[0\]: got dict without rewards, expected it"):
        model.add_episodes([{}])
    with pytest.raises(ValueError, match=r"^episodes\[0\]: got no steps"):
        model.add_episodes([replace(walk(), rewards=np.zeros(0))])
    with pytest.raises(ValueError, match=r"^episodes: got none"):
        model.add_episodes([])
    for wrong, got in ((3, "int"), (None, "NoneType"), (walk(), "EpisodeData")):
        with pytest.raises(TypeError, match=f"^episodes: got {got}, expected several, such as a"):
            model.add_episodes(wrong)
    with pytest.raises(ValueError, match=r"^env: got None, expected one"):
        small("gru").add_episodes([walk()])
    with pytest.raises(ValueError, match=r"^set_spaces: got spaces, expected none"):
        model.set_spaces(model.observation_space, model.action_space)


def test_masks_images_gaps_and_nests_come_back():
    def env():
        return Everything(missing=True, masked=True)

    how = {"image_channels": (2,), "image_features": 3, "normalize_observations": True}
    first, second = (small("gru", env(), previous_reward=True, **how) for _ in range(2))
    first.learn(40)
    told = list(first.episodes())
    assert {"observed", "action_mask"} <= set(told[0].infos)
    second.add_episodes(told)
    for one, other in zip(
        first.replay.stored_episodes(), second.replay.stored_episodes(), strict=True
    ):
        for name, x in one.observation.parts().items():
            np.testing.assert_allclose(getattr(other.observation, name), x, atol=1e-6)
        np.testing.assert_array_equal(one.action, other.action)
    np.testing.assert_allclose(first.normalizer.mean, second.normalizer.mean, atol=0.5)
    assert second.normalizer.count > 0
    second.pretrain(3)
    mask = told[0].infos["action_mask"].copy()
    action = next(first.replay.stored_episodes()).action[0]
    mask[0], mask[0, action] = True, False
    changed = replace(told[0], infos={**told[0].infos, "action_mask": mask})
    with pytest.raises(ValueError, match=r"^episodes\[0\].actions\[0\]: got .*the mask forbids"):
        second.add_episodes([changed])


def test_statistics_count_what_was_added():
    model = small("gru", wandering(2), normalize_observations=True, normalize_rewards=True)
    told = [walk(6, seed) for seed in range(4)]
    model.add_episodes(told)
    seen = np.concatenate([one.observations for one in told])
    np.testing.assert_allclose(model.normalizer.mean, seen.mean(0), atol=1e-5)
    returns = []
    for one in told:
        g = 0.0
        for r in one.rewards:
            g = 0.99 * g + r
            returns.append(g)
    assert model.return_scale.factor == pytest.approx(1 / np.std(returns), rel=1e-4)


def test_truncation_is_an_end_where_settings_say_so():
    for settings, ends in (({}, [False, True]), ({"bootstrap_truncated": False}, [True, True])):
        model = small("gru", wandering(1), **settings)
        model.add_episodes([walk(), walk(terminated=True)])
        assert [one.terminated for one in model.replay.stored_episodes()] == ends


@pytest.mark.filterwarnings("ignore::UserWarning:minari")  # it asks for an author and so on
def test_minari_is_written_and_read(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    model = small("gru", gymnasium.make("CartPole-v1")).learn(60)
    told = list(model.episodes())
    model.write_minari("cartpole/small-v0", description="some steps")
    dataset = minari.load_dataset("cartpole/small-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (len(told), 60)
    other = small("gru")  # no environment: its spaces are the dataset's
    added = other.add_episodes(dataset)
    assert added[:2] == (len(told), 60)
    assert other.observation_space == model.observation_space
    for one, two in zip(other.episodes(), told, strict=True):
        same(one, two)
    other.pretrain(2)
    assert evaluate_policy(other, gymnasium.make("CartPole-v1"), 1, seed=0).lengths[0] > 0


def test_without_minari_the_command_that_installs_it_is_said(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    model = small("gru", wandering(1))
    model.add_episodes([walk()])
    with pytest.raises(MissingExtraError, match=r'pip install "kalmanac\[minari\]"'):
        episode_data.write_minari("a/b-v0", model.episodes(), model._known()[0], {})


def test_updates_draw_from_what_was_added():
    model = small("gru")
    model.set_spaces(Wandering().observation_space, Wandering().action_space)
    model.add_episodes([walk(5, seed) for seed in range(3)])
    weights = model.learner.actor.head.layers[0].weight.clone()
    assert model.pretrain(4).num_updates == 4
    assert not torch.equal(model.learner.actor.head.layers[0].weight, weights)
    with pytest.raises(ValueError, match="env: got None, expected one to train in"):
        model.learn(1)
