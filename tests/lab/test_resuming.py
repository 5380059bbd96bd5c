"""A run that is stopped and resumed leaves the bytes of one that never was."""

import io
import itertools

import pytest

from kalmanac._files.run_reader import checkpoint_steps, read_summary, resumable
from kalmanac._lab.checkpointing import CheckpointFolder
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.run import resume, run
from kalmanac._observation import Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._sac.progress import Progress
from tests.lab.tiny import TINY

DISCRETE = TINY.changed(
    {"encoder": "vssm+kf", "encoder_settings": {"d_state": 4}, "embedding": 6, "total_steps": 120}
)
CONTINUOUS = DISCRETE.changed(
    {"env": "tests.lab.drifting:Drifting", "evaluations": ("in",), "num_envs": 3}
)
GRU = {"encoder": "gru", "encoder_settings": {"d_state": 4}}
KINDS = {
    "discrete": DISCRETE,
    "continuous": CONTINUOUS,
    "gru": CONTINUOUS.changed(
        GRU | {"normalize_observations": True, "normalize_rewards": True, "drawing": "transitions"}
    ),
    "bounded": DISCRETE.changed(
        {"buffer_size": 30, "encoder": "memoryless", "burn_in": 2, "critic_clock": True}
    ),
    "overlap": CONTINUOUS.changed(
        {"overlap": True, "normalize_observations": True, "exploration_correlation": 0.5}
    ),
    "rewards": CONTINUOUS.changed(
        {"previous_reward": True, "normalize_rewards": True, "critic_clock": True}
    ),
    "exploration": CONTINUOUS.changed({"exploration_correlation": 0.9}),
    "oracle": DISCRETE.changed({"encoder": "oracle"}),
    "transformer": CONTINUOUS.changed({"encoder": "transformer", "buffer_size": 40}),
    "images, masks, gaps": CONTINUOUS.changed(
        {
            "env": "tests.envs.kinds:Everything",
            "env_settings": {"missing": True, "masked": True},
            "image_channels": (2,),
            "image_features": 3,
            "normalize_observations": True,
        }
    ),
    "mamba, as before": DISCRETE.changed(
        {"encoder": "mamba", "true_previous_action": False, "average_policy": False}
        | {"actor_objective": "value", "entropy_in_target": False, "adam_betas": (0.8, 0.99)}
    ),
    "bad sensors": CONTINUOUS.changed(
        {"env": "popgym/NoisyPositionOnlyPendulumHard", "noise": 0.1, "action_noise": 0.1}
        | {"dropout": 0.2, "dropout_burst": 3.0, "delay": 1, "frame_repeat": 2}
    ),
    "hidden velocities": CONTINUOUS.changed({"env": "novel/CartPole"}),
    "control": CONTINUOUS.changed({"env": "dmc/reacher-easy", "noise": 0.3, "frame_repeat": 50}),
}


MUTE = {"env": "tests.lab.drifting:Mute", "encoder": "memoryless", "eval_every": 1000}


def after(calls):
    """True from the call of this number on; evaluations ask too, before every step."""
    count = itertools.count(1)
    return lambda: next(count) >= calls


def same_bytes(one, other):
    for name in ("metrics.jsonl", "best.safetensors", "last.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    folders = {}

    def whole(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("truth") / name
            run(KINDS[name], folders[name], events=False, checkpoint_every=10**6)
        return folders[name]

    return whole


QUICK = ("discrete", "gru")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in KINDS if n not in QUICK)]
)
def test_stopped_and_resumed_equals_never_stopped(name, truth, tmp_path):
    folder = tmp_path / "run"
    outcome = run(KINDS[name], folder, events=False, checkpoint_every=17, stop=after(9))
    stops = 0
    while outcome.status == "interrupted":
        assert resumable(folder) == outcome.step
        assert len(checkpoint_steps(folder)) == 2
        stops += 1
        outcome = resume(folder, events=False, checkpoint_every=13, stop=after(3 + 7 * stops))
    assert outcome.status == "finished"
    assert stops >= 2
    same_bytes(truth(name), folder)
    summary = read_summary(folder)
    resumed = summary.pop("resumed")  # not those that were stopped again before their first step
    assert 0 < len(resumed) <= stops
    assert {start["episodes"] for start in resumed} == {"the same"}
    assert summary == read_summary(truth(name))
    assert checkpoint_steps(folder) == [120]


