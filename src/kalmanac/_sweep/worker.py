"""A worker process of a local sweep. Light: what it sets must be set before torch is imported."""

import faulthandler
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def serve(works: Connection, how: Any, log: Path) -> None:
    """Do works, one after the other, until nobody sends any.

    A terminal's Ctrl-C reaches this process too; stopping is up to the one that drives the sweep.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    faulthandler.enable()
    for name in THREADS:
        os.environ[name] = str(how.threads)
    import torch

    from kalmanac._sweep.work import do

    torch.set_num_threads(how.threads)
    driver = os.getppid()
    while True:
        try:
            work = works.recv()
        except EOFError:
            return
        works.send(do(work, how, abandoned=lambda: os.getppid() != driver))
