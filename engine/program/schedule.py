"""Which ops need a barrier before them."""

from __future__ import annotations

from engine.errors import EngineError
from engine.program.op import Op

BARRIERS = ("every", "needed")


def schedule(ops: list[Op], policy: str) -> list[bool]:
    """For each op, whether a compute-to-compute barrier stands before it.

    ``every`` puts one after each dispatch, ``needed`` only where an op touches a range that an op since
    the last barrier wrote, or writes one that such an op read. The first op needs none: each command
    buffer opens with a barrier of its own. Raise EngineError for an unknown policy.
    """
    if policy == "every":
        return [index > 0 for index in range(len(ops))]
    if policy != "needed":
        raise EngineError(f"unknown barrier policy {policy!r}; there is {', '.join(BARRIERS)}")
    flags = []
    written: list[tuple[int, int]] = []  # address ranges touched since the last barrier
    read: list[tuple[int, int]] = []
    for op in ops:
        buffers = op.buffers
        reads = [(item.address, item.end) for item in (buffers[i] for i in op.kernel.reads) if not item.constant]
        writes = [(item.address, item.end) for item in (buffers[i] for i in op.kernel.writes)]
        hazard = bool(written) and (_overlap(reads, written) or _overlap(writes, written))
        hazard = hazard or (bool(read) and _overlap(writes, read))
        flags.append(hazard)
        if hazard:
            written, read = writes, reads
        else:
            written += writes
            read += reads
    return flags


def _overlap(ranges: list[tuple[int, int]], others: list[tuple[int, int]]) -> bool:
    for start, end in ranges:
        for other_start, other_end in others:
            if start < other_end and other_start < end:
                return True
    return False
