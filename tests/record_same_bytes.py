"""Six short trainings with a fixed seed, what is recorded of them, and how to record it anew:

    python -m tests.record_same_bytes

writes tests/data/same_bytes.json on this machine, to be called from the repository's root where a
change of behavior is meant, and only there. `tests/test_same_bytes.py` compares.

Everything goes through the command line. A run is trained to one end, extended to another from its
checkpoint, and played with `eval`. Recorded are SHA-256 of

- metrics: the bytes of metrics.jsonl;
- evaluations: the bytes of summary.json (the best and the last evaluation), and the rows of numbers
  that `eval` prints;
- last, best: the tensors of the two model files (`tensors_hash`);
- the first rows of metrics.jsonl as numbers, for machines with another arithmetic.
"""

import contextlib
import hashlib
import io
import json
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import torch

from kalmanac._cli.program import main

RECORDED = Path(__file__).parent / "data" / "same_bytes.json"
ENCODERS = ("vssm+kf", "gru")
TASKS = {
    "discrete": "novel/CartPole --total-steps 128 --no-normalize-observations",
    "continuous": "track --total-steps 128 --env-settings horizon=10 --normalize-rewards "
    "--burn-in 2",
    "seeing": "tests.seeing:Seeing --total-steps 96 --image-channels 2 4 --image-features 6 "
    "--no-normalize-observations",
}
SMALL = (
    "--encoder-settings d_state=6 --embedding 6 --actor-hidden 12 --critic-hidden 12 "
    "--batch-size 4 --context-length 6 --update-to-data 0.25 --learning-starts 32 --num-envs 2 "
    "--eval-every 48 --eval-episodes 4 --eval-max-steps 20 --log-every 16 --seed 7"
)
END = 144  # where the extended run ends
HOW = "--device cpu --no-progress --no-tensorboard"
ROWS = 4  # the rows that are recorded as numbers: two before the first update, two after it


def run(task: str, encoder: str, folder: Path) -> dict[str, Any]:
    """Train, extend and evaluate in `folder`, with one thread; what is recorded of it."""
    with one_thread():
        _call(f"train {TASKS[task]} --encoder {encoder} {SMALL} {HOW} --folder {folder}")
        _call(f"resume {folder} --steps {END} {HOW}")
        _, _, *played = _call(f"eval {folder} --which last --device cpu").splitlines()
    metrics = (folder / "metrics.jsonl").read_bytes()
    numbers = "\n".join(" ".join(line.split()) for line in played).encode()
    return {
        "metrics": _digest(metrics),
        "evaluations": _digest((folder / "summary.json").read_bytes() + numbers),
        "last": tensors_hash(folder / "last.safetensors"),
        "best": tensors_hash(folder / "best.safetensors"),
        "rows": [json.loads(line) for line in metrics.splitlines()[:ROWS]],
    }


def tensors_hash(file: Path) -> str:
    """Of type, shape and bytes of every tensor in a model file, in the order of the model's state.

    That order is the number before the colon of a tensor's name in the file: it follows the order
    in which modules define their parameters. No other part of a name and no other part of the file
    counts, so that parameters and modules may be renamed.
    """
    content = file.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    del header["__metadata__"]
    found = hashlib.sha256()
    for _, about in sorted(header.items(), key=lambda item: int(item[0].split(":")[0])):
        begin, end = about["data_offsets"]
        found.update(f"{about['dtype']} {about['shape']}\n".encode())
        found.update(content[8 + length + begin : 8 + length + end])
    return found.hexdigest()


def fingerprint() -> dict[str, str]:
    """This machine's arithmetic: where it is equal, equal programs compute equal bytes."""
    with one_thread():
        found = hashlib.sha256()
        for part in _arithmetic():
            found.update(part.tobytes())
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "processor": f"{llvmlite.binding.get_host_cpu_name()}, "
        f"{torch.backends.cpu.get_cpu_capability()}",
        "results": found.hexdigest(),
    }


def _arithmetic() -> Iterator[np.ndarray]:
    """Products of several sizes, functions, a convolution, a GRU, gradients, random numbers."""
    rng = torch.Generator().manual_seed(0)
    for rows, inner, columns in ((2, 7, 12), (4, 6, 18), (33, 65, 129)):
        a = torch.randn(rows, inner, generator=rng, requires_grad=True)
        b = torch.randn(inner, columns, generator=rng, requires_grad=True)
        y = torch.nn.functional.softplus(a @ b).exp().log1p().tanh()
        y.square().mean().backward()
        yield from (x.detach().numpy() for x in (y, a.grad, b.grad) if x is not None)
    image = torch.rand(4, 3, 16, 16, generator=rng)
    kernel = torch.randn(5, 3, 3, 3, generator=rng)
    yield torch.nn.functional.conv2d(image, kernel, stride=2, padding=1).numpy()
    yield torch.linalg.qr(torch.randn(24, 24, generator=rng)).Q.numpy()
    yield np.exp(np.sin(np.random.default_rng(0).standard_normal(101)))
    yield _loop(np.linspace(-3, 3, 101, dtype=np.float32))


@numba.njit(fastmath=True)
def _loop(x):
    y, total = np.empty_like(x), np.float32(0.0)
    for i in range(len(x)):
        total = np.float32(0.9) * total + np.log1p(np.exp(x[i])) / (np.float32(1.0) + x[i] * x[i])
        y[i] = np.tanh(total)
    return y


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums have one order only; kalmanac's own loops take as many threads as torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _call(words: str) -> str:
    """What a call of the command line prints; it must succeed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words.split())
    assert status == 0, f"kalmanac {words}: {err.getvalue()}"
    return out.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def record() -> None:
    """All six runs, to the file."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder  # the secret that runs are signed with
        runs = {
            f"{encoder} {task}": run(task, encoder, Path(folder, encoder, task))
            for encoder in ENCODERS
            for task in TASKS
        }
    told = {"fingerprint": fingerprint(), "runs": runs}
    RECORDED.write_text(json.dumps(told, indent=1) + "\n")
    print(f"{len(runs)} runs: {RECORDED}")


if __name__ == "__main__":
    record()
