"""Callbacks with SB3's names: functions, checkpoints, evaluations, an end at a return."""

import numpy as np
import pytest
import torch

from kalmanac._sac.callbacks import Callback, Callbacks, CheckpointCallback
from kalmanac._sac.cuda_graph import Row
from kalmanac._sac.eval_callback import EvalCallback, StopTrainingOnRewardThreshold
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.counting import Counting
from tests.sac.small import Listener, small, wandering


def test_a_function_is_called_after_every_vector_step_and_false_ends_the_training():
    steps, listener = [], Listener()

    def until_ten(model):
        steps.append(model.num_timesteps)
        return model.num_timesteps < 10

    assert small("memoryless", wandering(2)).learn(40, until_ten).num_timesteps == 10
    assert steps == [2, 4, 6, 8, 10]
    model = small("memoryless", wandering(2)).learn(8, [listener, steps.append])
    assert steps[5:] == [model] * 4, "what it returns is no False"
    assert listener.steps == [2, 4, 6, 8]


@pytest.mark.parametrize("kind", [np.bool_, np.array, torch.tensor])
def test_false_of_numpy_and_of_pytorch_ends_the_training_too(kind):
    model = small("memoryless", wandering(2))
    assert model.learn(40, lambda model: kind(model.num_timesteps < 10)).num_timesteps == 10
    for goes_on in (None, 0, np.float32(0), np.zeros(2, bool)):
        before = model.num_timesteps
        assert model.learn(4, lambda model, x=goes_on: x).num_timesteps == before + 4


def test_functions_of_sb3_are_told_what_ours_are_called_with():
    with pytest.raises(TypeError, match=r"callback: got .*one argument, the model \(SB3 calls"):
        small("memoryless", wandering(2)).learn(8, lambda told, everything: True)
    for wrong in (3, 0.5, [3], [Callback], "often"):
        with pytest.raises(TypeError, match=r"callback: got \w+, expected a Callback or a funct"):
            small("memoryless", wandering(2)).learn(8, wrong)


def test_checkpoints_are_models_and_replays(tmp_path, capsys):
    save = CheckpointCallback(
        20, tmp_path / "a" / "b", name_prefix="try", save_replay_buffer=True, verbose=2
    )
    model = small("memoryless", wandering(3)).learn(50, save)
    names = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert names == [
        "try_21_steps.safetensors",
        "try_42_steps.safetensors",
        "try_replay_buffer_21_steps.replay",
        "try_replay_buffer_42_steps.replay",
    ]
    assert capsys.readouterr().out.count("Saving model") == 4
    loaded = RecurrentSAC.load(tmp_path / "a" / "b" / names[1], wandering(3), device="cpu")
    assert loaded.num_timesteps == 42
    loaded.load_replay_buffer(tmp_path / "a" / "b" / names[3])
    assert loaded.replay.steps == 42
    again = CheckpointCallback(20, tmp_path / "c")
    model.learn(20, again)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["rl_model_60_steps.safetensors"]
    with pytest.raises(ValueError, match="save_freq: got 0, expected at least 1"):
        CheckpointCallback(0, tmp_path)


class Said(Callback):
    """Writes down what it is called with; says stop at the `last` call."""

    def __init__(self, last=99):
        self.calls, self.last = [], last

    def on_start(self, model):
        self.calls.append("start")

    def on_step(self, model):
        self.calls.append(model.num_timesteps)
        return len(self.calls) <= self.last

    def on_end(self, model):
        self.calls.append("end")


