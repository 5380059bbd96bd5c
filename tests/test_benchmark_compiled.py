"""The plain update that is compiled is ours, and rivals are timed only then."""

import json
import types

import pytest
import torch

from kalmanac._ops import sac_losses
from tests.test_benchmark_jax_sac import CPU, SIZES, ragged_batch, small_learner


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("encoder", ["vssm+kf", "memoryless"])
def test_the_plain_update_of_seeds_side_by_side_is_ours(bench, encoder, discrete):
    sac, peer = bench("compiled_sac"), bench("update_peer")
    sizes = SIZES._replace(discrete=discrete)
    own = {} if encoder == "vssm+kf" else {"encoder": encoder, "encoder_settings": {}}
    for seeds in (1, 2):
        learners = [small_learner(sizes, seed=seed, **own) for seed in range(seeds)]
        batches = [ragged_batch(bench, sizes, 2 * seed) for seed in range(seeds)]
        plain = sac.CompiledSAC(learners, None)
        ours, native = peer.Ours(learners, batches), plain.batch_of(batches)
        off = peer.disagreement(plain, ours, native, learners, batches)
        assert len(off) == 7
        assert max(off.values()) < 1e-3, off
        assert peer.refusal(off, CPU) is None
    assert torch.get_float32_matmul_precision() == "highest"


def test_an_update_that_leads_elsewhere_is_refused(bench):
    sac, peer = bench("compiled_sac"), bench("update_peer")
    batch = ragged_batch(bench)
    plain = sac.CompiledSAC([small_learner()], None)
    others = [small_learner(gamma=0.5)]
    ours, native = peer.Ours(others, [batch]), plain.batch_of([batch])
    off = peer.disagreement(plain, ours, native, others, [batch])
    assert peer.refusal(off, CPU).startswith("REFUSED, actor_loss: ")


@pytest.mark.parametrize("number", [0, 1])
def test_plain_forms_give_what_fused_ones_give(bench, number, monkeypatch):
    script, forms = bench("compiled"), bench("compiled_forms")
    monkeypatch.setattr(sac_losses, "fused", sac_losses.fused)  # a rival switches it off
    makers = forms.forms((script.SMALL, script.SMALL_CONTINUOUS)[number], CPU)
    assert len(makers) == 8 + number
    for name, make in makers.items():
        form = make()
        right = [x.detach().clone() for x in form.ours()]
        assert forms.apart(right, form.rival(lambda plain: plain)()) < 1e-4, name


def test_forms_that_small_updates_do_not_have(bench, monkeypatch):
    """Draws by kernels, which take slopes at all tokens, interpreted; and RMSNorm."""
    script, forms = bench("compiled"), bench("compiled_forms")
    monkeypatch.setattr(sac_losses, "fused", sac_losses.fused)
    some = forms._Numbers(script.SMALL_CONTINUOUS, CPU)
    learner = script.make_learner("vssm+kf", script.SMALL_CONTINUOUS, CPU)
    monkeypatch.setattr(sac_losses, "takes_last_token", lambda reward, actions: True)
    for form in (forms.draws(learner, some), forms.rms_norm(forms.RMSNorm(8), some)):
        right = [x.detach().clone() for x in form.ours()]
        assert forms.apart(right, form.rival(lambda plain: plain)()) < 1e-6


@pytest.mark.slow
def test_a_quick_run_traces_times_and_judges(bench, tmp_path, capsys):
    script, out = bench("compiled"), tmp_path / "compiled.json"
    modes = ["eager backend", "plain PyTorch, nn.GRU"]
    call = ["--quick", "--modes", *modes, "--encoders", "memoryless", "--seeds", "2"]
    assert script.main([*call, "--jobs=2", "--seconds=0.01", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["finished"]
    assert [case["how"] for case in found["cases"]] == ["ours", *modes] * 2
    for case in found["cases"]:
        assert case["found"]["per_second"] > 0
        assert case["found"]["start_up"] > 0
    assert len(found["verdicts"]) == 2
    assert "1.3 × expected" in capsys.readouterr().out


def test_what_the_budget_does_not_allow_is_said(bench, tmp_path, monkeypatch, capsys):
    script, out = bench("compiled"), tmp_path / "compiled.json"
    call = ["--quick", "--encoders", "memoryless", "--seeds", "1", "--budget=0"]
    assert script.main([*call, "--out", str(out)]) == 0
    cases = json.loads(out.read_text())["cases"]
    assert {case["found"]["why_not"] for case in cases} == {"not begun within the budget"}


def test_a_verdict_names_the_best_rival(bench):
    script = bench("compiled")

    def case(how, speed):
        return types.SimpleNamespace(
            how=how, task="t", what="e", seeds=5, found={"per_second": speed}
        )

    cases = [case("ours", 130.0), case("reduce-overhead", 50.0), case("default, captured", 100.0)]
    (line,) = script.verdicts(cases)
    assert line.startswith("t, e, 5 seeds: ours 130/s, default, captured 100: 1.30 ×")
    assert line.endswith("stays)")
    cases[0].found["per_second"] = 129.0
    assert script.verdicts(cases)[0].endswith("goes)")
