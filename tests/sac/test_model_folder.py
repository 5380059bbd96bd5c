"""A folder for sharing: what lies in it, and that it loads."""

import json

import numpy as np
import pytest

from kalmanac._sac.evaluation import Evaluation
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import small, wandering
from tests.sac.test_saving import actions


@pytest.mark.parametrize("policy_alone", [False, True])
def test_a_shared_model_acts_the_same(tmp_path, policy_alone):
    model = small("vssm+kf", wandering(2)).learn(30)
    folder = model.push_to_folder(tmp_path / "agent", policy_alone=policy_alone)
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip
    np.testing.assert_array_equal(actions(RecurrentSAC.load(folder, device="cpu")), actions(model))
    config = json.loads((folder / "config.json").read_text())
    assert config["config"]["encoder"] == "vssm+kf"
    assert config["num_timesteps"] == 30


def test_the_card_tells_the_hub_and_the_reader(tmp_path):
    model = small("gru", wandering(2)).learn(4)
    result = Evaluation(returns=np.array([1.0, 3.0]), lengths=np.array([5, 7]))
    folder = model.push_to_folder(tmp_path, task='my:"Env`', evaluation=result, about="More.\n\n")
    _, head, text = (folder / "README.md").read_text().split("---\n", 2)
    assert "library_name: kalmanac\n" in head
    assert 'name: "my:\\"Env\'"\n' in head
    assert "value: 2.00 +/- 1.00\n" in head
    assert "Return: **2.00 ± 1.00**" in text
    assert "More." in text
    assert "RecurrentSAC.load(snapshot_download(" in text
    without = model.push_to_folder(tmp_path / "b") / "README.md"
    assert "model-index" not in without.read_text()


def test_a_folder_without_a_model_is_said_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected an existing model file or folder"):
        RecurrentSAC.load(tmp_path)
