"""How decode attention is shared out among a GPU's workgroups; docs/performance.md says how it was counted.

How many query heads share a workgroup, and which token ranges it takes, changes no bit. The numbers are those of an
H200, and what other devices begin with.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.vulkan.pipelines import Resident

_LANES = 512
SPLIT_TOKENS = 64  # the fixed token ranges of decode attention; frozen, since another changes bits
_MULTIPROCESSORS = 132
_GROUPS_A_MULTIPROCESSOR = 2  # of 512 invocations, with 64 registers each
_LARGEST_HEAD_OF_TWO = 128  # larger ones take more registers
_MOST_HEADS = 8
_SHORT_RANGES = 8  # up to so many there are more multiprocessors than work
_OTHER_SHARED_BYTES = 1024
_LEAST_TURN_US = 0.8  # 32 KB of keys and values from the L2 cache
_TURN_US, _HEAD_US = 0.28, 0.18  # by instructions


class AttendDivision(NamedTuple):
    """A workgroup takes ``heads`` query heads of a KV head, and one of ``workgroups`` parts of the token ranges."""

    heads: int
    workgroups: int


class MostHeads(NamedTuple):
    """A workgroup takes up to ``heads`` query heads of a KV head, with room for the results of ``at_once``."""

    heads: int
    at_once: int


def attend_lanes(subgroup_size: int) -> int:
    """Invocations a workgroup; part of the arithmetic."""
    return max(64, min(_LANES, 16 * subgroup_size))


def most_heads(heads: int, kv_heads: int, head_size: int, subgroup_size: int, shared_bytes: int) -> MostHeads:
    """What a workgroup of decode attention can take; its heads divide those that share a KV head.

    ``shared_bytes``: a workgroup's shared memory, which holds each subgroup's results.
    """
    most = max(_choices(heads // kv_heads, _MOST_HEADS))
    subgroups = attend_lanes(subgroup_size) // subgroup_size
    others = _OTHER_SHARED_BYTES + most * (8 * head_size + 4 * SPLIT_TOKENS + 4 * subgroups)
    fitting = max(1, (shared_bytes - others) // (subgroups * (4 * head_size + 64)))
    batches = -(-most // fitting)
    return MostHeads(most, -(-most // batches))


def attend_division(
    heads: int, kv_heads: int, head_size: int, most: int, ranges: int, resident: Resident | None
) -> AttendDivision:
    """The division for up to ``ranges`` token ranges, with at most ``most`` heads a workgroup.

    Few ranges leave every head a workgroup of its own. Of many, workgroups share the work so that all of them run at
    the same time: those that are ``resident``, else as many as an H200 holds.
    """
    multiprocessors = resident.workgroups if resident else _MULTIPROCESSORS
    alone = resident is not None or head_size > _LARGEST_HEAD_OF_TWO
    at_once = multiprocessors * (1 if alone else _GROUPS_A_MULTIPROCESSOR)

    def cost(shared: int) -> float:
        turns = -(-ranges * (heads // shared) // multiprocessors)
        return turns * max(_LEAST_TURN_US, _TURN_US + shared * _HEAD_US)

    shared = min(_choices(heads // kv_heads, most), key=cost) if ranges > _SHORT_RANGES else 1
    parts = max(1, min(ranges, at_once // (heads // shared)))
    turns = -(-ranges // parts)
    return AttendDivision(shared, -(-ranges // turns))


def attended_ranges(bucket: int, window: int) -> int:
    """How many ranges of SPLIT_TOKENS a decode token sees at most, at a position within ``bucket`` tokens."""
    ranges = -(-bucket // SPLIT_TOKENS)
    return min(ranges, -(-(window - 1) // SPLIT_TOKENS) + 1) if window else ranges


def _choices(shared: int, most: int) -> list[int]:
    """Divisors of ``shared``, the query heads of a KV head."""
    return [count for count in range(1, most + 1) if shared % count == 0]
