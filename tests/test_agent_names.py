"""Whoever names an agent gives it the same name."""

import json

import numpy as np
import pytest

from kalmanac._files.run_status import read_status
from kalmanac._lab.experiment import AGENTS, Experiment
from kalmanac._report.groups import make_groups
from kalmanac._report.runs import Run as ReportedRun


@pytest.mark.parametrize(
    ("encoder", "privileged", "name"),
    [
        ("memoryless", True, "oracle"),
        ("memoryless", False, "memoryless"),
        ("gru", True, "gru, privileged"),
        ("gru", False, "gru"),
    ],
)
def test_experiments_lists_and_reports_agree(tmp_path, encoder, privileged, name):
    experiment = Experiment(encoder=encoder, privileged=privileged)
    (tmp_path / "experiment.json").write_text(json.dumps(experiment.to_data()))
    assert experiment.agent == name
    assert read_status(tmp_path, now=0.0).agent == name
    data = experiment.to_data()
    run = ReportedRun("", tmp_path, data, {}, {}, np.array([1]), {"in/normalized": np.ones(1)})
    (group,) = make_groups([run], [])
    assert group.agent == name
    if name in AGENTS:
        assert Experiment().changed({"encoder": name}) == experiment
