"""Policies that are asked at once answer what each answers alone, from a recorded graph, too.

Where there is no GPU, a tape stands for CUDA's graphs (`tests/tape.py`).
"""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch.utils._python_dispatch import TorchDispatchMode

from kalmanac._encoders.registry import ENCODERS
from kalmanac._envs.best_arm import BestArmVector
from kalmanac._observation import Observation
from kalmanac._ops import graphed_call
from kalmanac._ops.graphed_call import WARM_UP, GraphedCall
from kalmanac._sac import loop, normalization, policy
from kalmanac._sac.loop import TrainingLoop
from kalmanac._sac.policy import Asking, Question
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import small, wandering
from tests.tape import on_tape


class Plain(TorchDispatchMode):
    """Inside, networks run as operators of PyTorch, which a tape can see."""

    def __torch_dispatch__(self, work, types, given=(), named=None):
        return work(*given, **(named or {}))


@pytest.fixture
def tapes(monkeypatch):
    """Recordings of acting; updates stay eager."""
    made = on_tape(monkeypatch)
    monkeypatch.setattr(policy, "can_record", lambda device: True)
    monkeypatch.setattr(normalization, "watched", lambda: False)  # a recording is no trace
    with Plain():
        yield made


def questions(models, states, step):
    """Something else to see for each, at every step."""
    asked = []
    for number, (model, state) in enumerate(zip(models, states, strict=True)):
        rng = np.random.default_rng([number, step])
        n = 2 + number
        seen = Observation(
            rng.standard_normal((n, 3)).astype(np.float32), observed=rng.random(n) < 0.8
        )
        starts = rng.random(n) < (0.2 if step else 2)
        rng_of_model = None if number == 2 else model.learner.acting
        noise = rng.standard_normal((n, 2)).astype(np.float32) if number == 1 else None
        asked.append(Question(model.policy, seen, starts, state, rng_of_model, noise))
    return asked


def actions_of(models, asking, steps=12):
    """The actions of all, with statistics that move and a memory that is once replaced."""
    states = [model.policy.start(2 + number) for number, model in enumerate(models)]
    found = []
    for step in range(steps):
        asked = questions(models, states, step)
        for model, one in zip(models, asked, strict=True):
            model.policy.normalizer.update(one.observation.vector)
        pending = asking(asked)
        found.append([one.action.array().copy() for one in pending])
        states = [one.state for one in pending]
        if step == 8:
            action = found[-1][1] * 0.5
            states[1] = models[1].policy.replace_action(action, states[1])
    return found


def three(encoder, device="cpu"):
    how = {"normalize_observations": True, "device": device}
    models = [small(encoder, wandering(2 + i), seed=i, **how) for i in range(3)]
    for model in models:
        model._attached()
    return models


def one_by_one(asked):
    return [Asking()([one])[0] for one in asked]


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("encoder", ["vssm+kf", "gru", "memoryless"])
def test_a_recording_of_several_answers_as_each_does_alone(tapes, encoder, carried, monkeypatch):
    asking = Asking(carried=carried)
    found = actions_of(three(encoder), asking)
    assert [tape.replays for tape in tapes] == [12 - WARM_UP], "one graph for all, and replayed"
    monkeypatch.setattr(policy, "can_record", lambda device: False)
    truth = actions_of(three(encoder), one_by_one)
    for step, (own, others) in enumerate(zip(truth, found, strict=True)):
        for x, y in zip(own, others, strict=True):
            np.testing.assert_array_equal(x, y, str(step))


def tensors(state):
    return [state.previous_action, *state.encoder]


def test_a_memory_that_is_not_carried_stays_as_it_was(tapes):
    (model, *_), asking = three("vssm+kf"), Asking()
    state = model.policy.start(2)
    for step in range(WARM_UP + 3):
        (pending,) = asking(questions([model], [state], step))
        kept = [x.clone() for x in tensors(pending.state)]
        asking(questions([model], [pending.state], step + 1))
        for x, y in zip(kept, tensors(pending.state), strict=True):
            assert torch.equal(x, y)
        state = pending.state


def test_a_memory_may_move_from_one_place_to_another(tapes):
    """As in an encoder of one's own that keeps the inputs of the last steps."""

    def moved(inputs):
        new, last, before = inputs
        return [new + before, new.clone(), last[:]]

    call = GraphedCall(moved, [], torch.device("cpu"), carried=True)
    memory = [torch.zeros(2), torch.zeros(2)]
    for step in range(WARM_UP + 5):
        shown = torch.full((2,), float(step))
        answer, *memory = call([shown, *memory])
        assert answer.tolist() == [step + max(step - 2, 0)] * 2
        assert [x.tolist() for x in memory] == [[step] * 2, [max(step - 1, 0)] * 2]
    assert [tape.replays for tape in tapes] == [5]


