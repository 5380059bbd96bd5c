from kalmanac._suites.dmc import runs as benchmark
from kalmanac._suites.dmc_noise import runs

SIX = {
    "finger-spin", "cheetah-run", "pendulum-swingup", "walker-run", "reacher-easy",
    "point_mass-easy",
}  # fmt: skip


def test_the_noise_ablation_has_four_strengths_and_more_seeds_for_the_pendulum():
    found = list(runs())
    assert {run.env for run in found} == {f"dmc/{task}" for task in SIX}
    of = {
        env: {(run.noise, run.seed) for run in found if run.env == env and run.agent == "vssm"}
        for env in ("dmc/pendulum-swingup", "dmc/walker-run")
    }
    assert of["dmc/pendulum-swingup"] == {(x, s) for x in (0, 0.05, 0.1, 0.2) for s in range(10)}
    assert of["dmc/walker-run"] == {(x, s) for x in (0, 0.15, 0.3, 0.6) for s in range(5)}


def test_oracle_and_the_plain_strength_are_runs_of_the_benchmark():
    theirs = {run.hash for run in benchmark()}
    shared = [run for run in runs() if run.hash in theirs]
    assert len(shared) == 6 * 5 * 4  # tasks, seeds, agents
    assert {run.seed for run in runs() if run.agent == "oracle" and run.hash not in theirs} == {
        5, 6, 7, 8, 9,
    }  # fmt: skip