@pytest.mark.slow
def test_a_run_goes_on_in_as_many_processes_as_one_likes(truth, tmp_path):
    folder, name = tmp_path / "run", "bad sensors"
    outcome = run(KINDS[name], folder, events=False, checkpoint_every=17, stop=after(5), workers=3)
    assert outcome.status == "interrupted"
    assert resume(folder, events=False, stop=after(9)).status == "interrupted"
    assert resume(folder, events=False, workers=2).status == "finished"
    same_bytes(truth(name), folder)


def test_environments_that_cannot_tell_their_state_begin_new_episodes(tmp_path):
    mute = CONTINUOUS.changed(MUTE)
    folder, lines = tmp_path / "run", io.StringIO()
    run(mute, folder, events=False, checkpoint_every=20, stop=after(15))
    saved = CheckpointFolder(folder).read(45)
    assert saved.books["open"].any()
    outcome = resume(folder, events=False, progress=Progress(120, lines), stop=after(1))
    assert outcome.step == 48
    assert "the environments cannot tell their states" in lines.getvalue()
    assert read_summary(folder)["resumed"] == [{"step": 45, "episodes": "new"}]
    now = CheckpointFolder(folder).read(48)
    held = Replay(Sizes(2, 1, False), 3)
    CheckpointFolder(folder).restore(now, held)
    assert held.steps == 48
    before, later = ({n for n in x.books["slot"].tolist() if n >= 0} for x in (saved, now))
    assert before, "some had begun"
    assert not before & later, "they have ended"
    assert (now.books["episodes"] - saved.books["episodes"]).item() == 3
    assert resume(folder, events=False).status == "finished"


def test_a_new_episode_after_a_resume_is_none_of_the_first_ones(tmp_path):
    mute = CONTINUOUS.changed(MUTE)
    run(mute, tmp_path / "run", events=False, stop=after(15))
    positions = []
    for step in (0, 45):
        env = training_environment(mute)
        model = make_model(mute, env, "cpu")
        folder = CheckpointFolder(tmp_path / "run")
        checkpoint = folder.read(step)
        folder.restore(checkpoint, model.replay)
        assert model.load_checkpoint_state(checkpoint.run["model"]) is (step == 0)
        next(model.advance(1))
        positions.append(model.env.envs[0].position)
    assert positions[0] != positions[1]


def test_the_schedule_is_no_part_of_the_experiment(tmp_path):
    for name, every in (("a", 7), ("b", 1000)):
        run(TINY, tmp_path / name, events=True, checkpoint_every=every)
    same_bytes(tmp_path / "a", tmp_path / "b")
    assert "checkpoint_every" not in TINY.to_data()
    quiet = TINY.changed({"eval_every": 1000})
    run(quiet, tmp_path / "d", events=False, checkpoint_every=24, stop=after(2))
    resume(tmp_path / "d", events=False, stop=after(20))
    assert checkpoint_steps(tmp_path / "d") == [72, 88], "the schedule is kept"
    with pytest.raises(ValueError, match="checkpoint_every: got 0, expected at least 1"):
        run(TINY, tmp_path / "c", checkpoint_every=0)


def test_events_go_on_too(tmp_path):
    folder = tmp_path / "run"
    run(TINY, folder, checkpoint_every=20, stop=after(15))
    assert resume(folder).status == "finished"
    assert len(list((folder / "events").iterdir())) == 2
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "events"))
    accumulator.Reload()
    steps = [event.step for event in accumulator.Scalars("train/updates")]
    assert steps == sorted(set(steps)), "what came after the checkpoint is hidden"
    assert steps[-1] == 96
