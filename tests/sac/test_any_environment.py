"""Environments of every kind, from the first reset to the saved model and back."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from kalmanac._observation import Observation
from kalmanac._replay.buffer import Replay
from kalmanac._sac.collector import Collector
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.networks import read_history
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.envs.kinds import Everything, Forbidden, ImageIdentity, LastReading, copies
from tests.sac.counting import acted
from tests.sac.reusing import Closed, Reusing, vector
from tests.sac.small import Listener, Wandering, small, wandering

KINDS = {
    "image": ImageIdentity,
    "mask": Forbidden,
    "mask inside": partial(Forbidden, inside=True),
    "missing": LastReading,
    "nest": Everything,
    "nest, missing and masked": partial(Everything, missing=True, masked=True),
}
MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]
QUICKER = {"image_channels": (2, 3), "image_features": 4, "update_to_data": 0.25}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make_model(kind, mode=MODES[0], n=3, **settings):
    return small("vssm+kf", copies(KINDS[kind], n, mode), **QUICKER | settings)


@pytest.mark.parametrize("mode", MODES)
@every_kind
def test_every_kind_learns_saves_and_is_evaluated(kind, mode, tmp_path):
    model = make_model(kind, mode, normalize_observations=mode is MODES[0])
    listener = Listener()
    model.learn(44, listener)
    assert len(listener.metrics) >= 6
    assert all(np.isfinite(x) for row in listener.metrics for x in row.values())
    assert all(x.isfinite() for x in model.diagnostics().values())
    model.save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", device="cpu")
    assert loaded.observation_space == model.observation_space
    assert loaded.info_keys == model.info_keys
    for deterministic in (True, False):
        one, other = (
            evaluate_policy(x, copies(KINDS[kind], 2, mode), 3, seed=0, deterministic=deterministic)
            for x in (model, loaded)
        )
        if deterministic:
            np.testing.assert_array_equal(one.returns, other.returns)
    loaded.set_env(copies(KINDS[kind], 2, mode))
    loaded.learn(24)


@pytest.mark.parametrize("kind", ["numbers", "dictionary"])
@pytest.mark.parametrize("mode", [None, *MODES], ids=["single", "same step", "next step"])
def test_what_is_learned_from_is_what_was_shown_though_arrays_are_reused(kind, mode):
    runs = []
    for reuses in (True, False):
        one = Reusing(kind, reuses=reuses)
        env = one if mode is None else vector(kind, 2, mode, reuses=reuses)
        model = small("vssm+kf", env, privileged_critic=True, **QUICKER)
        listener = Listener()
        model.learn(40, listener)
        check = Reusing(kind, reuses=reuses)
        returns = evaluate_policy(model, check, 4, deterministic=False).returns.tolist()
        runs.append((model.replay.state_dict()["storage"], listener.metrics, returns))
    (actual, *metrics), (true, *same) = runs
    assert all(torch.equal(x, true[name]) for name, x in actual.items())
    assert metrics == same


# Python warns of a fork where other tests have left threads
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("known", [False, True], ids=["asked", "given before"])
def test_a_critic_sees_the_true_state_of_environments_in_other_processes(known):
    model, one = small("memoryless", privileged_critic=True), Wandering()
    if known:
        model.set_spaces(
            one.observation_space, one.action_space, privileged_space=one.privileged_space
        )
    env = AsyncVectorEnv([Wandering] * 2, autoreset_mode=MODES[0])
    try:
        model.set_env(env)
        model.learn(40)
    finally:
        env.close()
    assert model.learner.sizes.privileged == 1
    assert model.num_updates > 0


def test_who_hides_the_true_state_is_told_how_to_declare_it():
    how = "as an attribute of its own or of each of its environments"
    hiding = Closed(wandering(2))
    with pytest.raises(ValueError, match=f"declares no privileged_space, {how}"):
        small("memoryless", hiding, privileged_critic=True)
    model = small("memoryless", wandering(2), privileged_critic=True)
    with pytest.raises(ValueError, match=rf"env\.privileged_space: got None, .* training, {how}"):
        model.set_env(hiding)
    hiding.privileged_space = Wandering().privileged_space
    model.set_env(hiding)


@every_kind
def test_same_seed_same_metrics(kind):
    runs = []
    for _ in range(2):
        listener = Listener()
        make_model(kind, privileged_critic=kind.startswith("nest")).learn(40, listener)
        runs.append(listener.metrics)
    assert runs[0] == runs[1]
    assert runs[0]


def test_models_ask_for_the_keys_that_infos_have():
    asked = {kind: set(make_model(kind).info_keys) for kind in KINDS}
    assert asked == {
        "image": set(), "mask": {"action_mask"}, "mask inside": {"action_mask"},
        "missing": {"observed"}, "nest": set(),
        "nest, missing and masked": {"action_mask", "observed"},
    }  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("normalized", [False, True])
def test_acting_equals_the_training_pass(mode, normalized):
    kind = "nest, missing and masked"
    model = make_model(kind, normalize_observations=normalized).learn(30)
    env, sizes = copies(KINDS[kind], 3, mode), model.learner.sizes
    replay = Replay(sizes, 3)
    problem, policy = model._known()
    collector = Collector(
        env, problem.observations, problem.actions, replay, observed=True, action_mask=True
    )
    carried = [policy.start(3)]

    def act(observation, starts):
        action, carried[0] = policy.act(observation, carried[0], starts, explore=False)
        return action

    collector.reset(seed=7)
    for _ in range(30):
        acted(collector, act)
    batch = replay.sample(100, 8, generator=torch.Generator().manual_seed(0))
    seen = batch if model.normalizer is None else model.normalizer.batch(batch)
    with torch.no_grad():
        parameters = model.learner.averaged(read_history(seen))[:, :-1][batch.valid]
    taken = batch.action[batch.valid].argmax(-1)
    assert torch.equal(parameters.argmax(-1), taken)
    assert len(taken.unique()) > 2, "not always the same action"


def test_a_session_is_told_what_predict_is_told():
    model = make_model("nest, missing and masked")
    env, session, state = KINDS["nest, missing and masked"](), model.session(), None
    observation, info = env.reset(seed=3)
    for _ in range(8):
        arguments = {"action_masks": info["action_mask"], "observed": info["observed"]}
        expected, state = model.predict(observation, state, deterministic=True, **arguments)
        action = session.act(observation, **arguments)
        np.testing.assert_array_equal(action, expected)
        assert action in env.action_space
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            observation, info = env.reset()
            session.reset()
            state = None


def test_predict_keeps_to_the_mask():
    model = make_model("mask")
    blank = np.zeros((4, 1), np.float32)
    masks = np.eye(4, dtype=np.int8)
    for deterministic in (True, False):
        actions, _ = model.predict(blank, deterministic=deterministic, action_masks=masks)
        assert actions.tolist() == [5, 6, 7, 8]
    one, _ = model.predict(blank[0], action_masks=[0, 0, 1, 0])
    assert one == 7
    inside = make_model("mask inside")
    seen = {"observation": np.zeros(1, np.float32), "action_mask": masks[1]}
    assert inside.predict(seen)[0] == 6
    assert inside.predict(seen, action_masks=masks[3])[0] == 8, "what is said counts more"
    many = {"observation": blank, "action_mask": masks}
    assert inside.predict(many)[0].tolist() == [5, 6, 7, 8]
    assert inside.predict([seen, seen])[0].tolist() == [6, 6]


def test_predict_ignores_a_reading_that_is_missing():
    model = make_model("missing", encoder_settings={"d_state": 8, "raw_step_size": -1.0})
    seen = np.ones((2, 1), np.float32)
    _, state = model.predict(seen)
    for value in (5.0, np.nan):
        _, a = model.predict(value * seen, state, observed=[False, False])
        _, b = model.predict(0 * seen, state, observed=[False, False])
        assert torch.equal(a.encoder.mean, b.encoder.mean)
        assert torch.equal(a.encoder.variance, b.encoder.variance)
    _, there = model.predict(0 * seen, state)
    assert (there.encoder.variance < b.encoder.variance).all(), "a zero that is there tells more"
    _, alone = model.predict(seen[0], observed=False)
    assert alone.episodes == 1


def test_wrong_words_are_refused():
    model, blank = make_model("mask"), np.zeros((2, 1), np.float32)
    for masks, message in (
        (np.ones((2, 3)), r"action_mask: got shape \(2, 3\), expected \('n', 4\)"),
        (np.ones((3, 4)), "action_mask: got 3 rows, expected 2"),
        (np.array([[1, 1, 1, 1], [0, 0, 0, 0]]), "action_mask: got no allowed action in row 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(blank, action_masks=masks)
    for observed in ([True], [1, 0]):
        with pytest.raises(ValueError, match=r"observed: got .* expected bool of shape \(2,\)"):
            model.predict(blank, observed=observed)
    with pytest.raises(ValueError, match="action_mask: got one, expected none for continuous"):
        small("gru", wandering(1)).predict(np.zeros((2, 3)), action_masks=np.ones((2, 2)))


def test_masks_for_continuous_actions_are_refused():
    class Confused(LastReading):
        def __init__(self):
            super().__init__()
            self.action_space = gymnasium.spaces.Box(-1, 1, (2,))

        def _show(self):
            return np.zeros(1, np.float32), {"action_mask": np.ones(2, np.int8)}

    with pytest.raises(ValueError, match=r'info\["action_mask"\]: got one, expected none'):
        small("gru", Confused())


def test_warm_up_keeps_to_the_mask():
    model = make_model("mask", learning_starts=300)
    model.learn(300)  # the environment asserts it
    taken = model.replay.sample(100, 8, generator=torch.Generator().manual_seed(0))
    allowed = taken.observation.action_mask[:, :-1][taken.valid]
    chosen = taken.action[taken.valid].bool()
    assert allowed[chosen].all()
    share = chosen[allowed.all(-1) | (allowed.sum(-1) == 3)].float().mean(0)
    assert (share > 0.1).all(), "uniform among the allowed"


def test_images_are_kept_as_bytes():
    model = make_model("image").learn(30)
    stored = model.replay.state_dict()["storage"]
    assert stored["pixels"].dtype == torch.uint8
    assert stored["pixels"].shape[-1] == 144
    assert stored["observation"].shape[-1] == 0


def test_codes_and_missing_readings_are_not_normalized():
    model = make_model("nest, missing and masked", normalize_observations=True, learning_starts=60)
    model.learn(60)
    normalizer = model.normalizer
    assert normalizer.scaled.tolist() == [False] * 5 + [True] * 2 + [False] * 5
    assert normalizer.mean[6] == pytest.approx(5.0), "the constant, with no zeros mixed in"
    row = torch.arange(12.0)[None]
    shown = normalizer(row)
    codes = torch.tensor(~normalizer.scaled)
    assert torch.equal(shown[:, codes], row[:, codes])
    missing = normalizer.normalize(Observation(row, observed=torch.tensor([False]))).vector
    assert (missing == 0).all()


def test_gymnasiums_taxi_tells_masks_and_learns():
    name = max(name for name in gymnasium.registry if name.startswith("Taxi-v"))
    env = SyncVectorEnv([lambda: gymnasium.make(name)] * 2, autoreset_mode=MODES[1])
    model = small("memoryless", env)
    assert model.info_keys == {"action_mask"}
    assert model.learner.sizes.observation == 500
    model.learn(60)
    batch = model.replay.sample(20, 8, generator=torch.Generator().manual_seed(0))
    allowed = batch.observation.action_mask[:, :-1][batch.valid]
    assert not allowed.all()
    assert allowed[batch.action[batch.valid].bool()].all()


def test_a_loaded_agent_takes_an_environment_without_a_reset(tmp_path):
    make_model("missing").learn(30).save(tmp_path / "m")
    env = copies(LastReading, 2)
    env.reset = lambda **_: pytest.fail("what it tells is known")
    RecurrentSAC.load(tmp_path / "m", env, device="cpu")


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("continuous", [True, False])
def test_an_observation_that_holds_no_numbers_is_called_so(continuous, bad, deterministic):
    """Not an action: the policy knows none for it."""

    class Broken(gymnasium.ObservationWrapper):
        def observation(self, observation):
            return np.full_like(observation, bad)

    def env():
        return wandering(1).envs[0] if continuous else Reusing(reuses=False)

    model = small("memoryless", env())
    named = f"observation: got {bad} in row 0, expected finite numbers"
    with pytest.raises(RuntimeError, match=f"^the environment gave a wrong {named}"):
        evaluate_policy(model, Broken(env()), 1, deterministic=deterministic)
    with pytest.raises(ValueError, match=f"^{named}"):
        model.predict(np.full(3, bad, np.float32), deterministic=deterministic)
    with pytest.raises(ValueError, match=f"^{named}"):
        model.session(deterministic=deterministic).act(np.full(3, bad, np.float32))


@pytest.fixture
def float64_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("encoder", ["mamba", "vssm+kf", "gru"])
@pytest.mark.parametrize("kind", ["nest, missing and masked", None])
def test_a_program_that_computes_in_float64_trains_the_same_agent(
    encoder, kind, float64_by_default
):
    runs = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        env, other = (
            wandering(n) if kind is None else copies(KINDS[kind], n, MODES[0]) for n in (2, 1)
        )
        model, listener = small(encoder, env, **QUICKER), Listener()
        model.learn(30, listener)
        returns = evaluate_policy(model, other, 2, seed=0).returns.tolist()
        runs.append((listener.metrics, returns))
        assert torch.get_default_dtype() is dtype
    (metrics, returns), (same, again) = runs
    assert returns == again
    assert len(metrics) == len(same) > 0
    assert all(
        row == pytest.approx(other, rel=1e-5) for row, other in zip(metrics, same, strict=True)
    )
