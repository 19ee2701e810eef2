"""Norm, addition, bias and activation against float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.program.small_kernels import norm_defines
from tests.engine.gpu import POISON, Gpu
from tests.engine.weight_data import assert_within, fresh_random, norm_error


@pytest.fixture(scope="module")
def gpu():
    with Gpu() as device:
        yield device


@pytest.fixture(scope="module")
def gpu_kernels():
    with Gpu(row_kernels=False) as device:
        yield device


@pytest.mark.parametrize("kind", ["own", "gpu"])
@pytest.mark.parametrize(("tokens", "width"), [(1, 576), (3, 96), (5, 1031), (2, 4)])
def test_norm(gpu, gpu_kernels, kind, tokens, width):
    device = gpu if kind == "own" else gpu_kernels
    rng = fresh_random()
    x = rng.normal(size=(tokens, width)).astype(np.float32)
    x[0, width // 2] = 1e4  # real models have outliers
    weight = rng.normal(size=width).astype(np.float32)
    y = device.poisoned(x.nbytes)
    defines = norm_defines(width, device.device.subgroup_size, device.device.row_kernels)
    device.dispatch(
        "norm", (device.array(x), device.array(weight), y), (width, 1 / width, 1e-5), (tokens, 1, 1), defines
    )
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * weight
    result = device.read(y)
    assert_within(result, expected, norm_error(width) * np.abs(expected))

    before = rng.normal(size=x.shape).astype(np.float32)
    added = device.array(before)
    buffers = (device.array(x), device.array(weight), added)
    device.dispatch("norm", buffers, (width, 1 / width, 1e-5), (tokens, 1, 1), {**defines, "ADD": 1})
    assert np.array_equal(device.read(added), before.reshape(-1) + result)  # as norm, then add


@pytest.mark.parametrize("count", [1, 63, 1000])
def test_add(gpu, count):
    x, y = fresh_random().normal(size=(2, count)).astype(np.float32)
    target = gpu.array(x)
    gpu.dispatch("add", (target, gpu.array(y)), (count,), (-(-count // 64), 1, 1))
    assert np.array_equal(gpu.read(target)[:count], x + y)


@pytest.mark.parametrize(("tokens", "width"), [(1, 63), (7, 1000)])
def test_bias(gpu, tokens, width):
    rng = fresh_random()
    x, bias = rng.normal(size=(tokens, width)).astype(np.float32), rng.normal(size=width).astype(np.float32)
    target = gpu.array(x)
    gpu.dispatch("bias", (target, gpu.array(bias)), (width, x.size), (-(-x.size // 64), 1, 1))
    assert np.array_equal(gpu.read(target)[: x.size].reshape(x.shape), x + bias)


@pytest.mark.parametrize("count", [1, 63, 1000])
def test_gelu(gpu, count):
    rng = fresh_random()
    gate, up = (rng.normal(size=count) * 4).astype(np.float32), rng.normal(size=count).astype(np.float32)
    gate[0] = rng.choice([-1e4, 1e4])  # real models have outliers
    result = gpu.poisoned(gate.nbytes + 64)
    gpu.dispatch("gelu_mul", (gpu.array(gate), gpu.array(up), result), (count,), (-(-count // 64), 1, 1))
    wide = gate.astype(np.float64)
    expected = wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))) * up
    found = gpu.read(result)
    assert_within(found[:count], expected, 2e-6 * np.abs(wide * up))  # of gate times up: 1 + tanh may cancel out
    assert (found[count:].view(np.uint8) == POISON).all(), "wrote past the last element"
