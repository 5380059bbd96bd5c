"""torch.compile, torch.export and the registered operators, on every backend."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from kalmanac._ops.scan.kalman import kalman_scan, kalman_scan_packed
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan import budgets
from tests.ops.scan.answers import by_name, run_backward, weight
from tests.ops.scan.cases import MILD, Case, draw
from tests.ops.scan.linear_cases import draw_linear, to_device, with_gradients
from tests.ops.scan.targets import every_target

CASE = Case(5, MILD, varying_q=True)

# The compiler itself instantiates an autograd function where the class would do.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def backward(scan, problem):
    problem, leaves = problem.with_gradients()
    outputs = by_name(*scan(**problem.arguments()))
    weights = [weight(x.shape, seed).to(x) for seed, x in enumerate(outputs.values())]
    gradients = torch.autograd.grad(list(outputs.values()), list(leaves.values()), weights)
    return outputs, dict(zip(leaves, gradients, strict=True))


def assert_same(found, expected, budget=1e-12):
    for one, other in zip(found, expected, strict=True):
        budgets.check({name: budgets.error(x, other[name]) for name, x in one.items()}, budget)


@pytest.mark.parametrize(
    "case",
    [CASE, Case(5, MILD, u=False, b=False, prior="none", state="none", lengths=False, resets=0)],
    ids=str,
)
@every_target
def test_compile_the_kalman_scan(target, case):
    """One graph, forward and backward, and the same numbers."""
    target.require(torch.float64)
    problem = draw(case).to(device=target.device)

    def scan(**arguments):
        return kalman_scan(**arguments, details=True, backend=target.backend)

    assert_same(backward(compiled(scan), problem), backward(scan, problem))


@every_target
def test_compile_the_packed_scan_with_floors(target):
    target.require(torch.float32)
    problem = draw(Case(5, MILD), torch.float32).to(device=target.device)
    signals = torch.cat([problem.u, problem.w, problem.r], -1)

    def loss(a, q, signals, lengths):
        posterior, final = kalman_scan_packed(
            a, signals, q, lengths=lengths, r_floor=1e-3, q_floor=1e-4, backend=target.backend
        )
        return posterior.mean.square().sum() + final.variance.sum()

    results = []
    for function in (loss, compiled(loss)):
        leaves = [x.clone().requires_grad_() for x in (problem.a, problem.q, signals)]
        total = function(*leaves, problem.lengths)
        results.append([total, *torch.autograd.grad(total, leaves)])
    for one, other in zip(*results, strict=True):
        assert budgets.error(one, other) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@every_target
def test_compile_the_linear_scan(target, dtype):
    target.require(dtype)
    given = to_device(draw_linear(5, dtype), target.device)

    def scan(**arguments):
        return linear_scan(**arguments, backend=target.backend)

    results = []
    for function in (scan, compiled(scan)):
        arguments, leaves = with_gradients(given)
        outputs = function(**arguments)
        weights = [weight(x.shape, seed).to(x) for seed, x in enumerate(outputs)]
        results.append([*outputs, *torch.autograd.grad(outputs, list(leaves.values()), weights)])
    for one, other in zip(*results, strict=True):
        assert budgets.error(one, other) <= 1e-12


@every_target
def test_compile_once_for_every_batch_size(target):
    target.require(torch.float64)
    traces = []

    def count(graph, inputs):
        traces.append(graph)
        return graph.forward

    def scan(**arguments):
        return kalman_scan(**arguments, backend=target.backend)

    dynamic = torch.compile(scan, fullgraph=True, backend=count)
    for batch in (4, 5, 6, 9):
        problem = draw(replace(CASE, batch=batch)).to(device=target.device)
        marked = problem.map(lambda x: x)
        for x in (problem.u, problem.q, problem.w, problem.r, problem.lengths, problem.reset,
                  problem.observed, *problem.prior, *problem.state):  # fmt: skip
            torch._dynamo.mark_dynamic(x, 0)
        found = by_name(*dynamic(**problem.arguments()))
        expected = by_name(*scan(**marked.arguments()))
        budgets.check({name: budgets.error(x, expected[name]) for name, x in found.items()}, 1e-12)
    assert len(traces) == 1


class Scans(torch.nn.Module):
    """Both scans, for one backend."""

    def __init__(self, backend):
        super().__init__()
        self.backend = backend

    def forward(self, a, q, u, w, r, lengths, reset, observed):
        posterior, final = kalman_scan(
            a, u, q, w, r, lengths=lengths, reset=reset, observed=observed, backend=self.backend
        )
        states, end = linear_scan(a, u, lengths=lengths, reset=reset, backend=self.backend)
        return *posterior, *final, states, end


def scan_inputs(batch, device):
    x = draw(replace(CASE, batch=batch)).to(device=device)
    return x.a, x.q, x.u, x.w, x.r, x.lengths, x.reset, x.observed


@every_target
def test_export(target):
    """The exported program runs without the package's Python code, for another batch size too."""
    target.require(torch.float64)
    module = Scans(target.backend)
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = (None, *[{0: rows}] * 7)
    program = torch.export.export(module, scan_inputs(4, target.device), dynamic_shapes=shapes)
    for batch in (4, 7):
        inputs = scan_inputs(batch, target.device)
        for one, other in zip(program.module()(*inputs), module(*inputs), strict=True):
            assert budgets.error(one, other) <= 1e-12