def test_evaluations_keep_the_best_model_and_a_file_as_sb3s(tmp_path, capsys):
    best, each = Said(), Said()
    watch = EvalCallback(
        wandering(2), best, each, 3, 20, tmp_path / "log", tmp_path / "best", True, 1
    )
    small("memoryless", wandering(2)).learn(80, watch)
    steps = [step for step, _ in watch.evaluations]
    means = [evaluation.mean_reward for _, evaluation in watch.evaluations]
    assert steps == [20, 40, 60, 80]
    assert each.calls == ["start", *steps, "end"]
    highest = np.maximum.accumulate(means)
    news = [step for i, step in enumerate(steps) if i == 0 or highest[i] > highest[i - 1]]
    assert best.calls == ["start", *news, "end"]
    assert each.parent is best.parent is watch
    assert (watch.best_mean_reward, watch.last_mean_reward) == (max(means), means[-1])
    assert RecurrentSAC.load(tmp_path / "best" / "best_model").num_timesteps == news[-1]
    with np.load(tmp_path / "log" / "evaluations.npz", allow_pickle=False) as found:
        assert found["timesteps"].tolist() == steps
        assert found["results"].shape == found["ep_lengths"].shape == (4, 3)
        assert found["results"].mean(1).tolist() == pytest.approx(means)
        assert "successes" not in found
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"step 20: return {means[0]:.4g} ± ")
    assert len(lines) == 4


def test_a_callback_of_an_evaluation_ends_the_training():
    for place in ("callback_on_new_best", "callback_after_eval"):
        watch = EvalCallback(wandering(2), eval_freq=20, verbose=0, **{place: lambda model: False})
        assert small("memoryless", wandering(2)).learn(80, watch).num_timesteps == 20


def test_training_ends_at_a_return_that_is_enough(capsys):
    enough = StopTrainingOnRewardThreshold(-1e3, verbose=1)
    watch = EvalCallback(wandering(2), enough, eval_freq=20, verbose=0)
    assert small("memoryless", wandering(2)).learn(80, watch).num_timesteps == 20
    assert "step 20: the mean return" in capsys.readouterr().out
    never = StopTrainingOnRewardThreshold(1e3)
    watch = EvalCallback(wandering(2), eval_freq=20, callback_after_eval=never, verbose=0)
    assert small("memoryless", wandering(2)).learn(40, watch).num_timesteps == 40
    with pytest.raises(TypeError, match="expected it as callback_on_new_best of an EvalCallback"):
        small("memoryless", wandering(2)).learn(40, never.__class__(1.0))


def test_wins_are_told_as_successes(tmp_path):
    class Telling(Counting):
        def step(self, action):
            *rest, info = super().step(action)
            win = info.pop("win", None)
            return *rest, info if win is None else info | {"is_success": win}

    model = small("memoryless", Counting((2,)))
    one, other = (evaluate_policy(model, env, 6) for env in (Counting((2,)), Telling((2,))))
    assert one.wins.tolist() == other.wins.tolist() == [True, False, False, True, False, False]
    watch = EvalCallback(
        Counting((2,)), n_eval_episodes=6, eval_freq=4, log_path=tmp_path, verbose=0
    )
    model.learn(8, watch)
    with np.load(tmp_path / "evaluations.npz") as found:
        assert found["successes"].shape == (2, 6)


def test_metrics_are_one_kind_of_thing_however_an_update_was_made():
    kept = []

    class Keeping(Callback):
        def on_update(self, model, metrics):
            kept.append(metrics)

    numbers = {"train/critic_loss": torch.tensor(1.5), "train/q_mean": torch.tensor(-2.0)}
    model = small("memoryless", wandering(2)).learn(20, Keeping())
    model.pretrain(1, callback=Keeping())
    Callbacks(Keeping()).on_update(model, Row({"train/q_mean": 0}, torch.tensor([-2.0])))
    Callbacks(Keeping()).on_update(model, numbers)
    assert {type(metrics) for metrics in kept} == {Row}
    assert dict(kept[-1]) == numbers
    assert repr(kept[-1]) == repr(numbers)
    assert list(dict(kept[0]) | {"own": 1})[-1] == "own"
    with pytest.raises(TypeError, match="does not support item assignment"):
        kept[-1]["own"] = 1
