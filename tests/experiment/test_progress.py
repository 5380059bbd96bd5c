import io

import pytest

from kalmanac.experiment import (
    Progress,
    make_model,
    training_environment,
)
from kalmanac.printable import duration
from kalmanac.sac import Callback
from tests.experiment.tiny import TINY


def test_progress_says_return_length_speed_and_time_left(monkeypatch):
    import kalmanac.experiment.progress as shown

    clock = [0.0]
    monkeypatch.setattr(shown.time, "perf_counter", lambda: clock[0])
    model = make_model(TINY, training_environment(TINY), "cpu")
    out = io.StringIO()

    class Later(Callback):
        def on_step(self, model):
            clock[0] += 5.0

    model.learn(80, callback=[Later(), Progress(400, out)])
    (*_, line) = out.getvalue().splitlines()
    assert line.startswith("80 of 400 steps  return ")
    assert "length " in line
    assert line.endswith("0 updates/s  7 min left")  # 4 steps take 5 s


def test_progress_lines_of_evaluations_name_every_place():
    out = io.StringIO()
    values = {"eval/in/normalized": 0.5, "eval/in/length": 3.0, "eval/in/win_rate": 0.75}
    Progress(10, out).evaluated(7, values | {"eval/out/normalized": 0.1, "eval/out/length": 2.0})
    assert out.getvalue() == "step 7: in 0.5 (length 3, wins 0.75)  out 0.1 (length 2)\n"


def test_a_terminal_gets_a_bar():
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    model = make_model(TINY, training_environment(TINY), "cpu")
    out = Terminal()
    model.learn(40, callback=Progress(40, out))
    assert "100%" in out.getvalue()
    assert "updates/s" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "told"), [(3, "3 s"), (150, "2 min"), (2460, "41 min"), (8000, "2.2 h")]
)
def test_durations(seconds, told):
    assert duration(seconds) == told
