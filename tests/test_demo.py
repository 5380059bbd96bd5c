"""The demo filters what the model drew: its numbers have known right answers."""

import sys

import pytest
import torch

pytest.importorskip("matplotlib")

from kalmanac import demo

pytestmark = pytest.mark.usefixtures("compiled_only")


@pytest.fixture(scope="module")
def filtered():
    return demo.simulate_and_filter()


def test_the_band_covers_what_a_two_sigma_band_must(filtered):
    assert demo.score(filtered).coverage == pytest.approx(0.9545, abs=0.008)


def test_filtering_helps(filtered):
    scores = demo.score(filtered)
    assert scores.rmse_filter < 0.6 * scores.rmse_readings


def test_the_picture_shows_what_its_labels_say(filtered):
    std, gain = filtered.std[0], filtered.gain[0]
    missing, noisy = demo.MISSING, demo.NOISY
    assert torch.all(gain[missing] == 0)
    assert torch.all(std[missing][1:] > std[missing][:-1])  # the band grows
    assert gain[noisy].max() < gain[: noisy.start].min()  # smaller gain
    assert std[noisy.stop - 1] > std[noisy.start - 1]  # wider band
    assert gain[demo.RESET] > 1.5 * gain[demo.RESET - 1]  # a fresh start trusts its reading


def test_the_verb_writes_a_small_png_and_prints_numbers_and_path(tmp_path, capsys):
    folder = tmp_path / "new" / "folder"
    assert demo.main(["--out", str(folder)]) == 0
    picture = folder / demo.FILE
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert 20_000 < len(data) < 200_000
    error, coverage, path = capsys.readouterr().out.splitlines()
    assert "RMSE" in error
    assert "±2σ" in coverage
    assert path == str(picture)


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert demo.main(["--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "kalmanac demo: needs matplotlib: pip install kalmanac[report]\n"
    )


def test_a_folder_that_cannot_be_made_gets_one_line(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert demo.main(["--out", str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
