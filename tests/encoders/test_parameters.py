"""Parameter counts, the paper's 10 % rule, and bad arguments of the table."""

import pytest

from kalmanac._encoders.parameters import (
    BEST_ARM,
    WALKER_RUN,
    count_parameters,
    rule_as_text,
    ten_percent_rule,
)
from kalmanac._encoders.registry import ENCODERS, encoder_settings, make_encoder


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("vssm", {}, 4_497),
        ("vssm+kf", {}, 8_977),
        ("vssm+kf-u", {}, 6_673),
        ("mamba", {}, 2_224),
        ("gru", {}, 58_128),
        ("transformer", {}, 9_616),
        ("transformer", {"feedforward": 128}, 5_392),
        ("memoryless", {}, 0),
        ("vssm+kf", {"norm": True}, 8_977 + 16),
        ("vssm+kf", {"layers": 3}, 3 * 8_977),
        ("vssm+kf", {"variance_feature": True}, 8_977 + 128 * 16),
        ("vssm+kf", {"input_process_noise": True}, 8_977 - 128 + 17 * 128),
    ],
)
def test_counts(name: str, settings: dict[str, int], count: int) -> None:
    assert count_parameters(make_encoder(name, **settings)) == count


def test_agents_of_walker_run_keep_the_rule_except_gru() -> None:
    rows = {row.encoder: row for row in ten_percent_rule(WALKER_RUN)}
    totals = {name: row.agent_parameters for name, row in rows.items()}
    assert totals == {
        "vssm": 245_520,
        "vssm+kf": 254_480,
        "vssm+kf-u": 249_872,
        "mamba": 240_974,
        "gru": 352_782,
        "transformer": 255_758,
    }
    assert [name for name, row in rows.items() if not row.within] == ["gru"]
    assert rows["gru"].ratio == pytest.approx(1.4, abs=0.05)  # the paper: roughly 40 % more


def test_agents_of_best_arm_break_the_rule_and_the_table_says_so() -> None:
    rows = {row.encoder: row for row in ten_percent_rule(BEST_ARM)}
    assert rows["vssm"].agent_parameters == 22_603
    assert rows["vssm+kf"].agent_parameters == 31_563
    assert not rows["vssm+kf"].within
    assert rows["transformer"].encoder_parameters == 5_392
    text = rule_as_text(rows.values())
    (line,) = [line for line in text.splitlines() if line.startswith("vssm+kf ")]
    assert "31,563" in line
    assert line.endswith("NO")


def test_unknown_names_and_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"encoder: got 'kf', expected one of vssm, vssm\+kf"):
        make_encoder("kf")
    with pytest.raises(TypeError, match="window: encoder 'gru' has no such setting, expected d_m"):
        make_encoder("gru", window=4)


@pytest.mark.parametrize("name", ENCODERS)
def test_every_setting_has_a_default(name: str) -> None:
    settings = encoder_settings(name)
    assert settings["d_model"] == 16
    make_encoder(name, **settings)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("vssm", {"d_state": 0}, "d_state: got 0, expected an integer of at least 1"),
        ("vssm+kf", {"layers": 0}, "layers: got 0"),
        ("vssm+kf", {"r_min": 0.0}, "r_min: got 0.0, expected a number above 0"),
        ("vssm+kf", {"q_min": 2.0}, "q_min: got 2.0, expected a number between"),
        ("transformer", {"heads": 3}, "heads: got 3, expected a divisor of d_model = 16"),
        ("s5", {"d_state": 5}, "d_state: got 5, expected an even number"),
        ("s5", {"step_sizes": (1.0, 0.1)}, "step_sizes: got"),
        ("memoryless", {"d_model": -1}, "d_model: got -1"),
    ],
)
def test_bad_settings_are_refused(name: str, settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_encoder(name, **settings)
