import os
import signal

import pytest

from kalmanac.experiment import StopSignals


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
