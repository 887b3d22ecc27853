"""The AdamW kernel against torch.optim.AdamW, against its torch equivalent, and against itself."""

import ctypes
import shutil
import subprocess
import sys

import pytest
import torch

from placelang.backend.offload import kernel

native = pytest.mark.skipif(not kernel.available(), reason=str(kernel.why_not()))
"""An install without a compiler works without the library; where there is one, the test below wants it."""

SIZES = [0, 1, 63, 64, 65, 1_000_003]
HYPER = {"lr": 3e-3, "betas": (0.9, 0.99), "eps": 1e-7, "weight_decay": 0.1}


@pytest.fixture(params=[pytest.param("native", marks=native), "torch"])
def implementation(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(kernel, "_load", lambda: kernel._Loaded(None, "switched off by the test"))
    return request.param


def state(size, dtype=torch.float32, seed=0):
    """Parameters, moments that some steps could have left, gradients."""
    generator = torch.Generator().manual_seed(seed)
    params, exp_avg, exp_avg_sq, grads = (torch.randn(size, generator=generator) for _ in range(4))
    return params, exp_avg * 1e-2, exp_avg_sq.square() * 1e-4, (grads * 1e-1).to(dtype)


@pytest.mark.parametrize("size", SIZES)
def test_five_steps_agree_with_torch(implementation, size):
    params, _, _, _ = state(size)
    exp_avg, exp_avg_sq = torch.zeros(size), torch.zeros(size)
    peer = torch.nn.Parameter(params.clone())
    optimizer = torch.optim.AdamW([peer], foreach=False, **HYPER)
    for step in range(1, 6):
        grads = state(size, seed=step)[3]
        peer.grad = grads.clone()
        optimizer.step()
        kernel.adamw(params, exp_avg, exp_avg_sq, grads, step=step, **HYPER)
    torch.testing.assert_close(params, peer.detach(), rtol=2e-6, atol=2e-6)
    moments = optimizer.state[peer]
    torch.testing.assert_close(exp_avg, moments["exp_avg"], rtol=2e-6, atol=1e-7)
    torch.testing.assert_close(exp_avg_sq, moments["exp_avg_sq"], rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("size", SIZES)
def test_bf16_is_widened_going_in_and_rounded_as_torch_rounds_coming_out(implementation, size):
    params, exp_avg, exp_avg_sq, grads = state(size, torch.bfloat16)
    wide = [params.clone(), exp_avg.clone(), exp_avg_sq.clone(), grads.float()]
    params_out = torch.empty(size, dtype=torch.bfloat16)
    kernel.adamw(params, exp_avg, exp_avg_sq, grads, step=7, params_out=params_out)
    kernel.adamw(*wide, step=7)
    assert torch.equal(params, wide[0])
    assert torch.equal(params_out, params.bfloat16())


def test_rounding_to_bf16_at_its_edges(implementation):
    """Ties in both directions, the largest values, overflow, subnormals, infinities and NaN pass through unchanged."""
    bits = [0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x7F7F7FFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000]
    bits += [0x00000001, 0x00008000, 0x00018000, 0x80000000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF]
    values = torch.tensor(bits, dtype=torch.int64).to(torch.uint32).view(torch.float32)
    params, zeros = values.clone(), torch.zeros_like(values)
    params_out = torch.empty(len(bits), dtype=torch.bfloat16)
    kernel.adamw(params, zeros.clone(), zeros.clone(), zeros, step=1, lr=0.0, params_out=params_out)
    torch.testing.assert_close(params_out, values.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_grad_scale_multiplies_the_gradients(implementation):
    params, exp_avg, exp_avg_sq, grads = state(1000)
    scaled = [params.clone(), exp_avg.clone(), exp_avg_sq.clone(), grads * 0.37]
    kernel.adamw(params, exp_avg, exp_avg_sq, grads, step=3, grad_scale=0.37)
    kernel.adamw(*scaled, step=3)
    assert torch.equal(params, scaled[0])
    assert torch.equal(exp_avg_sq, scaled[2])


@native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", SIZES)
def test_bits_depend_neither_on_the_instruction_set_nor_on_threads(size, dtype):
    def outcome(isa, threads):
        params, exp_avg, exp_avg_sq, grads = state(size, dtype)
        params_out = torch.empty(size, dtype=torch.bfloat16)
        for step in (1, 2):
            kernel.adamw(
                params, exp_avg, exp_avg_sq, grads, step=step, params_out=params_out, isa=isa, threads=threads, **HYPER
            )
        return params, exp_avg, exp_avg_sq, params_out

    expected = outcome("baseline", 1)
    for isa in (*kernel.isas(), None):
        for threads in (1, 2, 3, 7, None):
            for got, wanted in zip(outcome(isa, threads), expected, strict=True):
                assert torch.equal(got, wanted)


@native
def test_bits_do_not_depend_on_where_a_slice_begins():
    whole = state(1000)
    cut = [tensor.clone() for tensor in whole]
    kernel.adamw(*whole, step=2)
    for part in (slice(0, 333), slice(333, 1000)):
        kernel.adamw(*(tensor[part] for tensor in cut), step=2)
    assert all(torch.equal(a, b) for a, b in zip(whole, cut, strict=True))


@pytest.mark.skipif(not shutil.which("c++"), reason="no C++ compiler here, and an install works without one")
def test_where_there_is_a_compiler_there_is_the_library():
    """An install falls back without a word, so that a fault of the build shows nowhere else."""
    assert kernel.available(), kernel.why_not()


@native
def test_a_caller_that_flushes_denormals_changes_no_bits():
    params, exp_avg, _, _ = state(40_000)
    denormal = torch.full_like(params, 1e-39)
    expected = params.clone(), exp_avg.clone(), denormal.clone()
    kernel.adamw(*expected, torch.zeros_like(params), step=1, threads=2)
    outcome = params.clone(), exp_avg.clone(), denormal.clone()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't flush denormals")
    try:
        kernel.adamw(*outcome, torch.zeros_like(params), step=1, threads=2)
    finally:
        torch.set_flush_denormal(False)
    assert (outcome[2] != 0).all()
    assert all(torch.equal(got, wanted) for got, wanted in zip(outcome, expected, strict=True))


def test_the_torch_equivalent_agrees_with_the_library(monkeypatch):
    if not kernel.available():
        pytest.skip(str(kernel.why_not()))
    ours, theirs = state(200_001, torch.bfloat16), state(200_001, torch.bfloat16)
    kernel.adamw(*ours, step=4, **HYPER)
    monkeypatch.setattr(kernel, "_load", lambda: kernel._Loaded(None, "switched off by the test"))
    assert not kernel.available()
    assert kernel.why_not() == "switched off by the test"
    assert kernel.isa() is None
    assert kernel.isas() == ()
    assert kernel.threads() is None
    kernel.adamw(*theirs, step=4, **HYPER)
    for got, wanted in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-7)


def test_autograd_notices_that_saved_parameters_changed(implementation):
    params, exp_avg, exp_avg_sq, grads = state(8)
    params = torch.nn.Parameter(params)
    loss = params.square().sum()
    kernel.adamw(params, exp_avg, exp_avg_sq, grads, step=1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": torch.zeros(8, dtype=torch.float64)}, "params must be torch.float32, not torch.float64"),
        ({"grads": torch.zeros(8, dtype=torch.float16)}, "grads must be torch.float32 or torch.bfloat16"),
        ({"params_out": torch.zeros(8)}, "params_out must be torch.bfloat16"),
        ({"exp_avg": torch.zeros(9)}, r"exp_avg has shape \[9\], but params has \[8\]"),
        ({"exp_avg_sq": torch.zeros(16)[::2]}, "exp_avg_sq must be contiguous"),
        ({"grads": torch.zeros(8, device="meta")}, "grads must be on the CPU, not on meta"),
        ({"step": 0}, "step counts from 1"),
        ({"lr": -1.0}, "lr must be finite and not negative"),
        ({"lr": float("nan")}, "lr must be finite and not negative"),
        ({"eps": -1e-8}, "eps must be"),
        ({"weight_decay": float("inf")}, "weight_decay must be"),
        ({"betas": (0.9, 1.0)}, "both betas must be"),
        ({"grad_scale": float("inf")}, "grad_scale must be finite"),
        ({"threads": 0}, "threads must be from 1 to 1024"),
        ({"isa": "avx1024"}, "isa must be one of"),
    ],
)
def test_bad_arguments_are_refused_before_anything_changes(implementation, change, message):
    params, exp_avg, exp_avg_sq, grads = state(8)
    arguments = {"params": params, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "grads": grads, "step": 1, **change}
    before = params.clone()
    with pytest.raises(ValueError, match=message):
        kernel.adamw(**arguments)
    assert torch.equal(params, before)


def test_buffers_that_share_memory_are_refused(implementation):
    params, exp_avg, exp_avg_sq, grads = state(8)
    with pytest.raises(ValueError, match="share memory"):
        kernel.adamw(params, exp_avg, exp_avg, grads, step=1)
    pool = torch.zeros(12)
    with pytest.raises(ValueError, match="params and exp_avg share memory"):
        kernel.adamw(pool[:8], pool[4:], exp_avg_sq, grads, step=1)


def test_a_distributed_tensor_is_refused(implementation):
    class Wrapped(torch.Tensor):
        pass

    params, exp_avg, exp_avg_sq, grads = state(8)
    with pytest.raises(ValueError, match="params must be a plain tensor, not Wrapped"):
        kernel.adamw(params.as_subclass(Wrapped), exp_avg, exp_avg_sq, grads, step=1)


@native
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 0),
        ({"hyper": None}, 1),
        ({"grads": None}, 1),
        ({"size": -1}, 2),
        ({"size": 2**62}, 2),
        ({"dtype": 2}, 4),
        ({"isa": 3}, 5),
        ({"isa": -2}, 5),
        ({"threads": -1}, 6),
        ({"threads": 1025}, 6),
        ({"shift": 2}, 7),
        ({"alias": True}, 8),
    ],
)
def test_the_library_itself_refuses_bad_arguments(change, status):
    floats = [(ctypes.c_float * 9)(*range(9)) for _ in range(4)]
    params, exp_avg, exp_avg_sq, grads = (ctypes.addressof(buffer) for buffer in floats)
    if change.get("alias"):
        exp_avg = params + 4
    got = kernel._load().native.place_adamw(
        change.get("hyper", ctypes.byref(kernel._Hyper(1e-3, 0.9, 0.99, 1e-8, 0.0, 1.0, 1))),
        params + change.get("shift", 0),
        exp_avg,
        exp_avg_sq,
        change.get("grads", grads),
        change.get("dtype", 0),
        None,
        change.get("size", 8),
        change.get("threads", 1),
        change.get("isa", -1),
    )
    assert got == status
    assert (list(floats[0]) == list(range(9))) == (status != 0)


