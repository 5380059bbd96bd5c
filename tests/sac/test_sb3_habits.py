"""What people are used to from SB3 and sb3-contrib works, or is answered with our name for it."""

import math
import re

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._envs.action_codecs import action_codec, mask_of_choices
from kalmanac._envs.workers import Workers
from kalmanac._sac import sb3_arguments
from kalmanac._sac.callbacks import CheckpointCallback
from kalmanac._sac.eval_callback import EvalCallback
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import Wandering, small, wandering


def test_a_learned_temperature_may_say_where_it_starts(tmp_path):
    model = small("memoryless", wandering(1), ent_coef="auto_0.1")
    assert (model.settings.ent_coef, model.settings.initial_ent_coef) == ("auto", 0.1)
    assert model.learner.log_alpha.exp().item() == pytest.approx(0.1)
    small("memoryless", wandering(1), ent_coef=0.5).save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", device="cpu", ent_coef="auto_0.2")
    assert loaded.learner.learns_temperature
    assert loaded.learner.log_alpha.exp().item() == pytest.approx(0.2)
    for wrong, message in {
        "auto_x": "ent_coef: got 'auto_x', expected a number, auto or auto_NUMBER",
        "auto_-1": r"initial_ent_coef: got -1\.0, expected a number above 0",
    }.items():
        with pytest.raises(ValueError, match=message):
            small("memoryless", ent_coef=wrong)
    with pytest.raises(TypeError, match="initial_ent_coef: got one beside ent_coef='auto_0"):
        small("memoryless", ent_coef="auto_0.1", initial_ent_coef=0.2)


@pytest.mark.parametrize("name", sb3_arguments.MODEL)
def test_arguments_of_sb3_are_answered(name):
    with pytest.raises(TypeError, match=f"^{name}: got an argument of SB3, expected "):
        RecurrentSAC(**{name: 1})


def test_other_calls_answer_as_well(tmp_path):
    model = small("memoryless", wandering(1))
    calls = {
        lambda **one: model.learn(1, **one): sb3_arguments.LEARN,
        lambda **one: RecurrentSAC.load(tmp_path, **one): sb3_arguments.LOAD,
        lambda **one: evaluate_policy(model, wandering(1), **one): sb3_arguments.EVALUATE,
        lambda **one: EvalCallback(wandering(1), **one): sb3_arguments.EVAL_CALLBACK,
        lambda **one: CheckpointCallback(1, tmp_path, **one): sb3_arguments.CHECKPOINT_CALLBACK,
    }
    for call, names in calls.items():
        for name in names:
            with pytest.raises(TypeError, match=f"^{name}: got an argument of SB3, expected "):
                call(**{name: True})


def test_an_evaluation_is_mean_and_standard_deviation_and_more():
    result = evaluate_policy(small("memoryless", wandering(1)), wandering(2), 5, seed=0)
    mean, std = result
    assert (mean, std) == (result.returns.mean(), result.returns.std())
    assert len(result.lengths) == 5


def test_names_are_environments():
    model = small("memoryless", "CartPole-v1").learn(25)
    mean, _ = evaluate_policy(model, "CartPole-v1", 2)
    assert mean > 1
    watch = EvalCallback("CartPole-v1", n_eval_episodes=1, eval_freq=10, verbose=0)
    model.learn(10, watch)
    assert len(watch.evaluations) == 1
    model.set_env("CartPole-v1")


def test_parameters_are_handed_from_model_to_model():
    one = small("vssm+kf", wandering(1), seed=1).learn(40)
    other = small("vssm+kf", wandering(1), seed=2)
    parameters = one.get_parameters()
    assert {name.partition(".")[0] for name in parameters} == {
        "actor", "averaged", "critic", "target", "log_alpha", "adam",
    }  # fmt: skip
    other.set_parameters(parameters)
    assert all(torch.equal(x, parameters[name]) for name, x in other.get_parameters().items())
    seen = np.ones(3, np.float32)
    assert np.array_equal(*(x.predict(seen, deterministic=True)[0] for x in (one, other)))
    parameters["log_alpha"].fill_(7)
    assert one.get_parameters()["log_alpha"] != 7, "they are copies"


