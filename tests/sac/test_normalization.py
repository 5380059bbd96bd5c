import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kalmanac import ObservationDropout, RecurrentSAC, Track
from kalmanac._observation import Observation
from kalmanac._replay.sampling import Batch
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.normalization import ObservationNormalizer
from tests.sac.small import small, wandering

values = st.floats(-1e3, 1e3, width=32)


@given(arrays(np.float32, st.tuples(st.integers(2, 30), st.just(2)), elements=values),
       st.lists(st.integers(0, 30), max_size=4))  # fmt: skip
def test_statistics_do_not_depend_on_how_the_data_came(data, cuts):
    normalizer = ObservationNormalizer(2)
    for part in np.split(data, sorted(min(c, len(data)) for c in cuts)):
        normalizer.update(part)
    exact = data.astype(np.float64)
    assert normalizer.count == len(data)
    np.testing.assert_allclose(normalizer.mean, exact.mean(0), atol=1e-9)
    np.testing.assert_allclose(normalizer.variance, exact.var(0), atol=1e-6)


def test_large_offsets_keep_their_precision():
    rng = np.random.default_rng(0)
    normalizer = ObservationNormalizer(1)
    for _ in range(200):
        normalizer.update((1e4 + rng.standard_normal((50, 1))).astype(np.float32))
    assert normalizer.variance[0] == pytest.approx(1, abs=0.05)


def test_features_that_are_not_scaled_are_not_clipped_either():
    normalizer = ObservationNormalizer(3, scaled=np.array([True, False, False]))
    normalizer.update(np.array([[0, 0, 0], [4, 1, 50]], np.float32))
    shown = torch.tensor([[1e6, 1.0, 50.0], [-1e6, 0.0, -50.0]])
    assert normalizer(shown).tolist() == [[10, 1, 50], [-10, 0, -50]]
    normalizer.load_state_dict(normalizer.state_dict() | {"clip": 3.0})
    assert normalizer(shown).tolist() == [[3, 1, 50], [-3, 0, -50]]


def test_normalized_values():
    normalizer = ObservationNormalizer(2)
    normalizer.update(np.array([[0, 5], [4, 5]], np.float32))
    actual = normalizer(torch.tensor([[4.0, 5.0], [2.0, 5.0], [1e6, 5.0], [-1e6, 5.0]]))
    wanted = torch.tensor([[1.0, 0.0], [0.0, 0.0], [10.0, 0.0], [-10.0, 0.0]])
    torch.testing.assert_close(actual, wanted)
    assert actual.dtype == torch.float32


def test_untouched_before_the_first_observation():
    x = torch.tensor([[0.5, -3.0]])
    torch.testing.assert_close(ObservationNormalizer(2)(x), x)


def test_missing_readings_stay_zero():
    normalizer = ObservationNormalizer(1)
    normalizer.update(np.array([[1], [3]], np.float32))
    flags = torch.tensor([[True, False]])
    batch = Batch(
        observation=Observation(torch.tensor([[[3.0], [0.0]]]), observed=flags),
        previous_action=torch.zeros(1, 2, 1),
        action=torch.zeros(1, 1, 1), reward=torch.zeros(1, 1),
        terminated=torch.zeros(1, 1, dtype=torch.bool),
        valid=torch.ones(1, 1, dtype=torch.bool), lengths=torch.tensor([2]),
    )  # fmt: skip
    assert normalizer.batch(batch).observation.vector.flatten().tolist() == [1.0, 0.0]


def test_round_trip():
    normalizer, other = ObservationNormalizer(3, clip=2.0), ObservationNormalizer(3)
    normalizer.update(np.random.default_rng(0).random((9, 3)).astype(np.float32))
    other.load_state_dict(normalizer.state_dict())
    x = torch.linspace(-5, 5, 12).reshape(4, 3)
    assert torch.equal(other(x), normalizer(x))
    other.update(np.ones((2, 3), np.float32))
    assert normalizer.count == 9, "no memory is shared"


def test_a_clip_of_zero_is_refused():
    with pytest.raises(ValueError, match="clip: got 0, expected a positive number"):
        ObservationNormalizer(1, clip=0)


def test_on_by_default():
    assert RecurrentSAC("gru", wandering(1), device="cpu").normalizer is not None
    assert small("gru", wandering(1), normalize_observations=False).normalizer is None


