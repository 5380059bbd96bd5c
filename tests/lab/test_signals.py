import os
import signal

import pytest

from kalmanac._lab.active_run import StopSignals


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_interrupts(which):
    before = [signal.getsignal(s) for s in StopSignals.SIGNALS]
    with StopSignals() as stop:
        assert not stop()
        os.kill(os.getpid(), which)
        assert stop()
        assert stop.number == which
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), which)
    assert [signal.getsignal(s) for s in StopSignals.SIGNALS] == before


def test_after_the_second_one_signals_are_not_heard_for_a_while_and_then_kill(monkeypatch):
    killed = []
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(9):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        monkeypatch.setattr("kalmanac._lab.active_run.PATIENCE", -1.0)
        monkeypatch.setattr("os.kill", lambda *what: killed.append(what))
        stop._on_signal(signal.SIGTERM, None)
        assert killed == [(os.getpid(), signal.SIGTERM)]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child only sends signals
def test_in_a_forked_worker_ctrl_c_is_ignored_and_sigterm_ends_it():
    with StopSignals() as stop:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)
            if not stop():
                os.kill(os.getpid(), signal.SIGTERM)
            os._exit(1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
