"""`kalmanac demo`: four agents learn two tasks in minutes; one picture and one table come out."""

from dataclasses import dataclass
from pathlib import Path

import torch

from kalmanac._cli.verb import Call, RefusedError, Verb, expect_at_least, need
from kalmanac._demo.command import PICTURE, demo


@dataclass(frozen=True)
class Options:
    """What to train, and where."""

    out: Path = Path("runs/demo")
    """A folder for the runs, the picture and the table."""
    seed: int = 0
    """Of all four agents."""
    steps: int | None = None
    """Of each agent; None is its own."""


def show(call: Call) -> int:
    """The verb. 130: interrupted; 1: an agent diverged, or nothing can be written."""
    options: Options = call.options
    expect_at_least(0, options, "seed")
    expect_at_least(1, options, "steps")
    need("matplotlib")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are too small for more: on a busy machine more is slower
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        return demo(options.out, options.seed, options.steps)
    except OSError as error:
        raise RefusedError(f"--out {options.out}: {error.strerror}", 1) from None
    except KeyboardInterrupt:
        print("\ninterrupted; finished runs are kept, and a second start goes on from there")
        return 130
    finally:
        torch.set_num_threads(threads)


VERB = Verb(
    show,
    Options,
    "Train vssm+kf, oracle and memoryless on the shortened Best Arm, and vssm+kf on a noisy signal "
    f"with gaps, in minutes; leave one picture ({PICTURE}) and one table. Runs that are finished "
    "are kept: a second start goes on with the first that is not.",
)
