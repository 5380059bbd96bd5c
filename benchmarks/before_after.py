"""Time one scan in two source trees, before and after a change, sample by sample in turn.

    python benchmarks/before_after.py BEFORE [--after TREE] [--sizes 32,64,128 64,256,128]

A tree is a checkout: each one's benchmarks/ and src/ run in a process of their own, and both
compile their kernels at the same time, which takes most of the time: about half a minute on a GPU.
Then one works while the other waits. Prints the medians of microseconds as JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SAMPLE_SECONDS = 0.05
SETS = 24  # of inputs, to overflow a GPU's cache


def main(argv: Sequence[str] | None = None) -> int:
    """Race the two trees and print one JSON document."""
    options = _options(argv)
    if options.child:
        return _sample(options)
    trees = {"before": options.before, "after": options.after}
    begun = time.monotonic()
    children = {name: _start(tree, options) for name, tree in trees.items()}
    try:
        compiled = {name: json.loads(_answer(child)) for name, child in children.items()}
        print(f"ready after {time.monotonic() - begun:.0f} s: {compiled}", file=sys.stderr)
        samples: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for i in range(options.rounds):
            for name in list(trees)[:: 1 if i % 2 == 0 else -1]:
                samples[name].append(json.loads(_answer(children[name], "sample")))
    finally:
        for child in children.values():
            child.terminate()
            child.communicate()
    document = {
        "contender": options.contender,
        "rounds": options.rounds,
        "compiled": compiled,
    }
    rows = {key: _row(samples, key) for key in samples["before"][0]}
    print(json.dumps(document | {"microseconds": rows}, indent=2))
    return 0


def _row(samples: dict[str, list[dict[str, float]]], key: str) -> dict[str, float]:
    """Medians of each tree, and of the ratios of neighboring samples."""
    before, after = ([1e6 * s[key] for s in samples[name]] for name in ("before", "after"))
    ratio = statistics.median(y / x for x, y in zip(before, after, strict=True))
    return {
        "before": round(statistics.median(before), 2),
        "after": round(statistics.median(after), 2),
        "after_over_before": round(ratio, 4),
    }


def _start(tree: Path, options: argparse.Namespace) -> subprocess.Popen[str]:
    paths = os.pathsep.join(
        [str(tree / "src"), str(tree / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    )
    words = [str(tree), "--child", "--contender", options.contender, "--device", options.device]
    return subprocess.Popen(
        [sys.executable, "-P", str(HERE), *words, "--sizes", *options.sizes],
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _answer(child: subprocess.Popen[str], question: str | None = None) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    if question is not None:
        child.stdin.write(question + "\n")
        child.stdin.flush()
    line = child.stdout.readline()
    if not line:
        raise SystemExit(f"{child.args!r}: ended with status {child.wait()}")
    return line


def _sample(options: argparse.Namespace) -> int:
    """Be a child: prepare the contender of this tree, then time it whenever a line comes."""
    import torch

    import kalmanac
    from contenders import of_backends
    from problem import Size, make_inputs
    from timing import Stopwatch, capture

    device = torch.device(options.device)
    gpu = device.type == "cuda"
    found = {c.name: c for c in of_backends(device)[0]}
    contender = found[options.contender]
    begun = time.monotonic()
    watches: dict[str, Any] = {}
    for text in options.sizes:
        size = Size(*(int(part) for part in text.split(",")))
        inputs = [make_inputs(size, device, seed) for seed in range(SETS if gpu else 1)]
        for mode, work in (("forward", contender.forward), ("both", contender.both)):

            def run(i: int, work: Any = work, inputs: Any = inputs) -> Any:
                return work(inputs[i])

            key = f"{text} {'forward + backward' if mode == 'both' else mode}"
            watches[f"{key}, eager"] = Stopwatch(run, len(inputs), gpu)
            if gpu:
                replay = capture(run, len(inputs))
                watches[f"{key}, graph"] = Stopwatch(replay, 1, True, per_run=len(inputs))
    for watch in watches.values():
        watch.calibrate(SAMPLE_SECONDS)
    made = {"package": kalmanac.__file__, "seconds": round(time.monotonic() - begun, 1)}
    print(json.dumps(made), flush=True)
    for _ in sys.stdin:
        taken = {}
        for key, watch in watches.items():
            watch.sample()
            taken[key] = watch.samples[-1]
        print(json.dumps(taken), flush=True)
    return 0


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/before_after.py", description=(__doc__ or "").splitlines()[0]
    )
    add = parser.add_argument
    add("before", type=Path, help="the checkout of before")
    add("--after", type=Path, default=HERE.parents[1], help="default: this one")
    add("--sizes", nargs="+", default=["32,64,128", "64,256,128"], metavar="B,T,N")
    add("--contender", default="kalman gpu softplus", help="as scan.py names it")
    add("--device", default="cuda", choices=("cpu", "cuda"))
    add("--rounds", type=int, default=15, help="samples of each; default: %(default)s")
    add("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