def test_some_parameters_alone_are_taken_over_where_that_is_meant():
    one, other = (small("memoryless", wandering(1), seed=seed) for seed in (1, 2))
    before = other.get_parameters()
    actor = {k: x for k, x in one.get_parameters().items() if k.startswith("actor.")}
    with pytest.raises(ValueError, match=r"adam\.average: got none, expected otherwise"):
        other.set_parameters(actor)
    other.set_parameters(actor, exact_match=False)
    after = other.get_parameters()
    assert all(torch.equal(after[name], x) for name, x in actor.items())
    assert all(torch.equal(after[f"averaged.{k.partition('.')[2]}"], x) for k, x in actor.items())
    assert all(torch.equal(after[k], x) for k, x in before.items() if k.startswith("critic."))
    name, x = next(iter(actor.items()))
    with pytest.raises(ValueError, match=f"{name}: got shape"):
        other.set_parameters({name: x[:0]}, exact_match=False)
    with pytest.raises(ValueError, match="nothing: got one, expected otherwise"):
        other.set_parameters({"nothing": x}, exact_match=False)
    with pytest.raises(TypeError, match=r"load_path_or_dict: got str.*RecurrentSAC\.load reads"):
        other.set_parameters("model.zip")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"log_alpha": 1.0}, "log_alpha: got float, expected a tensor"),
        ({"log_alpha": np.float32(1)}, "log_alpha: got float32, expected a tensor"),
        ({"log_alpha": torch.tensor(-math.inf)}, "log_alpha: got NaN or infinity, expected finite"),
        ({"adam.steps": torch.tensor(3)}, "adam.steps: got torch.int64, expected floating-point"),
        ({"normalizer.count": math.nan}, "normalizer.count: got float, expected a tensor"),
        ({"normalizer.count": torch.tensor(math.nan)}, "normalizer.count: got nan, expected a num"),
        ({"normalizer.count": torch.tensor(-3)}, "normalizer.count: got -3, expected a number of"),
        ({"normalizer.count": torch.tensor(True)}, "normalizer.count: got True, expected a number"),
        ({"normalizer.mean": torch.full((3,), math.inf)}, "normalizer.mean: got NaN or infinity"),
        ({"normalizer.squares": -torch.ones(3)}, "normalizer.squares: got -1, expected numbers of"),
        ({"return_scale.count": torch.tensor(0.5)}, "return_scale.count: got 0.5, expected a num"),
        ({"return_scale.squares": torch.tensor(-2.0)}, "return_scale.squares: got -2, expected"),
        ({"return_scale.mean": torch.ones(2)}, r"return_scale.mean: got shape (2,), expected ()"),
        ({3: torch.ones(3)}, "load_path_or_dict: got dict, expected tensors by name"),
    ],
)
@pytest.mark.parametrize("exact_match", [True, False])
def test_parameters_that_nobody_has_learned_change_nothing(change, told, exact_match):
    settings = {"normalize_observations": True, "normalize_rewards": True}
    one, other = (small("memoryless", wandering(1), seed=seed, **settings) for seed in (1, 2))
    one.learn(30)
    before = other.get_parameters()
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(told)}"):
        other.set_parameters(one.get_parameters() | change, exact_match)
    assert all(torch.equal(x, before[name]) for name, x in other.get_parameters().items())


def test_weights_that_are_no_numbers_are_refused_as_load_does():
    model = small("memoryless", wandering(1))
    name, x = next(iter(model.get_parameters().items()))
    for wrong, told in ((x * math.nan, "got NaN or infinity"), (x.long(), r"got torch\.int64")):
        with pytest.raises((TypeError, ValueError), match=f"^{re.escape(name)}: {told}, expected"):
            model.set_parameters({name: wrong}, exact_match=False)
    with pytest.raises(TypeError, match=f"^{re.escape(name)}: got ndarray, expected a tensor"):
        model.set_parameters({name: x.numpy()}, exact_match=False)
    certain = small("memoryless", wandering(1), ent_coef=0.0)
    certain.set_parameters(certain.get_parameters())


SPACES = {
    "discrete": gymnasium.spaces.Discrete(4),
    "several": gymnasium.spaces.MultiDiscrete([[2, 3], [2, 2]]),
    "binary": gymnasium.spaces.MultiBinary((2, 2)),
}
SIZES = dict(zip(map(type, SPACES.values()), ([4], [2, 3, 2, 2], [2] * 4), strict=True))


