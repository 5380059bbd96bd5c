"""Images: bytes in, features beside the observation's numbers, in both networks."""

import pytest
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.sampling import Batch
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.networks import ImageEmbedder, read_history
from tests.sac.cases import batch, gradients, make_learner, observing

SMALL = {"image_channels": (3, 4), "image_features": 5}
SIZES = Sizes(
    observation=2, action=3, discrete=True, privileged=2, observed=True,
    images=((1, 8, 9), (3, 8, 8)),
)  # fmt: skip
BLIND = SIZES._replace(observation=0)


def image_batch(sizes: Sizes, seed: int = 0) -> Batch:
    plain = batch(sizes, seed=seed)
    g = torch.Generator().manual_seed(seed)
    observed = plain.observation.observed
    shape = (*observed.shape, sizes.pixels)
    images = torch.randint(0, 256, shape, generator=g, dtype=torch.uint8)
    return observing(plain, images=images * observed[..., None])


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 12, 12), (4, 7, 30), (3, 84, 84)])
def test_any_size_becomes_as_many_features(shape: tuple[int, int, int]) -> None:
    embedder = ImageEmbedder([shape, (1, 8, 8)], (16, 32, 32), 64)
    pixels = shape[0] * shape[1] * shape[2] + 64
    actual = embedder(torch.randint(0, 256, (2, 3, pixels), dtype=torch.uint8))
    assert actual.shape == (2, 3, 128) == (2, 3, embedder.features)
    torch.testing.assert_close(actual[..., :64].mean(-1), torch.zeros(2, 3), atol=1e-5, rtol=0)


def test_each_image_has_its_own_features() -> None:
    embedder = ImageEmbedder(SIZES.images, (3,), 5)
    pixels = torch.randint(0, 256, (1, SIZES.pixels), dtype=torch.uint8)
    other = pixels.clone()
    other[0, 72:] = 255 - other[0, 72:]
    same, changed = (embedder(pixels) - embedder(other)).split(5, -1)
    assert (same == 0).all()
    assert (changed != 0).all()


@pytest.mark.parametrize("encoder", ["vssm+kf", "gru", "memoryless"])
@pytest.mark.parametrize("sizes", [SIZES, BLIND], ids=["beside numbers", "alone"])
def test_images_reach_actor_and_critic_and_learn_there(encoder: str, sizes: Sizes) -> None:
    learner, data = make_learner(sizes, encoder, **SMALL), image_batch(sizes)
    losses, slopes = gradients(learner, data)
    for network in ("actor", "critic"):
        weights = [x for name, x in slopes.items() if name.startswith(f"{network}.network.eyes")]
        assert len(weights) == 16, "two convolutions, a linear layer and a norm for each image"
        assert all(x.isfinite().all() and (x != 0).any() for x in weights)
    dark = observing(data, images=torch.zeros_like(data.observation.images))
    assert (learner.losses_of(dark)[0]["critic_loss"] - losses["critic_loss"]).abs() > 1e-4
    for _ in range(3):
        assert all(x.isfinite() for x in learner.update(data).values())


@pytest.mark.parametrize("encoder", ["vssm+kf", "transformer", "memoryless"])
def test_acting_sees_what_training_sees(encoder: str) -> None:
    learner, data = make_learner(SIZES, encoder, **SMALL), image_batch(SIZES)
    with torch.no_grad():
        trained = learner.actor(read_history(data))
    state, start = learner.initial_state(4), torch.ones(4, dtype=torch.bool)
    for t in range(2):
        features, state = learner.actor.network.step(
            data.observation.map(lambda x, t=t: x[:, t]), data.previous_action[:, t], state,
            reset=start,
        )  # fmt: skip
        start = ~start
        torch.testing.assert_close(
            learner.actor.head(features), trained[:, t], atol=1e-5, rtol=1e-4
        )


def test_a_missing_image_has_no_features() -> None:
    learner = make_learner(SIZES, **SMALL)
    network = learner.actor.network
    pixels = torch.randint(0, 256, (2, SIZES.pixels), dtype=torch.uint8)
    there = torch.tensor([True, False])
    o = network.observation_features(Observation(torch.zeros(2, 2), pixels, there))
    assert o.shape == (2, 2 + 10)
    assert (o[1] == 0).all(), "in the skip connection too"
    assert (o[0, 2:] != 0).all()


def test_what_stands_on_pads_changes_nothing() -> None:
    learner, data = make_learner(SIZES, ent_coef=0.2, **SMALL), image_batch(SIZES)
    images = data.observation.images
    token = torch.arange(images.shape[1]) < data.lengths[:, None]
    other = observing(data, images=torch.where(token[..., None], images, 255).to(torch.uint8))
    (a, slopes), (b, theirs) = gradients(learner, data), gradients(learner, other)
    for name in a:
        torch.testing.assert_close(a[name], b[name])
    for name, x in slopes.items():
        torch.testing.assert_close(x, theirs[name], atol=1e-6, rtol=1e-4)


def test_beliefs_see_the_images() -> None:
    learner, data = make_learner(SIZES, **SMALL), image_batch(SIZES)
    actual = learner.diagnostics(data)
    dark = learner.diagnostics(observing(data, images=torch.zeros_like(data.observation.images)))
    assert actual["train/gain_mean"] != dark["train/gain_mean"]


def test_without_images_nothing_is_new() -> None:
    plain = SIZES._replace(images=())
    names = {name for name, _ in make_learner(plain).actor.named_parameters()}
    assert not any("eyes" in name for name in names)


def test_wrong_images_and_settings_are_refused() -> None:
    learner = make_learner(SIZES, **SMALL)
    with pytest.raises(ValueError, match=r"batch\.observation\.images: got shape None, expected"):
        learner.update(batch(SIZES))
    with pytest.raises(
        ValueError, match=r"observation\.images: got shape None, expected \(1, 264\)"
    ):
        learner.act(
            Observation(torch.zeros(1, 2)), torch.zeros(1, 3), learner.initial_state(1),
            episode_start=torch.ones(1, dtype=torch.bool), explore=False,
        )  # fmt: skip
    with pytest.raises(ValueError, match="image_features: got 0, expected an integer of at least"):
        AgentSettings(image_features=0)
    with pytest.raises(
        ValueError, match=r"image_channels: got \(0,\), expected an integer of at least 1"
    ):
        AgentSettings(image_channels=(0,))
