"""Trainings in lockstep compute what each computes alone; one that fails leaves the others."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from kalmanac._envs.best_arm import BestArmVector
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.loop import TrainingLoop
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import small, wandering


def make_model(
    seed: int, mode: AutoresetMode = AutoresetMode.SAME_STEP, *, overlap: bool = False
) -> RecurrentSAC:
    how = {"overlap": overlap, "exploration_correlation": 0.5 if overlap else 0.0}
    return small("vssm+kf", wandering(3, mode), seed=seed, **how)


class Watcher(Callback):
    """Keeps what it is told; raises, stops or is interrupted at a step."""

    def __init__(self, at: int = 10**9, error: BaseException | None = None) -> None:
        self.at, self.error = at, error
        self.losses: list[float] = []
        self.ended = 0

    def on_update(self, model, metrics):
        self.losses.append(metrics["train/critic_loss"].item())

    def on_step(self, model):
        if model.num_timesteps >= self.at:
            if self.error is not None:
                raise self.error
            return False
        return True

    def on_end(self, model):
        self.ended += 1


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_each_learns_what_it_learns_alone(mode: AutoresetMode, overlap: bool) -> None:
    watchers = [Watcher(), Watcher()]
    models = [make_model(seed, mode, overlap=overlap) for seed in (3, 4)]
    loop = TrainingLoop([m.member(60, w) for m, w in zip(models, watchers, strict=True)])
    loop.run()
    assert not loop.failures
    for seed, model, watcher in zip((3, 4), models, watchers, strict=True):
        alone, own = make_model(seed, mode, overlap=overlap), Watcher()
        alone.learn(60, own)
        assert own.losses == watcher.losses
        assert len(own.losses) > 30
        assert watcher.ended == 1
        for name, x in alone.learner.state_dict().items():
            assert torch.equal(x, model.learner.state_dict()[name]), name
    assert watchers[0].losses != watchers[1].losses


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, GeneratorExit])
def test_one_that_fails_does_not_take_the_others_down(kind: type[BaseException]) -> None:
    broken, stopped, whole = Watcher(30, kind("no luck")), Watcher(36), Watcher()
    models = [make_model(seed) for seed in range(3)]
    members = [m.member(60, w) for m, w in zip(models, (broken, stopped, whole), strict=True)]
    loop = TrainingLoop(members)
    loop.run()
    assert list(loop.failures) == [0]
    assert str(loop.failures[0]) == "no luck"
    assert [m.num_timesteps for m in models] == [30, 36, 60]
    assert [w.ended for w in (broken, stopped, whole)] == [1, 1, 1]
    alone, own = make_model(2), Watcher()
    alone.learn(60, own)
    assert own.losses == whole.losses


def test_an_interrupt_ends_all_of_them_in_good_order() -> None:
    watchers = [Watcher(), Watcher(30, KeyboardInterrupt())]
    models = [make_model(seed) for seed in range(2)]
    loop = TrainingLoop([m.member(60, w) for m, w in zip(models, watchers, strict=True)])
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert [w.ended for w in watchers] == [1, 1]


def test_an_interrupt_in_the_end_of_one_ends_the_others_too() -> None:
    class Late(Watcher):
        def on_end(self, model):
            super().on_end(model)
            raise KeyboardInterrupt

    endings, watchers = [], [Late(30), Watcher()]
    models = [make_model(seed) for seed in range(2)]
    members = [m.member(60, w) for m, w in zip(models, watchers, strict=True)]
    with pytest.raises(KeyboardInterrupt):
        TrainingLoop(members, lambda *of_one: endings.append(of_one)).run()
    assert [w.ended for w in watchers] == [1, 1]
    assert endings == [(0, None, True), (1, None, True)]
    assert models[1].num_timesteps == 30


class OnGpu:
    """A member on a GPU that is not there; its updates, one or more, are due in the last step."""

    def __init__(self, steps: int, due: int = 1) -> None:
        self.due, self.left, self.ended, self.metrics, self.threads = due, steps, 0, [], None
        device = torch.device("cuda")
        self.training = SimpleNamespace(
            policy=SimpleNamespace(device=device), settings=AgentSettings(),
            update=lambda: {"by": "its own graph"}, question=lambda: None,
        )  # fmt: skip

    unfinished = property(lambda self: self.left > 0)

    def begin(self) -> None:
        pass

    def ask(self) -> int:
        return 0

    def collect(self) -> int:
        return self.due * (self.left == 1)

    def updated(self, metrics) -> None:
        self.metrics.append(metrics)

    def settle(self) -> None:
        self.left -= 1

    def end(self) -> None:
        self.ended += 1


def test_one_alone_updates_by_its_own_graph_which_outlives_the_loop(monkeypatch) -> None:
    monkeypatch.delattr("kalmanac._sac.loop.GraphedUpdates")
    members = [OnGpu(2), OnGpu(1)]
    for member in members:
        TrainingLoop([member]).run()
    assert [member.metrics for member in members] == [[{"by": "its own graph"}]] * 2


def test_several_update_as_branches_of_one_graph(monkeypatch) -> None:
    recorded = []

    def captured(branches, device, record):
        recorded.append(branches)
        return lambda rounds: [{"branch": i} for i in range(len(branches))] * rounds

    monkeypatch.setattr("kalmanac._sac.loop.GraphedUpdates", captured)
    members = [OnGpu(2), OnGpu(2), OnGpu(1)]  # the last one is ahead, and goes alone
    loop = TrainingLoop(members)
    loop.run()
    assert not loop.failures
    assert recorded == [[members[0].training, members[1].training]]
    metrics = [member.metrics for member in members]
    assert metrics == [[{"branch": 0}], [{"branch": 1}], [{"by": "its own graph"}]]
    assert loop._graphed_updates is None, "its memory is free as soon as one of them has left"


def test_updates_that_are_due_for_all_run_in_rounds_of_one_graph(monkeypatch) -> None:
    asked = []

    class Graphed:
        def __init__(self, branches, device, record) -> None:
            self.made = 0

        def __call__(self, rounds):
            asked.append(rounds)
            self.made += rounds
            numbers = range(self.made - rounds, self.made)
            return [{"update": n, "branch": i} for n in numbers for i in range(2)]

    monkeypatch.setattr("kalmanac._sac.loop.GraphedUpdates", Graphed)
    members = [OnGpu(1, 14), OnGpu(1, 16)]
    TrainingLoop(members).run()
    assert asked == [8, 4, 2]
    numbers = [[metrics.get("update") for metrics in member.metrics] for member in members]
    assert numbers == [[*range(14)], [*range(14), None, None]], "the rest by its own graph"
    assert [metrics["branch"] for metrics in members[1].metrics[:14]] == [1] * 14


def test_who_fails_in_the_first_of_several_rounds_leaves_once(monkeypatch) -> None:
    class Refusing(OnGpu):
        def updated(self, metrics) -> None:
            super().updated(metrics)
            raise ValueError("enough")

    def captured(branches, device, record):
        return lambda rounds: [{"branch": i} for i in range(len(branches))] * rounds

    monkeypatch.setattr("kalmanac._sac.loop.GraphedUpdates", captured)
    members = [Refusing(1, 4), OnGpu(1, 4)]
    loop = TrainingLoop(members)
    loop.run()
    assert list(loop.failures) == [0]
    assert [member.ended for member in members] == [1, 1]
    assert [len(member.metrics) for member in members] == [1, 4]


def test_a_graph_that_fails_ends_all_whose_updates_it_holds(monkeypatch) -> None:
    """Nobody can tell whose the failure is; a member that has ended before stays as it ended."""

    def no_room(branches, device, record):
        raise RuntimeError("no room")

    monkeypatch.setattr("kalmanac._sac.loop.GraphedUpdates", no_room)
    endings = []
    members = [OnGpu(0), OnGpu(2), OnGpu(2)]
    loop = TrainingLoop(members, lambda *of_one: endings.append(of_one))
    loop.run()
    assert [member.ended for member in members] == [1, 1, 1]
    assert list(loop.failures) == [1, 2]
    assert [(i, str(error), stopped) for i, error, stopped in endings] == [
        (0, "None", False), (1, "no room", False), (2, "no room", False),
    ]  # fmt: skip


def test_all_policies_are_asked_before_the_first_answer_is_waited_for() -> None:
    moves: list[tuple[str, int]] = []
    models = [make_model(seed) for seed in range(3)]
    for i, model in enumerate(models):
        training = model._training
        ask, take = training._asking, training.collector.take
        training._asking = lambda asked, i=i, ask=ask: moves.append(("ask", i)) or ask(asked)
        training.collector.take = lambda a, i=i, take=take: moves.append(("take", i)) or take(a)
    TrainingLoop([m.member(6) for m in models]).run()
    a_step = [("ask", 0), ("ask", 1), ("ask", 2), ("take", 0), ("take", 1), ("take", 2)]
    assert moves == a_step * 2


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_on_a_gpu_seeds_as_branches_learn_what_they_learn_alone(
    normalize: bool, overlap: bool
) -> None:
    def agent(seed: int) -> RecurrentSAC:
        settings = {"seed": seed, "device": "cuda", "normalize_observations": normalize}
        return small("vssm+kf", BestArmVector(8, horizon=20), overlap=overlap, **settings)

    watchers = [Watcher(), Watcher(), Watcher()]
    models = [agent(seed) for seed in range(3)]
    TrainingLoop([m.member(480, w) for m, w in zip(models, watchers, strict=True)]).run()
    for seed, watcher in enumerate(watchers):
        alone, own = agent(seed), Watcher()
        alone.learn(480, own)
        assert len(own.losses) == len(watcher.losses) > 400
        np.testing.assert_allclose(own.losses[:60], watcher.losses[:60], rtol=1e-3, atol=1e-5)
