from kalmanac._suites.dmc import runs as benchmark
from kalmanac._suites.dmc_design import runs


def test_the_design_ablation_has_four_arms_and_the_scale_to_divide_by():
    found = list(runs())
    arms = {tuple(run.encoder_settings) for run in found if run.agent == "vssm+kf"}
    assert arms == {
        ("norm",), ("norm", "input_process_noise"), ("norm", "variance_feature"),
        ("norm", "input_process_noise", "variance_feature"),
    }  # fmt: skip
    assert {run.label for run in found} == {""}  # figures keep labels apart
    theirs = {run.hash for run in benchmark()}
    shared = {(run.agent, len(run.encoder_settings)) for run in found if run.hash in theirs}
    assert shared == {("vssm+kf", 1), ("oracle", 0)}