def stored(models):
    return [
        [(episode.action, episode.reward) for episode in model.replay.stored_episodes()]
        for model in models
    ]


def trained(together, monkeypatch, encoder, **how) -> list[RecurrentSAC]:
    """Three seeds, asked at once or one after the other."""
    with monkeypatch.context() if not together else nullcontext() as patch:
        if patch is not None:
            patch.setattr(TrainingLoop, "_ask_together", lambda self: None)
        models = [
            small(encoder, wandering(3, how.get("mode", AutoresetMode.SAME_STEP)), seed=seed,
                  **{key: x for key, x in how.items() if key != "mode"})
            for seed in range(3)
        ]  # fmt: skip
        one = TrainingLoop([model.member(75) for model in models])
        one.run()
        assert not one.failures
    return models


def the_same(some, others):
    for own, other in zip(stored(some), stored(others), strict=True):
        assert len(own) == len(other) > 0
        for episode, again in zip(own, other, strict=True):
            for x, y in zip(episode, again, strict=True):
                np.testing.assert_array_equal(x, y)
    for own, other in zip(some, others, strict=True):
        for name, x in own.learner.state_dict().items():
            assert torch.equal(x, other.learner.state_dict()[name]), name


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_seeds_that_are_asked_at_once_train_as_they_do_alone(tapes, monkeypatch, mode, overlap):
    monkeypatch.setattr(loop.TrainingLoop, "_updates", _one_by_one_updates)
    monkeypatch.setattr(loop, "can_record", lambda device: True)
    how = {"mode": mode, "overlap": overlap, "update_to_data": 0.1}
    together = trained(True, monkeypatch, "vssm+kf", **how)
    recorded = [tape.replays for tape in tapes]
    assert max(recorded, default=0) > 10
    monkeypatch.setattr(policy, "can_record", graphed_call.can_record)
    the_same(together, trained(False, monkeypatch, "vssm+kf", **how))


def test_what_a_checkpoint_holds_of_the_memory_stays_as_it_was(tapes):
    env = BestArmVector(3, horizon=50)
    training = small("vssm+kf", env, learning_starts=0, update_to_data=0.0)._attached()
    for _ in range(WARM_UP + 2):
        training.collect()
    kept = training.state_dict()["episodes"]
    before = [x.clone() for x in kept["memory"]]
    training.collect()
    after = training.state_dict()["episodes"]["memory"]
    for x, y, z in zip(before, kept["memory"], after, strict=True):
        assert torch.equal(x, y)
        assert not torch.equal(x, z)


def _one_by_one_updates(self, which, due):
    return [(i, self.members[i].training.update()) for i in which]


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_on_a_gpu_a_common_graph_answers_as_graphs_of_each(encoder):
    truth, found = (
        actions_of(three(encoder, "cuda"), asking)
        for asking in (_each_by_its_own(), Asking(carried=True))
    )
    for own, others in zip(truth, found, strict=True):
        for x, y in zip(own, others, strict=True):
            np.testing.assert_array_equal(x, y)


def _each_by_its_own():
    asking = [Asking() for _ in range(3)]
    return lambda asked: [one([q])[0] for one, q in zip(asking, asked, strict=True)]


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", [False, True])
def test_on_a_gpu_seeds_that_are_asked_at_once_train_as_they_do_alone(monkeypatch, overlap):
    how = {"overlap": overlap, "device": "cuda"}
    together = trained(True, monkeypatch, "vssm+kf", **how)
    the_same(together, trained(False, monkeypatch, "vssm+kf", **how))


def test_a_question_that_fails_is_a_failure_of_all_that_were_asked(monkeypatch):
    models = [small("gru", BestArmVector(2, horizon=5), seed=seed) for seed in range(2)]
    one = TrainingLoop([model.member(20) for model in models])

    def fails(questions):
        assert len(questions) == 2
        raise RuntimeError("no luck")

    monkeypatch.setattr(loop, "can_record", lambda device: True)
    monkeypatch.setattr(one, "_asking", fails)
    one.run()
    assert {number: str(error) for number, error in one.failures.items()} == {
        0: "no luck", 1: "no luck"
    }  # fmt: skip
