"""The benchmark on learning from data runs, and says what each return is of."""

import json


def test_all_returns_are_kept(bench, tmp_path, capsys):
    out = tmp_path / "track.json"
    words = [
        "track",
        "--quick",
        "--updates",
        "2",
        "--seeds",
        "1",
        "--first",
        "10",
        "--out",
        str(out),
    ]
    assert bench("offline").main(words) == 0
    rows = json.loads(out.read_text())["rows"]
    whats = ["the data", "its agent", "behavior cloning", "ours", *["then online"] * 4]
    assert [(row["data"], row["what"]) for row in rows] == [
        *((data, what) for data in ("mediocre", "replay") for what in whats),
        *(("mediocre", "its agent goes on") for _ in range(4)),
        *(("trained", what) for what in whats),
    ]
    assert [row["updates"] for row in rows if row["what"] == "ours"] == 3 * [2]
    assert [row["steps"] for row in rows if "steps" in row] == 4 * [8, 16, 24, 32]
    assert {row["seed"] for row in rows} == {10}
    assert "behavior cloning" in capsys.readouterr().out
