from kalmanac._suites.latent_rollouts import runs


def test_two_agents_with_two_channels():
    found = list(runs())
    assert {run.agent for run in found} == {"vssm", "vssm+kf"}
    assert {run.encoder_settings["d_state"] for run in found} == {2}
