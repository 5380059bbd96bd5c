from kalmanac._suites.popgym_ablation import runs


def test_the_ablation_covers_sizes_and_layers_with_a_norm():
    found = list(runs())
    assert len(found) == 4 * 4 * 3 * 5
    assert all(run.encoder_settings["norm"] for run in found)
    pairs = {(run.encoder_settings["d_state"], run.encoder_settings["layers"]) for run in found}
    assert pairs == {(n, layers) for n in (32, 64, 128, 256) for layers in (1, 2, 3)}
