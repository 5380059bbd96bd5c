"""Starts real processes of the command line quickly: torch is imported once, then forked.

    python -m tests.lab.starter    commands as JSON lines on standard input

{"words": [...], "log": file, "hold": null or [event, number, marker, go]} forks a child that runs
`kalmanac` with these words and answers its number; {"wait": number} answers its exit status, and
{"look": number} the same, or RUNNING. With `hold`, the child waits at the event of this number: it
leaves the marker and goes on when the file `go` is there. So whatever is done to it meanwhile is
done at that very moment, on machines of every speed.
"""

import gc
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNNING = -1000


def main():
    import torch

    import kalmanac._cli.resume
    import kalmanac._cli.train  # noqa: F401

    torch.set_num_threads(1)
    _warm_up()
    gc.freeze()  # children share it, and none looks through it
    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            _, status = os.waitpid(command["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        elif "look" in command:
            ended, status = os.waitpid(command["look"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else RUNNING
        else:
            answer = os.fork()
            if answer == 0:
                _child(**command)
        print(answer, flush=True)


def _warm_up():
    """What every child would load anew: tyro, and the scans' machine code."""
    import tyro  # noqa: F401

    from kalmanac._sac.recurrent_sac import RecurrentSAC
    from tests.lab.drifting import Drifting

    RecurrentSAC("vssm+kf", Drifting(), learning_starts=2, batch_size=2, device="cpu").learn(4)


def _child(words, log, hold):
    from kalmanac._cli.program import main as cli

    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if hold is not None:
        _arrange(*hold)
    status = 70
    try:
        status = cli(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _arrange(event, number, marker, go):
    """Events: a step or an update is done; a call of `os` about a file in checkpoints/."""
    from kalmanac._sac.loop import Member

    met = itertools.count(1)

    def meet():
        if next(met) == number:
            Path(marker).touch()
            while not Path(go).exists():
                time.sleep(0.002)

    moves = {"step": "settle", "update": "updated"}
    if event in moves:
        real = getattr(Member, moves[event])
        setattr(Member, moves[event], lambda member, *given: (meet(), real(member, *given))[1])
        return
    name, _, when = event.partition(" ")
    call = getattr(os, name)

    def arranged(*arguments):
        what = arguments[-1]
        file = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else what
        about_it = "checkpoints" in str(file)
        if about_it and when == "before":
            meet()
        result = call(*arguments)
        if about_it and when == "after":
            meet()
        return result

    setattr(os, name, arranged)


class Starter:
    """The other side of it."""

    def __init__(self):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        environment["NUMBA_THREADING_LAYER"] = "workqueue"  # OpenMP does not survive a fork
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.starter"], cwd=ROOT, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def start(self, words, log, hold=None):
        return self._ask({"words": words.split(), "log": str(log), "hold": hold})

    def until(self, number, marker):
        """Until the child waits; AssertionError where it has ended instead."""
        while not marker.exists():
            assert self._ask({"look": number}) == RUNNING, "it has ended"
            time.sleep(0.002)

    def wait(self, number):
        return self._ask({"wait": number})

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def _ask(self, command):
        print(json.dumps(command), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


if __name__ == "__main__":
    main()
