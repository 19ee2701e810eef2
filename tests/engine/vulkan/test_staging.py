"""Copies by way of staging buffers, in parts, to memory that is treated as if the host could not reach it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine.program.op import Op
from engine.vulkan import staging
from engine.vulkan.memory import Slice
from tests.engine.gpu import Gpu
from tests.engine.weight_data import fresh_random

PART = 4096


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    monkeypatch.setattr(staging, "PART_BYTES", PART)
    with Gpu() as opened:
        yield opened


def unmapped(item: Slice) -> Slice:
    return Slice(item.buffer, item.offset, item.size, item.address, None, item.constant)


@pytest.mark.parametrize("size", [1, PART, PART + 1, 5 * PART + 100])
def test_bytes_arrive_where_they_belong_and_come_back(gpu: Gpu, size: int) -> None:
    data = fresh_random().integers(0, 256, size, np.uint8)
    whole = unmapped(gpu.poisoned(size + 32))
    target = whole.part(16, size)
    gpu.memory.write(target, data)
    gpu.memory.flush()
    np.testing.assert_array_equal(gpu.memory.read(target), data)
    around = gpu.memory.read(whole)
    assert (np.delete(around, np.s_[16 : 16 + size]) == around[0]).all()


def test_the_last_of_two_writes_stays(gpu: Gpu) -> None:
    target = unmapped(gpu.poisoned(3 * PART))
    for value in (1, 2):
        gpu.memory.write(target, np.full(3 * PART, value, np.uint8))
    assert (gpu.memory.read(target) == 2).all()


def test_a_kernel_queued_behind_a_write_sees_it(gpu: Gpu) -> None:
    count = 3 * PART // 4
    x, y = (unmapped(gpu.array(np.zeros(count, np.float32))) for _ in range(2))
    gpu.memory.write(x, np.full(count, 2, np.float32))
    gpu.memory.write(y, np.full(count, 3, np.float32))
    gpu.run(Op("add", gpu.kernels.get("add"), (x, y), (count,), (-(-count // 64), 1, 1)))
    assert (gpu.read(x) == 5).all()
