"""Norm and addition against float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.gpu import Gpu


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
    assert np.abs(gpu.read(y).reshape(expected.shape) - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("count", [1, 63, 1000])
def test_add(gpu, count):
    x, y = np.random.default_rng().normal(size=(2, count)).astype(np.float32)
    target = gpu.array(x)
    gpu.dispatch("add", (target, gpu.array(y)), (count,), (-(-count // 64), 1, 1))
    assert np.array_equal(gpu.read(target)[:count], x + y)
