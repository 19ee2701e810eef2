"""Filling slices on several threads, through staging buffers where the host cannot reach them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.vulkan.staging import PART_BYTES, Staging

if TYPE_CHECKING:
    from engine.vulkan.memory import Memory, Slice

_ALIGNMENT = 16  # of a target in a staging buffer
_MAX_THREADS = 8
_BATCHES = 2  # under way at once, each in a staging buffer of its own


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the data. ``fill`` is given an array of uint8 for each of ``targets`` and writes all of it.

    It is called on another thread, and the arrays may be device memory that is slow to read back. All targets together
    are at most PART_BYTES. ``count`` is what progress counts.
    """

    targets: tuple[Slice, ...]
    fill: Callable[[list[npt.NDArray[np.uint8]]], None]
    count: int


def upload(memory: Memory, pieces: Iterable[Piece], done: Callable[[int], None]) -> None:
    """Fill every piece; ``done`` is told the ``count`` of those that are, some at a time. What ``fill`` raises ends it.

    This thread alone calls Vulkan. The host holds two staging buffers, and what the threads need for a piece each.
    """
    threads = min(_MAX_THREADS, os.cpu_count() or 1)
    pending: deque[tuple[list[Piece], list[Future[None]], Callable[[], None]]] = deque()

    def finish() -> None:
        batch, futures, send = pending.popleft()
        for future in futures:
            future.result()
        send()
        done(sum(piece.count for piece in batch))

    with ThreadPoolExecutor(threads, "zincchat-upload") as pool, ExitStack() as stack:
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        for turn, batch in enumerate(_batches(pieces)):
            arrays, send = _places(memory, batch, turn % _BATCHES)
            futures = [pool.submit(piece.fill, views) for piece, views in zip(batch, arrays, strict=True)]
            pending.append((batch, futures, send))
            if len(pending) == _BATCHES:
                finish()
        while pending:
            finish()


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        more = _staged_bytes(piece)
        if batch and size + more > PART_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += more
    if batch:
        yield batch


def _staged_bytes(piece: Piece) -> int:
    return sum(-(-target.size // _ALIGNMENT) * _ALIGNMENT for target in piece.targets)


def _places(memory: Memory, batch: list[Piece], turn: int) -> tuple[list[list[npt.NDArray[Any]]], Callable[[], None]]:
    """The arrays of each piece's targets, and what sends them on once they are full."""
    if all(target.pointer is not None for piece in batch for target in piece.targets):
        return [[target.host() for target in piece.targets] for piece in batch], lambda: None
    staging: Staging = memory.staging
    room = staging.room(turn)
    arrays, copies, at = [], [], 0
    for piece in batch:
        views = []
        for target in piece.targets:
            views.append(room[at : at + target.size])
            copies.append((target, at))
            at += -(-target.size // _ALIGNMENT) * _ALIGNMENT
        arrays.append(views)
    return arrays, lambda: staging.send(turn, copies)