class Calls(TorchDispatchMode):
    """Records the calls of the package's own operators."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "kalmanac":
            self.seen.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def registered(backend):
    """The names of a backend's own operators: kalmanac::SCAN_BACKEND and ….._backward."""
    names = torch._C._dispatch_get_all_op_names()
    return {name for name in names if name.removesuffix("_backward").endswith(f"_{backend}")
            and name.startswith("kalmanac::")}  # fmt: skip


def scan_in_many_ways(target):
    """Forward and backward of both scans with every optional argument present and absent."""
    bare = Case(4, MILD, u=False, b=False, prior="none", state="none", lengths=False, resets=0,
                missing=0)  # fmt: skip
    for case in (Case(4, MILD), Case(4, MILD, varying_q=True, state="none"), bare):
        run_backward(draw(case).to(device=target.device), target)
    problem = draw(Case(4, MILD), torch.float32).to(device=target.device)
    signals = torch.cat([problem.u, problem.w, problem.r], -1).requires_grad_()
    posterior, _ = kalman_scan_packed(
        problem.a, signals, problem.q, r_floor=1e-3, backend=target.backend
    )
    posterior.mean.sum().backward()  # nothing depends on the other outputs
    for varying in (False, True):
        given = draw_linear(4, torch.float32, varying=varying, flags=varying)
        arguments, _ = with_gradients(to_device(given, target.device))
        states, _ = linear_scan(**arguments, backend=target.backend)
        states.sum().backward()


@every_target
def test_every_operator_of_the_backend_passes_opcheck(target):
    """Schema, autograd registration, fake kernel and AOT dispatch, for each recorded call; results
    of their own, which newer versions of PyTorch insist on."""
    target.require(torch.float32)
    calls = Calls()
    with calls:
        scan_in_many_ways(target)
    names = {function.name().partition(".")[0] for function, _, _ in calls.seen}
    assert names == registered(target.backend)
    for function, args, kwargs in calls.seen:
        once = function.name().endswith("_backward")  # differentiable once, so not by itself

        def fresh(x, once=once):
            if not isinstance(x, torch.Tensor):
                return x
            return x.detach().clone().requires_grad_(x.requires_grad and not once)

        torch.library.opcheck(function, tree_map(fresh, args), tree_map(fresh, kwargs))
        results = function(*tree_map(fresh, args), **tree_map(fresh, kwargs))
        memories = [x.untyped_storage().data_ptr() for x in results if x.numel()]
        assert len(set(memories)) == len(memories), function.name()


@every_target
def test_a_watched_scan_gives_the_same_bits(target):
    """Where nobody records operators, the scan does without them; that must not be seen."""
    target.require(torch.float32)
    problem = draw(CASE, torch.float32).to(device=target.device)
    alone = run_backward(problem, target)
    with Calls() as calls:
        watched = run_backward(problem, target)
    assert bool(calls.seen) == (target.backend in ("cpu", "gpu"))
    for one, other in zip(alone, watched, strict=True):
        for name in one:
            assert torch.equal(one[name], other[name]), name


def test_the_fused_backends_are_operators():
    """Otherwise the test above would have nothing to check."""
    for backend in ("cpu", "gpu"):
        scans = {f"kalmanac::{scan}_{backend}" for scan in ("kalman", "linear")}
        assert registered(backend) == scans | {f"{name}_backward" for name in scans}
