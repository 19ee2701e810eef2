"""Filling slices on several threads: straight into memory, and by way of staging buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from engine.vulkan import staging, upload
from engine.vulkan.memory import Slice
from engine.vulkan.upload import Piece
from tests.engine.gpu import Gpu
from tests.engine.weight_data import fresh_random

PART = 4096


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    monkeypatch.setattr(staging, "PART_BYTES", PART)
    monkeypatch.setattr(upload, "PART_BYTES", PART)
    with Gpu() as opened:
        yield opened


def as_is(item: Slice) -> Slice:
    return item


def unmapped(item: Slice) -> Slice:
    return Slice(item.buffer, item.offset, item.size, item.address, None, item.constant)


@pytest.mark.parametrize("seen", [as_is, unmapped])
def test_every_target_holds_what_its_piece_wrote(gpu: Gpu, seen: Callable[[Slice], Slice]) -> None:
    random = fresh_random()
    sizes = [(PART,), (16,), (700, 20), (PART - 16, 16), *((int(size), 33) for size in random.integers(16, 2000, 40))]
    data = [[random.integers(0, 256, size, np.uint8) for size in pair] for pair in sizes]
    targets = [[seen(gpu.poisoned(size)) for size in pair] for pair in sizes]
    threads = set()

    def piece(index: int) -> Piece:
        def fill(views: list[npt.NDArray[np.uint8]]) -> None:
            threads.add(threading.current_thread())
            for view, values in zip(views, data[index], strict=True):
                view[...] = values

        return Piece(tuple(targets[index]), fill, index)

    counted: list[int] = []
    upload.upload(gpu.memory, map(piece, range(len(sizes))), counted.append)
    gpu.memory.flush()
    assert sum(counted) == sum(range(len(sizes)))
    assert len(counted) > 3, "progress comes in steps"
    assert threading.current_thread() not in threads
    for slices, values in zip(targets, data, strict=True):
        for target, expected in zip(slices, values, strict=True):
            np.testing.assert_array_equal(gpu.memory.read(target), expected)


def test_a_piece_that_fails_ends_it_with_its_own_error(gpu: Gpu) -> None:
    target = unmapped(gpu.poisoned(PART))
    started = []

    def fill(index: int) -> None:
        started.append(index)
        if index == 3:
            raise RuntimeError("piece 3")

    pieces = (Piece((target,), lambda views, index=index: fill(index), 1) for index in range(1000))  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="piece 3"):
        upload.upload(gpu.memory, pieces, lambda count: None)
    gpu.memory.flush()
    assert len(started) < 10, "no further pieces are begun"
