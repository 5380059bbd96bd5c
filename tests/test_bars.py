"""Bars where somebody sees them, lines everywhere."""

import io

from kalmanac._bars import Bars


class Terminal(io.StringIO):
    def isatty(self):
        return True


def use(stream, **how):
    with Bars(stream, **how) as bars:
        first, second = bars.add(160, "all", done=2), bars.add(None, "one")
        bars.update(first, completed=3, figures="4 min left")
        bars.update(second, completed=1, total=2)
        bars.say("a line [bold]as it is[/]")
        bars.remove(second)
    bars.say("the end")
    return stream.getvalue()


def test_a_file_gets_lines_alone():
    assert use(io.StringIO()) == "a line [bold]as it is[/]\nthe end\n"


def test_a_terminal_gets_bars_below_the_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = use(Terminal(), counts=True)
    assert "a line [bold]as it is[/]" in shown
    assert "3/160" in shown
    assert "4 min left" in shown
    assert shown.endswith("the end\n")
    assert "2%" in use(Terminal())
