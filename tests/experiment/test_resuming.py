"""A run that is stopped and resumed leaves the bytes of one that never was."""

import itertools

import pytest

from kalmanac.experiment import resume, run
from kalmanac.runlog import checkpoint_steps, read_summary, resumable
from tests.experiment.tiny import TINY

DISCRETE = TINY.changed(
    {"encoder": "vssm+kf", "encoder_settings": {"d_state": 4}, "embedding": 6, "total_steps": 120}
)
CONTINUOUS = DISCRETE.changed(
    {"env": "tests.experiment.drifting:Drifting", "evaluations": ("in",), "num_envs": 3}
)
GRU = {"encoder": "gru", "encoder_settings": {"d_state": 4}}
KINDS = {
    "discrete": DISCRETE,
    "continuous": CONTINUOUS,
    "gru": CONTINUOUS.changed(GRU | {"normalize_observations": True, "drawing": "transitions"}),
    "bounded": DISCRETE.changed({"buffer_size": 30, "encoder": "memoryless", "burn_in": 2}),
    "oracle": DISCRETE.changed({"encoder": "oracle"}),
    "transformer": CONTINUOUS.changed({"encoder": "transformer", "buffer_size": 40}),
    "mamba": DISCRETE.changed({"encoder": "mamba", "true_previous_action": True}),
}


def after(calls):
    """True from the call of this number on."""
    count = itertools.count(1)
    return lambda: next(count) >= calls


def same_bytes(one, other):
    for name in ("metrics.jsonl", "best.safetensors", "last.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    made = {}

    def whole(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("truth") / name
            run(KINDS[name], made[name], events=False, checkpoint_every=10**6)
        return made[name]

    return whole


@pytest.mark.parametrize("name", KINDS)
def test_stopped_and_resumed_equals_never_stopped(name, truth, tmp_path):
    folder = tmp_path / "run"
    outcome = run(KINDS[name], folder, events=False, checkpoint_every=17, stop=after(5))
    stops = 0
    while outcome.status == "interrupted":
        assert resumable(folder) == outcome.step
        assert len(checkpoint_steps(folder)) == 2
        stops += 1
        outcome = resume(folder, events=False, checkpoint_every=13, stop=after(3 + stops))
    assert outcome.status == "finished"
    assert stops > 2
    same_bytes(truth(name), folder)
    summary = read_summary(folder)
    assert [start["episodes"] for start in summary.pop("resumed")] == ["the same"] * stops
    assert summary == read_summary(truth(name))
    assert not (folder / "checkpoints").exists()
