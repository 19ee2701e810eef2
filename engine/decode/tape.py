"""A decode program as the resident kernel reads it, and what the kernel leaves; mirrors shaders/include/tape.glsl."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.program.op import Op
from engine.program.resident import RECORD_PUSH_BYTES
from engine.vulkan.pipelines import Kernel

_WAITS, _ARRIVES = 1, 2
_HEADER = struct.Struct("<4I")
RECORD_BYTES = _HEADER.size + RECORD_PUSH_BYTES
_HEADER_WORDS = 4
_RESULT_WORDS = 8
_LAST = 2
MOST_TOKENS = 8  # a dispatch
RESULTS_BYTES = 4 * (_HEADER_WORDS + MOST_TOKENS * _RESULT_WORDS)


class Made(NamedTuple):
    """A token that a dispatch made: its id, and when by the kernels' clock."""

    id: int
    start_ticks: int
    end_ticks: int
    last: bool  # an end token: nothing is made behind it


def encode(ops: Sequence[Op], barriers: Sequence[bool], numbers: Mapping[Kernel, int]) -> bytes:
    """The tape: a record an op. The first waits for the last one of the token before."""
    count = len(ops)
    records = []
    for index, op in enumerate(ops):
        waits = index == 0 or barriers[index]
        arrives = index + 1 == count or barriers[index + 1]
        flags = _WAITS * waits | _ARRIVES * arrives
        record = _HEADER.pack(numbers[op.kernel], flags, op.groups[0], op.groups[1]) + op.push
        records.append(record.ljust(RECORD_BYTES, b"\0"))
    return b"".join(records)


def aborted(results: npt.NDArray[np.uint32]) -> bool:
    """Whether a workgroup waited in vain. ``results``: RESULTS_BYTES as uint32."""
    return bool(results[0])


def made(results: npt.NDArray[np.uint32], tokens: int) -> list[Made]:
    """What was made of ``tokens``: fewer than these behind an end token."""
    rows = results[_HEADER_WORDS:].reshape(MOST_TOKENS, _RESULT_WORDS)[:tokens].tolist()
    return [Made(row[1], row[2] | row[3] << 32, row[4] | row[5] << 32, row[0] == _LAST) for row in rows if row[0]]
