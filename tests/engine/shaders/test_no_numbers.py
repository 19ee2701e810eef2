"""What is no number stays none: a row's product with it, whatever kernel makes it. What is large stays what it is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from engine.decode.sampling import Sampling
from engine.decode.state import STATE_BYTES, STEP_BYTES, initial_state, pack_step
from engine.program import matrix, sample
from engine.program.operands import Caches, Norm
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Kernels
from tests.engine.gpu import Gpu
from tests.engine.matrices import make_weight
from tests.engine.shaders.conftest import Variants
from tests.engine.weight_data import TYPES, T, product_bound, random_raw, values

ROWS, COLS, HALF = 11, 768, 16  # columns that may have a scale of their own


def spoilt(random: np.random.Generator) -> list[npt.NDArray[np.float32]]:
    """Inputs with one that is no number: in the first and last half of a block, and anywhere."""
    places = (random.integers(HALF), COLS - 1 - random.integers(HALF), random.integers(COLS))
    inputs = random.standard_normal((9, COLS)).astype(np.float32)
    for x, (place, value) in zip(inputs, ((p, v) for p in places for v in (np.nan, np.inf, -np.inf)), strict=True):
        x[place] = value
    return list(inputs)


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_products(gpu: Gpu, kernels: Kernels, random: np.random.Generator, type: T) -> None:
    weight = make_weight(gpu, kernels, random_raw(random, type, ROWS, COLS), type, ROWS, COLS)
    for x in spoilt(random):
        y = gpu.poisoned(ROWS * 4)
        gpu.run(matrix.matvec(kernels, weight, gpu.array(x), y))
        assert not np.isfinite(gpu.read(y)).any()


@pytest.mark.parametrize("type", [T.F16, T.Q4_0, T.Q4_1, T.Q8_0, T.Q6_K], ids=lambda type: type.name)
def test_fused_ones(gpu: Gpu, variants: Variants, random: np.random.Generator, type: T) -> None:
    kernels, size, context = variants["gpu"], 6, 4
    rows = 3 * size  # one head each of q, k and v
    weight = make_weight(gpu, kernels, random_raw(random, type, rows, COLS), type, rows, COLS)
    norm = Norm(gpu.array(random.uniform(0.5, 1.5, COLS).astype(np.float32)), 1e-5)
    table = gpu.array(random.uniform(0.1, 1, (context, size // 2, 2)).astype(np.float32))
    step = gpu.memory.allocate(STEP_BYTES, "upload")
    gpu.memory.write(step, np.frombuffer(pack_step(Sampling(temperature=0.0)), np.uint8))
    state = gpu.array(np.frombuffer(initial_state(0, 0, ()), np.uint8))
    assert state.size == STATE_BYTES
    for x_host in spoilt(random):
        x, normed, gated, logits, q = (
            gpu.array(x_host),
            *(gpu.poisoned(rows * 4) for _ in range(3)),
            gpu.poisoned(size * 4),
        )
        k, v = (gpu.array(np.zeros(context * size, np.float16)) for _ in range(2))
        scan: tuple[Slice, Slice, Slice, int] = (step, state, gpu.poisoned(sample.scratch_bytes(rows)), 1024)
        caches = Caches(table, k, v, state, 1, 1, context)
        gpu.run(
            matrix.matvec(kernels, weight, x, normed, norm=norm),
            matrix.gate_up(kernels, weight, weight, x, gated, norm=norm),
            matrix.qkv(kernels, weight, x, q, caches, {"HEAD_DIM": size, "ROTATED": size}, norm=norm),
            matrix.head_keys(kernels, weight, x, logits, scan, norm=norm)[0],
        )
        for found in (normed, gated, logits, q):
            assert not np.isfinite(gpu.read(found)).any()
        for found in (k, v):
            assert not np.isfinite(gpu.read(found, np.float16)[:size]).any()


@pytest.mark.parametrize("type", [T.F16, T.Q4_0, T.Q8_0, T.Q3_K, T.IQ4_XS], ids=lambda type: type.name)
def test_the_largest_numbers(gpu: Gpu, variants: Variants, random: np.random.Generator, type: T) -> None:
    """Up to the largest there is: kernels for GPUs round x to integers of a unit that is a part of it."""
    raw = random_raw(random, type, ROWS, COLS)
    weights = values(raw, type, ROWS, COLS).astype(np.float64)
    kernels = variants["gpu"]
    weight = make_weight(gpu, kernels, raw, type, ROWS, COLS)
    x = np.zeros(COLS, np.float32)
    for size in (1.6e38, 1.8e38, 3e38, np.finfo(np.float32).max):
        place = random.integers(COLS // HALF) * HALF
        x[place : place + HALF] = size
        x[place + 1 : place + HALF : 2] = -size / 2
        exact = weights @ x
        y = gpu.poisoned(ROWS * 4)
        gpu.run(matrix.matvec(kernels, weight, gpu.array(x), y))
        fits = np.abs(weights[:, place : place + HALF]).sum(1) * size < 3e38
        error = np.abs(gpu.read(y) - exact)
        assert (error <= product_bound(weights, x[None])[0])[fits].all(), size
        x[:] = 0
