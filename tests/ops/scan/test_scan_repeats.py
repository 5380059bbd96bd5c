"""Same inputs, same bits: values and gradients, also when threads share the work."""

import pytest
import torch

from kalmanac._ops.scan.kalman import kalman_scan
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan.answers import run_backward
from tests.ops.scan.cases import WHOLE, Case, draw
from tests.ops.scan.linear_cases import draw_linear, to_device, with_gradients
from tests.ops.scan.targets import every_target, every_target_and

CASES = [
    Case(37, WHOLE, batch=16, channels=40),
    Case(37, WHOLE, batch=16, channels=40, varying_q=True, seed=1),
    Case(64, WHOLE, batch=1, channels=130, lengths=False),  # one row: threads share its channels
]


@every_target_and(CASES, torch.float32, torch.bfloat16)
def test_kalman_scan_gives_the_same_bits_twice(target, case, dtype):
    target.require(dtype)
    problem = draw(case, dtype).to(device=target.device)
    first = run_backward(problem, target)
    for _ in range(3):
        again = run_backward(problem, target)
        for one, other in zip(again, first, strict=True):
            assert all(torch.equal(x, other[name]) for name, x in one.items())


@pytest.mark.parametrize("varying", [False, True], ids=["constant-a", "varying-a"])
@every_target
def test_linear_scan_gives_the_same_bits_twice(target, varying):
    target.require(torch.float32)
    given = draw_linear(37, torch.float32, varying=varying, batch=16, channels=40)
    results = []
    for _ in range(4):
        arguments, leaves = with_gradients(to_device(given, target.device))
        outputs = linear_scan(**arguments, backend=target.backend)
        gradients = torch.autograd.grad(sum(x.sum() for x in outputs), list(leaves.values()))
        results.append([*outputs, *gradients])
    for again in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(again, results[0], strict=True))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_cpu_kernels_leave_pytorchs_thread_count_alone(threads):
    """numba and PyTorch may share one OpenMP, and with it the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        problem = draw(Case(64, WHOLE, batch=4, channels=130, lengths=False), torch.float32)
        kalman_scan(**problem.arguments(), backend="cpu")
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
