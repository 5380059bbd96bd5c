"""Candidates for the heads of several seeds compute what PyTorch does."""

import torch

CPU = torch.device("cpu")


def test_every_kind_of_candidate_is_near_pytorch(bench, monkeypatch):
    """With interpreted kernels and small sizes; one of each kind."""
    heads = bench("heads")
    monkeypatch.setattr(heads, "ROWS", 40)
    monkeypatch.setattr(heads, "WIDTHS", (24, 32, 32, 5))
    kinds = {(c.part, c.way, c.turned): c for c in heads.candidates()}
    assert len(kinds) == 6 + 3 + 2
    truth = heads.make_problem(heads.TWINS, CPU)
    for c in kinds.values():
        far = heads.off(c, heads.make_run(c, 1, CPU)(), truth)
        assert far <= 1e-5, c.name  # interpreted, they do not round
    two = heads.make_run(kinds["forward", "branches", False], 2, CPU)()
    assert len(two) == 2 * 3


def test_the_table_has_the_fastest_first_and_names_who_was_refused(bench, capsys):
    heads = bench("heads")
    rows = [
        {"name": "forward, slow", "refused": None, "seconds": {1: 2e-5, 5: 4e-5}},
        {"name": "forward, fast", "refused": None, "seconds": {1: 3e-5, 5: 1e-5}},
        {"name": "forward, wrong", "refused": "1.0e+00 off", "seconds": {}},
    ]
    heads._print("forward", rows, [1, 5], 4e14)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["fast", "slow"]
    flop = 2 * heads.TWINS * heads.ROWS * (24 * 256 + 256 * 256 + 256 * 5)
    assert lines[2].split()[1:] == ["30.0", "10.0", f"{flop / 1e-5 / 4e14:.0%}"]
    assert "REFUSED forward, wrong: 1.0e+00 off" in lines[4]
