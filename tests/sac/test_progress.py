import io
import re

from kalmanac.rollout import Episode
from kalmanac.sac import ProgressBar, RecentEpisodes
from tests.rollout.counting import Counting
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


class Steady(Counting):
    """Every step of the warm-up costs 100, every later one nothing."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        self.done = getattr(self, "done", 0) + 1
        return observation, -100.0 if self.done <= 20 else 0.0, *rest


def test_the_return_is_that_of_recent_episodes_without_the_warm_up():
    stream = io.StringIO()
    model = small("memoryless", Steady((5,)), learning_starts=20)
    model.learn(60, ProgressBar(60, every=5, stream=stream))
    found = [re.search(r"return (\S+)", line)[1] for line in stream.getvalue().splitlines()]
    assert found == ["-500"] * 4 + ["0"] * 8


def test_recent_episodes_are_the_last_hundred_and_survive():
    class Learning:
        num_updates = 1

    recent = RecentEpisodes()
    for n in range(150):
        recent.add(Learning(), Episode(float(n), n, False, 0, {}))
    assert recent.figures() == ["return 99.5", "length 99.5"]
    again = RecentEpisodes()
    again.load_state_dict(recent.state_dict())
    again.add(Learning(), Episode(150.0, 150, False, 0, {}))
    assert again.figures() == ["return 100", "length 100.5"]


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