IN_A_CHILD = """
import array, ctypes, os, sys
from placelang.backend.offload import kernel

assert "torch" not in sys.modules and "numpy" not in sys.modules
library = kernel._load().native

def outcome():
    size = 100_000
    buffers = [array.array("f", [scale] * size) for scale in (1.0, 0.0, 0.0, 0.5)]
    hyper = kernel._Hyper(1e-3, 0.9, 0.99, 1e-8, 0.1, 1.0, 1)
    addresses = [buffer.buffer_info()[0] for buffer in buffers]
    assert library.place_adamw(ctypes.byref(hyper), *addresses, 0, None, size, 3, -1) == 0
    return buffers

expected = outcome()
child = os.fork()
if child == 0:
    os._exit(0 if outcome() == expected == outcome() else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert outcome() == expected
"""


@native
def test_a_forked_child_makes_its_own_threads():
    subprocess.run([sys.executable, "-c", IN_A_CHILD], check=True, timeout=60)


@native
def test_the_default_threads_follow_affinity_and_the_environment():
    def threads(code="", **environment):
        script = f"import os\n{code}\nfrom placelang.backend.offload import kernel\nprint(kernel.threads())"
        clean = {"PATH": "/usr/bin:/bin", **environment}
        return int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=clean).stdout)

    assert threads(OMP_NUM_THREADS="1") == 1
    assert threads(OMP_NUM_THREADS="1,4") == 1
    assert threads(OMP_NUM_THREADS="nonsense") == threads()
    if sys.platform == "linux":
        assert threads("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})") == 1
