"""A folder with a little of everything that the paper has."""

import pytest

from kalmanac._report.groups import make_groups
from kalmanac._report.runs import read_runs
from tests.report.synthetic import leave_heatmap, write_best_arm, write_dmc, write_popgym


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    seeds = range(2)
    for run in write_best_arm(folder, agents=["vssm+kf", "oracle"], costs=[0.0, 0.1], seeds=seeds):
        leave_heatmap(run, size=5)
    short = {"label": "shortened", "env_settings": {"horizon": 100}, "evaluations": ("in",)}
    write_best_arm(folder, agents=["vssm+kf"], costs=[0.02], seeds=[0], changes=short)
    tasks = ["walker-run", "reacher-easy"]
    write_dmc(folder, tasks=tasks, agents=["vssm+kf", "vssm", "oracle"], seeds=seeds)
    write_dmc(folder, tasks=tasks, agents=["vssm+kf"], seeds=seeds, level=2.0, height=0.4)
    for name in ("input_process_noise", "variance_feature"):
        write_dmc(folder, tasks=tasks, agents=["vssm+kf"], seeds=seeds,
                  encoder_settings={name: True}, height=0.6)  # fmt: skip
    write_dmc(folder, tasks=["quadruped-walk"], agents=["vssm+kf", "memoryless"], seeds=seeds,
              action_noise=0.3)  # fmt: skip
    tasks = ["RepeatFirstMedium", "AutoencodeEasy"]
    write_popgym(folder, tasks=tasks, agents=["vssm+kf", "vssm", "gru"], seeds=seeds)
    for size in (32, 64):
        write_popgym(folder, tasks=tasks[:1], agents=["vssm+kf"], seeds=seeds,
                     encoder_settings={"d_state": size, "norm": True})  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def all_groups(everything):
    return make_groups(read_runs(everything).runs, [])
