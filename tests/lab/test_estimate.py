import sys
import time
from types import SimpleNamespace

import pytest
import torch

from kalmanac._lab.factory import full_batch, make_model, training_environment
from kalmanac._lab.resources import estimate, mean_seconds, update_as_trained
from kalmanac._ops.graphed_call import WARM_UP
from kalmanac._sac.config import AgentSettings
from tests.lab.tiny import TINY


def test_an_estimate_grows_with_the_run_and_is_said_in_one_line():
    short = estimate(TINY, device="cpu", seconds=0.02)
    long = estimate(TINY.changed({"total_steps": 96_000}), device="cpu", seconds=0.02)
    assert 0 < short.seconds < long.seconds / 20
    eager = estimate(TINY.changed({"update_to_data": 500.0}), device="cpu", seconds=0.02)
    assert eager.seconds > 20 * short.seconds
    assert 0.1 < short.memory_gb < 8
    assert str(short._replace(seconds=2460.0, memory_gb=1.26)) == "about 41 min, 1.3 GB"


def test_an_agent_that_sees_rewards_can_be_estimated():
    shown = TINY.changed({"encoder": "gru", "previous_reward": True})
    assert estimate(shown, device="cpu", seconds=0.02).seconds > 0


def test_the_estimate_times_the_update_that_a_training_runs(monkeypatch):
    module = sys.modules[estimate.__module__]
    monkeypatch.setattr(
        module, "GraphedUpdates", lambda work, device, record: (work, device, record)
    )
    cuda, eager = torch.device("cuda"), AgentSettings(tf32=False, graph=False)
    gpu = SimpleNamespace(device=cuda, update=None)
    (work,), device, recorded = update_as_trained(gpu, "batch", AgentSettings())
    assert (work.learner, work.batch, device) == (gpu, "batch", cuda)
    assert work.tf32
    assert recorded
    (work,), _, recorded = update_as_trained(gpu, "batch", eager)
    assert not work.tf32
    assert not recorded
    cpu = make_model(TINY, training_environment(TINY), "cpu").learner
    eager = update_as_trained(cpu, "batch", AgentSettings())
    assert (eager.func, eager.args) == (cpu.update, ("batch",))


def test_the_recording_of_an_update_is_not_timed():
    calls = []

    def work():
        calls.append(None)
        if len(calls) <= WARM_UP + 1:  # the last of them records
            time.sleep(0.05)

    assert mean_seconds(work, torch.device("cpu"), 0.0) < 0.01
    assert len(calls) == WARM_UP + 1 + 3


@pytest.mark.parametrize("encoder", ["memoryless", "gru"])
def test_the_estimate_s_batch_is_one_that_the_agent_learns_from(encoder):
    experiment = TINY.changed({"encoder": encoder, "burn_in": 1})
    model = make_model(experiment, training_environment(experiment), "cpu")
    batch = full_batch(model.learner.sizes, experiment, model.device)
    assert batch.reward.shape == (4, 5)
    assert model.learner.update(batch)["train/critic_loss"].isfinite()
