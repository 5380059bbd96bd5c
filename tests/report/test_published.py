from kalmanac._report.groups import AGENT_NAMES, POPGYM_TASKS
from kalmanac._report.published import BEST, MAMBA, popgym_table


def test_the_table_has_twelve_tasks_and_nine_rows():
    scores = popgym_table().scores
    assert len(scores) == 12
    assert tuple(scores) == POPGYM_TASKS
    assert all(set(row) == {*AGENT_NAMES, BEST} for row in scores.values())


def test_printed_numbers():
    scores = popgym_table().scores
    assert scores["AutoencodeEasy"]["vssm+kf"] == (-0.299, 0.012)
    assert scores["MineSweeperEasy"]["vssm"] == (-0.307, 0.012)
    assert scores["NoisyPositionOnlyPendulumHard"]["gru"] == (0.701, 0.001)
    assert scores["MultiarmedBanditHard"][BEST] == (0.574, 0.049)
    assert scores["RepeatPreviousMedium"]["oracle"] == (1.0, 0.0)
    assert all(
        -1 <= x.mean <= 1 and 0 <= x.error < 0.3 for r in scores.values() for x in r.values()
    )


def test_the_table_does_not_support_the_sentence_on_mamba():
    row = popgym_table().scores["RepeatFirstMedium"]
    assert row["gru"].mean == row["transformer"].mean == 1.0
    assert row["vssm+kf"].mean == 0.726
    assert row["mamba"].mean == 0.575
    for printed in ("0.575", "0.726", "1.000", "do not support"):
        assert printed in MAMBA


def test_the_source_is_named():
    assert "openreview.net/forum?id=rfPns0WJyg" in popgym_table().source
