"""The same sweep on a Ray cluster of two nodes, one of which is lost on the way."""

import dataclasses
import threading
import time
from contextlib import suppress

import pytest

from kalmanac._files.run_reader import read_summary, read_timing
from kalmanac._sweep.driving import make_executor
from kalmanac._sweep.record import Record
from tests.lab.tiny import TINY
from tests.sweep.small import FAILING, metrics, planned, sweep_small

ray = pytest.importorskip("ray", reason='needs ray: pip install "kalmanac[ray]"')
RUNS = [
    dataclasses.replace(TINY, total_steps=3_000, eval_every=1_500, log_every=50, seed=seed)
    for seed in range(4)
]


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80_000_000}
    ray_cluster = Cluster(initialize_head=True, head_node_args=small)
    second = ray_cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    ray.init(address=ray_cluster.address, log_to_driver=False)
    yield ray_cluster, second
    ray.shutdown()
    ray_cluster.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning",
                            "ignore::FutureWarning")  # fmt: skip
def test_a_lost_node_costs_no_run_and_the_results_are_those_of_one_machine(
    cluster, tmp_path, capsys
):
    ray_cluster, second = cluster
    plan = planned(tmp_path / "ray", *RUNS, FAILING)
    ended_before = {}

    def lose_a_node():
        while sum(len(read_timing(one.folder)) > 4 for one in plan) < 2:
            time.sleep(0.05)
        for one in plan:
            with suppress(FileNotFoundError):
                if read_summary(one.folder).get("status") == "finished":
                    ended_before[one.folder] = (one.folder / "summary.json").stat().st_mtime_ns
        ray_cluster.remove_node(second, allow_graceful=False)

    thread = threading.Thread(target=lose_a_node, daemon=True)
    thread.start()
    # jobs=None: as many as the cluster has room for
    status = sweep_small(plan, tmp_path / "ray", on="ray", jobs=None, checkpoint_every=250)
    thread.join()
    assert status == 1  # the failing environment's
    output = capsys.readouterr().out
    assert "4 of 5 runs are done" in output
    assert [output.count(f"{one.folder.name} ") for one in plan] == [1] * 5  # each ends once
    (failure,) = Record(tmp_path / "ray").failures().values()
    assert "the motor burnt out" in failure.error
    for folder, stamp in ended_before.items():
        assert (folder / "summary.json").stat().st_mtime_ns == stamp
    resumed = [len(read_summary(one.folder).get("resumed", [])) for one in plan[:4]]
    assert sum(resumed) == 1  # that of the lost node, from its checkpoint
    alone = planned(tmp_path / "local", *RUNS)
    assert sweep_small(alone, tmp_path / "local") == 0
    assert metrics(plan[:4]) == metrics(alone)


def test_a_wrong_share_of_a_gpu_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"gpus_per_job: got 1\.5, expected more"):
        make_executor(Record(tmp_path), on="ray", gpus_per_job=1.5)


def test_an_address_where_nobody_answers_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"ray_address: got 127\.0\.0\.1:1, expected a cluster"):
        make_executor(Record(tmp_path), on="ray", ray_address="127.0.0.1:1")
