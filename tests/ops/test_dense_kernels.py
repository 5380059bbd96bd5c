"""What a compiler makes of the products of linear layers."""

import os
import subprocess
import sys

import pytest
import torch

from kalmanac._ops import dispatch

COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kalmanac._ops.dense_kernels import affine, products

def compiled(kernel, constants, warps, stages):
    names = kernel.arg_names
    tensors = ("x", "g", "w", "b", "y", "partials")
    kinds = {n: "*fp32" if n in tensors else "i32" for n in names} | dict.fromkeys(
        constants, "constexpr"
    )
    whole = [["tt.divisibility", 16]]
    source = ASTSource(
        fn=kernel, signature=kinds,
        constexprs={(names.index(n),): x for n, x in constants.items()},
        attrs={(names.index(n),): whole for n in names if n not in constants},
    )
    options = dict(num_warps=warps, num_stages=stages)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ttgir"]

print(compiled(
    products, dict(EXACT=False, BLOCK=32, TALL=128, WIDE=128, x_r=1, g_r=1), warps=8, stages=3
))
print(compiled(
    affine, dict(EXACT=False, BLOCK=64, DEEP=32, WIDE=64, HAS_B=True), warps=4, stages=3
))
"""


@pytest.mark.skipif(not dispatch.TRITON, reason="Triton is not installed")
def test_nobody_else_reads_what_hoppers_products_read():
    """Triton has one place too few in shared memory for a load that somebody else reads, too."""
    place = {k: x for k, x in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "isAsync = true" in done.stdout  # else nothing is shown
    lines = done.stdout.splitlines()
    reads = [line for line in lines if "local_load" in line and "token" in line]
    assert not reads, reads


@pytest.mark.gpu
def test_gradients_are_the_same_bits_every_time():
    from kalmanac._ops.dense_kernels import gradients

    torch.manual_seed(0)
    x, g = (torch.randn(2, 256, 2080, device="cuda").mT for _ in range(2))
    (first,), beside = gradients([(x, g)], False, exact=False), torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(1000):
        with torch.cuda.stream(beside):  # multiprocessors that are busy elsewhere, too
            gradients([(x, g)], False, exact=False)
        (again,) = gradients([(x, g)], False, exact=False)
        assert torch.equal(first[0], again[0])
        assert torch.equal(first[1], again[1])