def test_what_never_changes_is_not_scaled():
    """A flag that readings came is 1 in all that count: it must not look like a missing one."""
    normalizer = ObservationNormalizer(3)
    normalizer.update(np.array([[1, 500, 0], [1, 500, 2]], np.float32))
    came, lost = normalizer(torch.tensor([[1.0, 500.0, 1.0], [0.0, 500.001, 1.0]]))
    torch.testing.assert_close(came, torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(lost, torch.tensor([0.0, 0.001, 0.0]), atol=1e-4, rtol=0)


def test_a_flag_of_missing_readings_stays_one():
    env = ObservationDropout(Track(horizon=10), 0.5, flag=True)
    model = small("gru", env, normalize_observations=True).learn(40)
    batch = model._training.batch_aside()
    observed, flag = batch.observation.observed, batch.observation.vector[..., -1]
    valid = batch.valid[:, : flag.shape[1]]
    rows = slice(0, valid.shape[1])
    assert set(flag[:, rows][valid & observed[:, rows]].tolist()) == {1.0}
    assert set(flag[:, rows][valid & ~observed[:, rows]].tolist()) == {0.0}


def test_a_replay_that_is_loaded_fills_empty_statistics(tmp_path):
    old = small("memoryless", wandering(2, offset=40.0), normalize_observations=True).learn(40)
    old.save_replay_buffer(tmp_path / "replay")
    new = small("memoryless", wandering(2, offset=40.0), normalize_observations=True)
    new.load_replay_buffer(tmp_path / "replay.replay")
    np.testing.assert_allclose(new.normalizer.mean, old.normalizer.mean)
    np.testing.assert_allclose(new.normalizer.variance, old.normalizer.variance)
    own = old.normalizer.count
    old.load_replay_buffer(tmp_path / "replay.replay")
    assert old.normalizer.count == own, "those that are there stay"


def test_parameters_take_the_statistics_along():
    one = small("gru", wandering(2, offset=40.0), normalize_observations=True).learn(40)
    other = small("gru", wandering(2, offset=40.0), normalize_observations=True, seed=9)
    other.set_parameters(one.get_parameters())
    observation = np.full((2, 3), 41, np.float32)
    actions = [x.predict(observation, deterministic=True)[0] for x in (one, other)]
    np.testing.assert_array_equal(*actions)
    with pytest.raises(ValueError, match=r"normalizer\.count: got one, expected otherwise"):
        small("gru", wandering(2), seed=9).set_parameters(one.get_parameters())


def test_statistics_are_those_of_the_stored_observations():
    model = small("memoryless", wandering(3, offset=40.0), normalize_observations=True)
    model.learn(60)
    state = model.replay.state_dict()
    rows = [
        observation[:head]
        for observation, head in zip(
            state["storage"]["observation"], state["episodes"]["head"], strict=True
        )
    ]
    stored = torch.cat(rows).double().numpy()
    assert model.normalizer.count == len(stored)
    np.testing.assert_allclose(model.normalizer.mean, stored.mean(0), rtol=1e-9)
    np.testing.assert_allclose(model.normalizer.variance, stored.var(0), rtol=1e-6)


def test_only_collecting_updates_it():
    model = small("memoryless", wandering(3), normalize_observations=True).learn(30)
    before = model.normalizer.state_dict()
    model.predict(np.full(3, 1e3, np.float32))
    evaluate_policy(model, wandering(2, offset=100.0), 4)
    model.diagnostics()
    after = model.normalizer.state_dict()
    assert before["count"] == after["count"]
    assert torch.equal(before["mean"], after["mean"])


def test_acting_and_learning_see_the_same_scale():
    """The same seed in a world moved by 40: the agent cannot tell."""
    models = [
        small("memoryless", wandering(2, offset=offset), normalize_observations=True,
              learning_starts=40, update_to_data=0.0).learn(40)
        for offset in (0.0, 40.0)
    ]  # fmt: skip
    drawn = [model._training.batch_aside() for model in models]
    inside = torch.arange(drawn[0].observation.vector.shape[1]) < drawn[0].lengths[:, None]
    torch.testing.assert_close(
        drawn[0].observation.vector[inside], drawn[1].observation.vector[inside], atol=1e-3, rtol=0
    )
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    actions = [model.predict(x + 40 * i, deterministic=True)[0] for i, model in enumerate(models)]
    np.testing.assert_allclose(actions[0], actions[1], atol=1e-3)


def test_a_trace_leaves_no_tensor_of_its_own_behind():
    normalizer = ObservationNormalizer(2)
    normalizer.update(np.array([[0, 1], [2, 5]], np.float32))

    class Step(torch.nn.Module):
        def forward(self, vector):
            return normalizer(vector)

    traced = torch.export.export(Step(), (torch.zeros(3, 2),)).module()
    shown = torch.tensor([[2.0, 1.0]])
    assert type(normalizer(shown)) is torch.Tensor
    assert normalizer(shown)[0].tolist() == pytest.approx([1.0, -1.0])
    assert torch.equal(traced(shown.expand(3, 2)), normalizer(shown).expand(3, 2))
