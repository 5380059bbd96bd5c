"""A setting is declared in one place, and known everywhere else."""

import dataclasses
import hashlib
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kalmanac._files.run_folder import FolderTakenError, refuse_taken
from kalmanac._lab.experiment import Experiment
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._search.study import describe
from kalmanac._settings import CHANGEABLE, EARLIER, AllSettings, SACSettings

OLDEST = 39  # settings that the descriptions of all runs name, the oldest ones' too


def test_a_newer_setting_says_what_runs_did_before_it():
    unmarked = [x.name for x in dataclasses.fields(AllSettings) if x.name not in EARLIER]
    assert len(unmarked) == OLDEST, "a new setting is marked `Later`, for runs that do not name it"


@pytest.mark.parametrize("run", ["best-arm", "interrupted", "seeing", "track"])
def test_descriptions_that_were_written_before_keep_their_bytes_and_their_hash(run):
    """But for lines of settings that are gone. Folder names carry the hash."""
    text = Path("tests/data/before", run, "experiment.json").read_text()
    experiment = Experiment.from_json(text)
    assert experiment.to_json() + "\n" == text.replace('  "bfloat16_heads": false,\n', "")
    sorted_text = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(sorted_text.encode()).hexdigest().startswith(experiment.hash)
    assert json.loads(describe([], experiment))["experiment"] == json.loads(text)  # of a search


def test_a_folder_of_before_a_setting_went_holds_the_same_experiment(tmp_path):
    folder = Path(shutil.copytree("tests/data/before/interrupted", tmp_path / "run"))
    experiment = Experiment.from_json((folder / "experiment.json").read_text())
    refuse_taken(folder, experiment.to_data(), overwrite="unfinished")
    with pytest.raises(FolderTakenError, match="another experiment"):
        refuse_taken(folder, experiment.changed({"seed": 5}).to_data(), overwrite="unfinished")


def test_the_agent_takes_every_setting_by_name_with_its_default():
    parameters = inspect.signature(RecurrentSAC).parameters
    assert list(parameters)[:2] == ["encoder", "env"]
    for entry in dataclasses.fields(SACSettings):
        if entry.default is not dataclasses.MISSING:
            assert parameters[entry.name].default == entry.default
    assert set(parameters) - {entry.name for entry in dataclasses.fields(SACSettings)} == {
        "env", "seed", "device", "verbose", "tensorboard_log",
    }  # fmt: skip
    model = RecurrentSAC("gru", tau=1, actor_hidden=[8])
    assert model.settings == AgentSettings("gru", tau=1.0, actor_hidden=(8,))


@pytest.mark.parametrize("kind", [RecurrentSAC, SACSettings, Experiment])
def test_help_shows_plain_types(kind):
    words = str(inspect.signature(kind))
    assert "gamma: float = 0.99, " in words
    assert "max_grad_norm: float | None = None, " in words
    assert "Annotated" not in words


def test_an_argument_that_does_not_exist_is_refused_with_the_nearest_one():
    with pytest.raises(TypeError, match=r"^argument: got 'taau'; did you mean 'tau'\?$"):
        RecurrentSAC("gru", taau=0.1)
    with pytest.raises(TypeError, match=r"^argument: got 'lr'; did you mean 'learning_rate'\?$"):
        RecurrentSAC(lr=0.1)
    with pytest.raises(TypeError, match="too many positional arguments"):
        RecurrentSAC("gru", None, 0.1)


def test_a_loaded_model_keeps_what_decides_its_networks():
    assert {"learning_rate", "tau", "gamma", "batch_size", "graph"} <= set(CHANGEABLE)
    kept = {"encoder", "embedding", "actor_hidden", "critic_hidden", "previous_action"}
    assert not kept & set(CHANGEABLE)


def test_settings_need_no_torch():
    code = "import kalmanac._settings, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_norm_that_clips_nothing_and_no_settings_of_the_encoder_are_fine():
    from kalmanac import Experiment, RecurrentSAC

    assert Experiment(max_grad_norm=float("inf")).max_grad_norm == float("inf")
    assert RecurrentSAC(encoder_settings=None).settings.encoder_settings == {}
