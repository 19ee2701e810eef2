"""Norm, addition, bias and activation against float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.gpu import POISON, Gpu


@pytest.fixture(scope="module")
def gpu():
    with Gpu() as device:
        yield device


@pytest.mark.parametrize("groups_of_lanes", [1, 4])  # one subgroup, as on software devices; several, as on GPUs
@pytest.mark.parametrize(("tokens", "width"), [(1, 576), (3, 96), (5, 1031)])
def test_norm(gpu, groups_of_lanes, tokens, width):
    rng = np.random.default_rng()
    x = rng.normal(size=(tokens, width)).astype(np.float32)
    x[0, width // 2] = 1e4  # real models have outliers
    weight = rng.normal(size=width).astype(np.float32)
    y = gpu.poisoned(x.nbytes)
    defines = {"LANES": gpu.device.subgroup_size * groups_of_lanes}
    gpu.dispatch("norm", (gpu.array(x), gpu.array(weight), y), (width, 1 / width, 1e-5), (tokens, 1, 1), defines)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * weight
    result = gpu.read(y)
    assert np.abs(result.reshape(expected.shape) - expected).max() < 1e-5 * np.abs(expected).max()

    before = rng.normal(size=x.shape).astype(np.float32)
    added = gpu.array(before)
    buffers = (gpu.array(x), gpu.array(weight), added)
    gpu.dispatch("norm", buffers, (width, 1 / width, 1e-5), (tokens, 1, 1), {**defines, "ADD": 1})
    assert np.array_equal(gpu.read(added), before.reshape(-1) + result)  # as norm, then add


@pytest.mark.parametrize("count", [1, 63, 1000])
def test_add(gpu, count):
    x, y = np.random.default_rng().normal(size=(2, count)).astype(np.float32)
    target = gpu.array(x)
    gpu.dispatch("add", (target, gpu.array(y)), (count,), (-(-count // 64), 1, 1))
    assert np.array_equal(gpu.read(target)[:count], x + y)


@pytest.mark.parametrize(("tokens", "width"), [(1, 63), (7, 1000)])
def test_bias(gpu, tokens, width):
    rng = np.random.default_rng()
    x, bias = rng.normal(size=(tokens, width)).astype(np.float32), rng.normal(size=width).astype(np.float32)
    target = gpu.array(x)
    gpu.dispatch("bias", (target, gpu.array(bias)), (width, x.size), (-(-x.size // 64), 1, 1))
    assert np.array_equal(gpu.read(target)[: x.size].reshape(x.shape), x + bias)


@pytest.mark.parametrize("count", [1, 63, 1000])
def test_gelu(gpu, count):
    rng = np.random.default_rng()
    gate, up = (rng.normal(size=count) * 4).astype(np.float32), rng.normal(size=count).astype(np.float32)
    gate[0] = rng.choice([-1e4, 1e4])  # real models have outliers
    result = gpu.poisoned(gate.nbytes + 64)
    gpu.dispatch("gelu_mul", (gpu.array(gate), gpu.array(up), result), (count,), (-(-count // 64), 1, 1))
    wide = gate.astype(np.float64)
    expected = wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))) * up
    found = gpu.read(result)
    assert (np.abs(found[:count] - expected) < 1e-5 * np.maximum(1, np.abs(expected))).all()
    assert (found[count:].view(np.uint8) == POISON).all(), "wrote past the last element"
