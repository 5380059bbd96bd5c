"""Model files of others: refused in one line, before anything of the size they name is made."""

import math
import resource

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._encoders.registry import ENCODERS
from kalmanac._files.document import BadFileError, encode
from kalmanac._observation import Sizes
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.learner import Learner
from kalmanac._sac.model_check import Expected
from kalmanac._sac.model_file import MODEL, read_model, write_model
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import small, wandering


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model, and its policy alone."""
    folder = tmp_path_factory.mktemp("models")
    model = small("gru", wandering(2), normalize_observations=True).learn(30)
    model.save(folder / "whole")
    model.save(folder / "alone", policy_alone=True)
    return folder


@pytest.fixture
def crafted(saved, tmp_path):
    """A file whose checksum holds, changed by `change(document)`."""

    def craft(change, which="whole"):
        document = read_model(saved / which)
        change(document)
        file = tmp_path / "crafted.safetensors"
        file.write_bytes(encode(document, MODEL))
        return file

    return craft


def peak():
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def refused(file, message=None):
    with pytest.raises(BadFileError, match=message) as caught:
        RecurrentSAC.load(file, device="cpu")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def setting(**values):
    return lambda document: document["config"].update(values)


def box(shape):
    box = {"type": "Box", "shape": shape, "dtype": "float32", "low": "-1.0", "high": "1.0"}
    return lambda document: document["spaces"].update(observation=box)


def test_a_setting_that_is_gone_is_not_read(crafted):
    model = RecurrentSAC.load(crafted(setting(average_tau=None, bfloat16_heads=False)))
    assert not {"average_tau", "bfloat16_heads"} & set(vars(model.settings))


def test_zero_and_one_for_a_switch_load_as_agents_once_saved_them(crafted):
    file = crafted(setting(average_policy=1, graph=0, bootstrap_truncated=1))
    settings = RecurrentSAC.load(file, device="cpu").settings
    chosen = (settings.average_policy, settings.graph, settings.bootstrap_truncated)
    assert chosen == (True, False, True)
    refused(crafted(setting(graph=2)), "graph: got 2, expected true or false")


BIG = {
    "state": setting(encoder_settings={"d_state": 4000}),
    "hidden": setting(actor_hidden=(4000, 4000)),
    "critic": setting(critic_hidden=(4000, 4000)),
    "beyond numbers": setting(critic_hidden=(2**40, 2**40)),
    "embedding": setting(embedding=10**9),
    "layers": setting(encoder_settings={"layers": 10**9}),
    "many layers": setting(actor_hidden=(1,) * 10_000),
    "window": setting(encoder="transformer", encoder_settings={}, context_length=2**28),
    "eigenvalues": setting(encoder="s5", encoder_settings={"d_state": 20_000}),
    "box": box([2**27]),
    "image": box([3, 2**13, 2**13]),
    "choices": lambda document: document["spaces"]["action"].update(
        {"type": "Discrete", "n": 2**40, "start": 0, "dtype": "int64"}
    ),
}


@pytest.mark.parametrize("which", ["whole", "alone"])
@pytest.mark.parametrize("kind", BIG)
def test_a_small_file_cannot_ask_for_much_memory(kind, which, crafted):
    Expected(AgentSettings(encoder="vssm"), Sizes(1, 1, True))  # what PyTorch imports counts not
    file = crafted(BIG[kind], which)
    assert file.stat().st_size < 500_000
    before = peak()
    refused(file)
    assert peak() - before < 50e6


def put(part, value, name=None):
    def craft(document):
        chosen = name or next(name for name in document[part] if name.endswith("weight"))
        document[part][chosen].reshape(-1)[0] = value

    return craft


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("part", "which", "name"),
    [("learner", "whole", None), ("policy", "alone", None),
     ("learner", "whole", "target.head.biases.0"), ("learner", "whole", "log_alpha"),
     ("normaliser", "whole", "mean")],
)  # fmt: skip
def test_weights_that_are_not_finite_are_refused(value, part, which, name, crafted):
    refused(crafted(put(part, value, name), which), "finite")


def test_weights_that_are_finite_in_more_digits_alone_are_refused(crafted):
    def craft(document):
        name = next(name for name in document["learner"] if name.endswith("weight"))
        weight = document["learner"][name]
        document["learner"][name] = torch.full_like(weight, 1e300, dtype=torch.float64)

    refused(crafted(craft), "finite")


def test_a_temperature_of_zero_is_no_infinity(tmp_path):
    small("memoryless", wandering(1), ent_coef=0.0).save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", device="cpu")
    assert loaded.learner.log_alpha.item() == float("-inf")


def without(*names):
    def craft(document):
        part = document
        for name in names[:-1]:
            part = part[name]
        del part[names[-1]]

    return craft


def instead(value, *names):
    def craft(document):
        part = document
        for name in names[:-1]:
            part = part[name]
        part[names[-1]] = value

    return craft


@pytest.mark.parametrize(
    "change",
    [
        *(without(name) for name in ("config", "spaces", "learner", "normaliser", "num_updates")),
        *(instead(value, name) for name in ("config", "spaces", "learner", "num_timesteps")
          for value in (True, "x", [], -1, 1.5)),
        without("learner", "log_alpha"), without("learner", "generator.acting"),
        without("learner", "adam.steps"), without("spaces", "action"),
        without("normaliser", "mean"),
        instead("x", "learner", "log_alpha"), instead(torch.ones(1), "learner", "log_alpha"),
        instead(torch.ones(3), "learner", "other.part"), instead(None, "normaliser"),
        instead(torch.ones(()).int(), "learner", "log_alpha"),
        instead(torch.full((5056,), 255, dtype=torch.uint8), "learner", "generator.acting"),
        instead(torch.ones(7).double(), "normaliser", "mean"), instead(-1, "normaliser", "clip"),
        instead("many", "normaliser", "count"),
        setting(env="CartPole-v1"), setting(device="cuda"), setting(context=3), setting(seed=-1),
        setting(seed=10**30), setting(encoder="os"), setting(encoder_settings={"d_model": 3}),
        setting(encoder_settings={"d_state": "x"}), setting(encoder_settings=3),
        setting(actor_hidden=3), setting(actor_hidden=(0,)), setting(log_std_range=(1,)),
        setting(gamma="x"), setting(batch_size=0),
        box([-1]), box(["x"]), box(3), box([]), box([2, 2]),
        instead({"type": "Text"}, "spaces", "observation"), instead([], "spaces", "told"),
        instead({"type": "Discrete", "n": 0}, "spaces", "action"),
        instead({"type": "Tuple", "spaces": 3}, "spaces", "observation"),
    ],
)  # fmt: skip
def test_a_malformed_document_is_one_error(change, crafted):
    refused(crafted(change))


words = st.sampled_from(["config", "spaces", "learner", "policy", "normaliser", "num_updates", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(words, values))
def test_a_signed_document_of_anything_is_one_error(tmp_path_factory, document):
    file = tmp_path_factory.getbasetemp() / "anything.safetensors"
    file.write_bytes(encode(document, MODEL))
    refused(file)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("normaliser", {"count": -5}), ("normaliser", {"count": "x"}),
        ("return_scale", {"count": -5}), ("return_scale", {"running": torch.zeros(3, 3)}),
        ("return_scale", {"squares": -1.0}), ("return_scale", {"mean": math.nan}),
    ],
)  # fmt: skip
def test_statistics_that_cannot_be_are_refused(part, change, tmp_path):
    env = wandering(1)
    model = small("gru", env, normalize_observations=True, normalize_rewards=True).learn(30)
    document = model._document()
    document[part] = document[part] | change
    write_model(tmp_path / "model", document)
    refused(tmp_path / "model.safetensors")


@pytest.mark.parametrize("settings", [{"embedding": 256}, {"actor_hidden": (1024,)}])
def test_a_large_model_is_loaded_as_it_was_saved(settings, tmp_path):
    model = small("vssm+kf", wandering(1), **settings).learn(30)
    model.save(tmp_path / "model")
    loaded = RecurrentSAC.load(tmp_path / "model", device="cpu")
    for name, x in model.learner.state_dict().items():
        assert x.equal(loaded.learner.state_dict()[name]), name


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("images", [(), ((3, 9, 8),)])
@pytest.mark.parametrize("average", [True, False])
def test_expected_shapes_are_those_of_a_learner(encoder, images, average):
    sizes = Sizes(3, 2, False, images=images)
    settings = AgentSettings(
        encoder=encoder,
        actor_hidden=(8,),
        critic_hidden=(8, 4),
        context_length=7,
        average_policy=average,
    )
    torch.manual_seed(5)
    expected = Expected(settings, sizes)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1)), "the global generator is left alone"
    actual = Learner(settings, sizes).state_dict()
    kept = {name: x for name, x in actual.items() if not name.startswith("generator.")}
    assert expected.learner == {name: tuple(x.shape) for name, x in kept.items()}
    assert list(expected.actor) == [name[6:] for name in kept if name.startswith("actor.")]
