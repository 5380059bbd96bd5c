"""Starts real processes of the command line quickly: torch is imported once, then forked.

    python -m tests.experiment.starter    commands as JSON lines on standard input

{"words": [...], "log": file, "slow": null or [call, marker]} forks a child that runs `kalmanac`
with these words and answers its number; {"wait": number} answers its exit status. With `slow`, the
named call of `os`, where it is about a file in checkpoints/, leaves a marker and takes a fifth of
a second longer.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main():
    import torch

    import kalmanac.resume
    import kalmanac.train  # noqa: F401

    torch.set_num_threads(1)
    _warm_up()
    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            _, status = os.waitpid(command["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                _child(**command)
        print(answer, flush=True)


def _warm_up():
    """What every child would load anew: tyro, and the scans' machine code."""
    import tyro  # noqa: F401

    from kalmanac.sac import RecurrentSAC
    from tests.experiment.drifting import Drifting

    RecurrentSAC("vssm+kf", Drifting(), learning_starts=2, batch_size=2, device="cpu").learn(4)


def _child(words, log, slow):
    from kalmanac.cli import main as cli

    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if slow is not None:
        name, marker = slow
        setattr(os, name, _slowed(getattr(os, name), marker))
    status = 70
    try:
        status = cli(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _slowed(call, marker):
    def slowly(*arguments):
        what = arguments[-1]
        file = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else what
        if "checkpoints" in str(file):
            Path(marker).touch()
            time.sleep(0.2)
        return call(*arguments)

    return slowly


class Starter:
    """The other side of it."""

    def __init__(self):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        environment["NUMBA_THREADING_LAYER"] = "workqueue"  # OpenMP does not survive a fork
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.experiment.starter"], cwd=ROOT, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def start(self, words, log, slow=None):
        return self._ask({"words": words.split(), "log": str(log), "slow": slow})

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
