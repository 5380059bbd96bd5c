import io
import re

from kalmanac._sac.callbacks import Callback, RecentEpisodes
from kalmanac._sac.episode_streams import Episode
from kalmanac._sac.progress import Progress
from tests.sac.counting import Counting
from tests.sac.small import small, wandering


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_into_files():
    stream = io.StringIO()
    model = small("memoryless", wandering(4))
    model.learn(40, Progress(40, stream, every=20))
    model.learn(20, Progress(20, stream, every=20, start=40))
    lines = stream.getvalue().splitlines()
    assert [line.split(" steps ")[0] for line in lines] == ["20 of 40", "40 of 40", "20 of 20"]
    shape = r"steps  return -?[\d.e+-]+  length [\d.]+  [\d,]+ updates/s  [\d.]+ \w+ left$"
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
    model.learn(60, Progress(60, stream, every=5))
    actual = [re.search(r"return (\S+)", line)[1] for line in stream.getvalue().splitlines()]
    assert actual == ["-500"] * 4 + ["0"] * 8


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
    small("memoryless", wandering(4)).learn(40, Progress(40, stream, every=20))
    text = stream.getvalue()
    assert "100%" in text
    assert "updates/s" in text
    assert "of 40 steps" not in text


def test_learn_writes_to_standard_error(capsys):
    small("memoryless", wandering(4)).learn(40, progress_bar=True, log_interval=20)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "40 of 40 steps" in shown.err


def test_lines_come_by_the_clock_and_say_speed_and_time_left(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("kalmanac._sac.progress.time.perf_counter", lambda: clock[0])
    stream = io.StringIO()

    class Later(Callback):
        def on_step(self, model):
            clock[0] += 5.0

    small("memoryless", wandering(4)).learn(80, [Later(), Progress(400, stream)])
    (*_, line) = stream.getvalue().splitlines()
    assert line.startswith("80 of 400 steps  return ")
    assert "length " in line
    assert line.endswith(" updates/s  7 min left")  # 4 steps take 5 s