class Masked(Wandering):
    """Its method says which actions are allowed; a forbidden one is an error.

    `told` leaves the method out and puts the whole mask into the info.
    """

    def __init__(self, space=None, told=False):
        super().__init__()
        self.action_space = gymnasium.spaces.Discrete(4) if space is None else space
        self.told, self._sizes = told, SIZES[type(self.action_space)]

    def __getattribute__(self, name):
        if name == "action_masks" and self.told:
            raise AttributeError(name)
        return super().__getattribute__(name)

    def flags(self):
        """Of each choice: answer `left` mod its number is forbidden."""
        return np.concatenate([np.arange(n) != self._left % n for n in self._sizes])

    def action_masks(self):
        return self.flags()

    def step(self, action):
        assert self.action_space.contains(action), action
        for choice, n in zip(np.ravel(action), self._sizes, strict=True):
            assert choice != self._left % n, "forbidden"
        self._left -= 1
        return self._seen(), 1.0, self._left == 0, False, self._info()

    def _info(self):
        told = {"action_mask": mask_of_choices(self.action_space, self.flags())}
        return super()._info() | (told if self.told else {})


@pytest.mark.parametrize("kind", SPACES)
def test_action_masks_of_sb3_contrib_are_what_infos_would_say(kind):
    """Whatever the vector: what is learned is the same."""
    ends = []
    for told in (True, False):
        model = small("memoryless", Masked(SPACES[kind], told)).learn(30)
        assert model.info_keys == {"action_mask"}
        evaluate_policy(model, Masked(SPACES[kind], told), 3)
        ends.append(model.get_parameters())
    assert all(torch.equal(ends[0][name], x) for name, x in ends[1].items())


@pytest.mark.parametrize("mode", AutoresetMode)
def test_action_masks_are_heard_inside_vectors_and_wrappers(mode):
    def wrapped():
        return gymnasium.wrappers.TimeLimit(Masked(), 3)

    model = small("memoryless", SyncVectorEnv([wrapped] * 2, autoreset_mode=mode)).learn(40)
    assert model.info_keys == {"action_mask"}
    assert model.num_updates > 0


@pytest.mark.slow
def test_action_masks_are_heard_in_processes():
    env = Workers([Masked, Masked])
    try:
        assert small("memoryless", env).learn(12).info_keys == {"action_mask"}
    finally:
        env.close()


def test_masks_of_choices_become_masks_of_combinations():
    space = gymnasium.spaces.MultiDiscrete([2, 3])
    mask = mask_of_choices(space, [True, False, True, True, False])
    allowed = action_codec(space).decode(np.flatnonzero(mask))
    assert allowed.tolist() == [[0, 0], [0, 1]]
    with pytest.raises(ValueError, match="action_masks: got 6 flags, expected 5"):
        mask_of_choices(space, np.ones(6))


def test_a_masked_agent_that_predicts_without_a_mask_warns():
    env = Masked()
    model = small("memoryless", env)
    seen = np.zeros(3, np.float32)
    with pytest.warns(UserWarning, match="action_masks: got None, expected the mask of this step"):
        model.predict(seen)
    with pytest.warns(UserWarning, match="action_masks: got None"):
        model.session().act(seen)
    model.predict(seen, action_masks=[1, 0, 1, 1])
    small("memoryless", wandering(1)).predict(seen)


@pytest.mark.parametrize("shape", [3, (2, 2)])
def test_binary_actions(shape, tmp_path):
    class Binary(Wandering):
        def __init__(self):
            super().__init__()
            self.action_space = gymnasium.spaces.MultiBinary(shape)

        def step(self, action):
            assert self.action_space.contains(action)
            self._left -= 1
            return self._seen(), float(action.sum()), self._left == 0, False, self._info()

    model = small("memoryless", Binary()).learn(30)
    action, _ = model.predict(np.zeros(3, np.float32))
    assert model.action_space.contains(action)
    assert model.learner.sizes.action == 2**action.size
    model.save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", device="cpu")
    assert loaded.action_space == model.action_space
    codec = action_codec(gymnasium.spaces.MultiBinary(3))
    assert codec.decode(np.array([0, 1, 6])).tolist() == [[0, 0, 0], [0, 0, 1], [1, 1, 0]]
    with pytest.raises(ValueError, match="8192 joint actions, expected at most 4096"):
        action_codec(gymnasium.spaces.MultiBinary(13))


def test_a_vector_that_does_not_reset_itself_gives_the_same_training():
    """Infos too: the critic sees what they hold."""
    ends = [
        small("memoryless", wandering(3, mode), privileged_critic=True).learn(60).get_parameters()
        for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
    ]
    assert all(torch.equal(ends[0][name], x) for name, x in ends[1].items())
