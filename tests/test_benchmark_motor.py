"""The motor's table and picture come from one command."""

import json

import pytest

from kalmanac._lab.run import run
from kalmanac._suites.dropout import settings

SHORT = {
    "total_steps": 400, "learning_starts": 200, "update_to_data": 0.02, "batch_size": 4,
    "context_length": 8, "num_envs": 2, "eval_every": 400, "eval_episodes": 2,
    "actor_hidden": (8,), "critic_hidden": (8,),
}  # fmt: skip


@pytest.mark.slow
def test_agents_stand_beside_the_engineer_s_controllers(bench, tmp_path, capsys, monkeypatch):
    motor = bench("motor")
    monkeypatch.setattr(motor, "CHOICES", (1.5, 4.0))
    monkeypatch.setattr(motor, "FIT_EPISODES", 2)
    folders = []
    for agent, rate, told in (("vssm+kf", 0.5, True), ("gru", 0.0, True), ("oracle", 0.0, True)):
        experiment = settings(agent, dropout=rate, told=told).changed(SHORT)
        folders.append(str(tmp_path / agent))
        run(experiment, folders[-1], device="cpu", events=False)
    own = {"env": motor.FILTERED, "noise": 0.0, "delay": 0, "privileged_critic": False}
    for name, changes in (
        ("behind", settings("memoryless", dropout=0.0).changed({**SHORT, **own})),
        ("plain", settings("vssm+kf").changed({**SHORT, "privileged_critic": False})),
    ):
        folders.append(str(tmp_path / name))
        run(changes, folders[-1], device="cpu", events=False)
    out = tmp_path / "found"
    words = [*folders, "--episodes", "2", "--tuning-episodes", "1", "--out", str(out)]
    assert motor.main(words) == 0
    said = capsys.readouterr().out
    found = json.loads((out / "motor.json").read_text())
    rows = found["rows"]
    assert rows["vssm+kf, told"].keys() == {"0.5"}
    assert rows["gru, told"] == rows["gru, not told"]
    assert rows["memoryless behind the exact filter"].keys() == {"0.5"}
    assert rows["vssm+kf, told, critic sees readings alone"].keys() == {"0.5"}
    assert rows["oracle"].keys() == {"0", "0.2", "0.5"}
    assert len([name for name in rows if name.startswith("PI")]) == 6
    assert "PI behind the exact filter, best a" in said
    assert found["tuning"]["found"]["PI, not told"]["0.5"]["best"] in (1.5, 4.0)
    assert found["gains"]["4"]["current"] == 0.75
    assert (out / "motor.png").stat().st_size > 20_000
    filtered = rows["PI behind the exact filter, best a"]["0.5"]["return"][0]
    assert rows["PI, not told, best a"]["0.5"]["return"][0] < filtered < 0
