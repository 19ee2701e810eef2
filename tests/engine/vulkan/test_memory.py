"""Slices of known sizes: in few blocks that hold nothing else, and never over each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.vulkan import memory
from tests.engine.gpu import Gpu

BLOCK = 4096


def test_slices_fill_blocks_in_order_and_keep_their_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_LARGE_BLOCK_BYTES", BLOCK)
    sizes = [1, 16, 256, 257, 2000, 3 * BLOCK + 5, 300, BLOCK, 12]  # one is larger than a block
    random = np.random.default_rng()
    with Gpu() as gpu:
        before = gpu.memory.allocated_bytes
        slices = gpu.memory.allocate_many(sizes, constant=True)
        padded = [-(-size // memory.ALIGNMENT) * memory.ALIGNMENT for size in sizes]
        assert gpu.memory.allocated_bytes - before == sum(padded), "no block is larger than what it holds"
        assert [item.size for item in slices] == [max(size, 16) for size in sizes]
        assert len({item.buffer for item in slices}) == 5
        assert all(item.constant and item.address % memory.ALIGNMENT == 0 for item in slices)
        for one, other in itertools.pairwise(sorted(item.range for item in slices)):
            assert one[1] <= other[0]
        data = [random.integers(0, 256, item.size, np.uint8) for item in slices]
        for item, values in zip(slices, data, strict=True):
            gpu.memory.write(item, values)
        gpu.memory.flush()
        for item, values in zip(slices, data, strict=True):
            np.testing.assert_array_equal(gpu.memory.read(item), values)
