import io
import re

from kalmanac.sac import ProgressBar
from tests.sac.small import small, wandering


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_into_files():
    stream = io.StringIO()
    model = small("memoryless", wandering(4))
    model.learn(40, ProgressBar(40, every=20, stream=stream))
    model.learn(20, ProgressBar(20, every=20, stream=stream))
    lines = stream.getvalue().splitlines()
    assert [line.split(" steps ")[0] for line in lines] == ["20 of 40", "40 of 40", "20 of 20"]
    shape = r"steps  [\d,]+ steps/s  return -?[\d.e+-]+  length [\d.]+$"
    assert all(re.search(shape, line) for line in lines)


def test_bar_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    small("memoryless", wandering(4)).learn(40, ProgressBar(40, every=20, stream=stream))
    text = stream.getvalue()
    assert "40/40" in text
    assert "steps/s" in text
    assert "of 40 steps" not in text


def test_learn_writes_to_standard_error(capsys):
    small("memoryless", wandering(4)).learn(40, progress_bar=True, log_interval=20)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "40 of 40 steps" in shown.err
