"""Decode attention by cooperative matrices: against float64 numpy, and its bits however it is shared out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from engine.decode.flags import unavailable
from engine.models.config import Geometry
from engine.program.attend_division import sharing_workgroups
from engine.program.attend_matrices import attend_matrices
from engine.vulkan.pipelines import Defines
from tests.engine.gpu import Gpu, WaitingGpu
from tests.engine.shaders.test_attention import Decode, decode, gated
from tests.engine.weight_data import assert_within, fresh_random


@pytest.fixture(scope="module")
def gpu():
    with Gpu() as device:
        yield device


@pytest.fixture(scope="module")
def others() -> Iterator[list[Gpu]]:
    """Devices whose kernels are other builds: for waits in memory, and for the validation layer."""
    with ExitStack() as stack:
        devices = [stack.enter_context(Gpu(binding="descriptors"))]
        if unavailable(stack.enter_context(Gpu()).device) is None:
            devices.append(stack.enter_context(WaitingGpu()))
        yield devices


def matrix_defines(gpu: Gpu, size: int, heads: int, kv_heads: int) -> Defines:
    geometry = cast(Geometry, SimpleNamespace(head_size=size, heads=heads, kv_heads=kv_heads))
    device = gpu.device
    found = attend_matrices(geometry, device.matrix_sizes, device.subgroup_size, device.shared_bytes)
    if found is None:
        pytest.skip("this device has no cooperative matrices of a size that fits")
    return found.defines()


def run(gpu: Gpu, case: Decode, defines: Defines, parts: int, merged: str) -> np.ndarray:
    sharers = sharing_workgroups(case.heads, case.kv_heads, int(defines["HEADS"]))
    return case.run(gpu, "attend_matrices", (parts, sharers), defines, merged)


@pytest.mark.parametrize(
    ("size", "heads", "kv_heads", "position", "window", "joined"),
    [
        *(
            (64, 9, 3, 0, 0, "here"),
            (64, 9, 3, 1000, 0, "here"),
            (16, 8, 1, 127, 0, "here"),
            (32, 10, 2, 256, 0, "here"),
        ),
        *((128, 8, 2, 4095, 0, "here"), (80, 7, 1, 700, 300, "gated"), (96, 4, 2, 513, 65, "here")),
        *((16, 8, 1, 600, 1, "here"), (16, 8, 1, 257, 2, "here"), (32, 10, 2, 128, 200, "here")),
    ],
)
def test_decode_attention_by_matrices(gpu, size, heads, kv_heads, position, window, joined):
    """Joined apart and here, by however many workgroups, and by the kernel of one range each: the same bits."""
    defines = matrix_defines(gpu, size, heads, kv_heads)
    case = decode(gpu, size, heads, kv_heads, position, window)
    ranges = case.ranges(int(defines["SPLIT"]))
    found = run(gpu, case, defines, ranges, "apart")
    assert_within(found, case.expected, case.bound)
    expected = gated(gpu, found, case.inputs[-1]) if joined == "gated" else found
    for parts in sorted({1, min(ranges, 3), ranges}):
        assert np.array_equal(run(gpu, case, defines, parts, joined), expected), parts
        assert np.array_equal(run(gpu, case, defines, parts, "apart"), found), parts
    for joining, same in ((joined, expected), ("apart", found)):
        assert np.array_equal(run(gpu, case, defines | {"ONE_RANGE": 1}, ranges, joining), same), joining


@pytest.mark.parametrize(
    ("size", "heads", "kv_heads", "joined"),
    [(16, 8, 1, "here"), (32, 10, 2, "apart"), (64, 9, 3, "here"), (80, 7, 1, "gated"), (128, 4, 2, "here")],
)
def test_every_build_makes_the_same_bits(gpu, others, size, heads, kv_heads, joined):
    """About the ends of ranges and windows. No build reads what is not seen, where each of these has NaN."""
    defines = matrix_defines(gpu, size, heads, kv_heads)
    tokens = int(defines["SPLIT"])
    places = (
        (0, 0),
        (1, 1),
        (1, 0),
        (tokens - 1, 0),
        (tokens, 0),
        (tokens, 1),
        (2 * tokens, tokens),
        (2 * tokens - 1, 2),
    )
    for position, window in places:
        case = decode(gpu, size, heads, kv_heads, position, window)
        ranges = case.ranges(tokens)
        expected = run(gpu, case, defines, ranges, joined)
        if joined != "gated":
            assert_within(expected, case.expected, case.bound)
        for other in others:
            copies = tuple(other.array(gpu.read(item, np.uint8)) for item in case.inputs)
            for parts in range(1, ranges + 1):
                same = run(other, case._replace(inputs=copies), defines, parts, joined)
                assert np.array_equal(same, expected), (position, window, parts)
            same = run(other, case._replace(inputs=copies), defines | {"ONE_RANGE": 1}, ranges, joined)
            assert np.array_equal(same, expected), (position, window)


def test_a_head_does_not_depend_on_the_others(gpu):
    size, heads, kv_heads, position = 32, 8, 2, 300
    defines = matrix_defines(gpu, size, heads, kv_heads)
    case = decode(gpu, size, heads, kv_heads, position, 0)
    found = run(gpu, case, defines, 2, "here")
    for fewer in (1, 2, 3):
        assert np.array_equal(run(gpu, case, defines | {"HEADS": fewer}, 2, "here"), found), fewer
    queries = gpu.read(case.inputs[0]).reshape(heads, size)
    for head in (0, 5, 7):
        others = fresh_random().normal(size=(heads, size)).astype(np.float32) * 1e4
        others[head] = queries[head]
        beside = case._replace(inputs=(gpu.array(others), *case.inputs[1:]))
        same = run(gpu, beside, defines, 3, "here").reshape(heads, size)[head]
        assert np.array_equal(same, found.reshape(heads, size)[head])


def test_outliers_of_queries_keys_and_values(gpu):
    """Numbers of 1e4 take no precision from the small ones that they are multiplied by, nor from their neighbours."""
    defines = matrix_defines(gpu, 64, 6, 2)
    case = decode(gpu, 64, 6, 2, 777, 0, outlier=1e4)
    found = run(gpu, case, defines, 2, "here")
    assert_within(found, case.expected, case.bound)
    assert np.abs(case.expected).max() > 1e3
    assert case.bound.max() < 1e-2 * np.abs(case.expected).max()
