"""How decode attention is shared out among a GPU's workgroups; docs/performance.md says how it was counted.

How many query heads share a workgroup, and which token ranges it takes, changes no bit. The numbers are those of an
H200, and what other devices begin with.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.models.config import Geometry
from engine.vulkan.pipelines import Resident

_LANES = 512
LEAST_RANGE_TOKENS = 64  # no device's token ranges are shorter; those of software devices have so many
_LANE_TOKENS = 4  # of a chunk: whose keys and values, a load each, are under way at once
_CHUNKS = 2  # of a range
_MULTIPROCESSORS = 132  # a workgroup each: more registers than that may allow two
_MOST_HEADS = 4  # by registers
_MOST_RESIDENT_HEADS = 2
_ALONE_TOKENS = 512  # of context, up to which every head has a workgroup of its own
_OTHER_SHARED_BYTES = 2048


class AttendShape(NamedTuple):
    """``lanes`` a workgroup, of which ``lanes_a_token`` share a token, and a range's tokens: part of the arithmetic."""

    lanes: int
    lanes_a_token: int
    tokens: int


class AttendDivision(NamedTuple):
    """A workgroup takes ``heads`` query heads of a KV head, and one of ``workgroups`` parts of the token ranges."""

    heads: int
    workgroups: int


def attend_lanes(subgroup_size: int) -> int:
    """Invocations a workgroup; part of the arithmetic."""
    return max(64, min(_LANES, 16 * subgroup_size))


def attend_shape(head_size: int, subgroup_size: int) -> AttendShape:
    """The shape of decode attention on a GPU."""
    lanes = attend_lanes(subgroup_size)
    units = head_size // 8  # of 16 bytes; a power of two of lanes shares a token
    lanes_a_token = min(subgroup_size, max(8, 1 << (units - 1).bit_length()))
    return AttendShape(lanes, lanes_a_token, lanes // lanes_a_token * _LANE_TOKENS * _CHUNKS)


def range_tokens(head_size: int, subgroup_size: int, row_kernels: bool) -> int:
    """Tokens of a range of decode attention; frozen for a device, since others change bits."""
    return LEAST_RANGE_TOKENS if row_kernels else attend_shape(head_size, subgroup_size).tokens


def most_heads(g: Geometry, subgroup_size: int, shared_bytes: int, resident: Resident | None) -> int:
    """The query heads that a workgroup of decode attention takes where many tokens are seen: a power of two.

    ``shared_bytes``: a workgroup's shared memory, which holds each subgroup's results.
    """
    shared = g.heads // g.kv_heads
    shape = attend_shape(g.head_size, subgroup_size)
    most = min(_MOST_RESIDENT_HEADS if resident else _MOST_HEADS, 1 << (shared - 1).bit_length())
    subgroups = shape.lanes // subgroup_size
    head_bytes = 4 * (
        subgroups * (g.head_size + 8) + 2 * g.head_size + shape.lanes // shape.lanes_a_token * _LANE_TOKENS
    )
    while most > 1 and most * head_bytes + _OTHER_SHARED_BYTES > shared_bytes:
        most //= 2
    return most


def attend_division(
    heads: int, kv_heads: int, most: int, ranges: int, tokens: int, resident: Resident | None
) -> AttendDivision:
    """The division for up to ``ranges`` ranges of ``tokens``, with ``most`` heads a workgroup or one.

    Few tokens leave every head a workgroup of its own. Of many, workgroups share the work so that all of them run at
    the same time: those that are ``resident``, else as many as an H200 has multiprocessors.
    """
    shared = most if sees_many(ranges * tokens) or resident is not None else 1
    return shared_division(heads, kv_heads, shared, ranges, resident)


def sees_many(tokens: int) -> bool:
    """Whether a bucket's ranges are so many ``tokens`` that query heads had better share what they load of a key."""
    return tokens > _ALONE_TOKENS


def shared_division(heads: int, kv_heads: int, shared: int, ranges: int, resident: Resident | None) -> AttendDivision:
    """The division where ``shared`` heads have a workgroup."""
    parts = min(ranges, most_parts(heads, kv_heads, shared, resident))
    turns = -(-ranges // parts)
    return AttendDivision(shared, -(-ranges // turns))


def most_parts(heads: int, kv_heads: int, shared: int, resident: Resident | None) -> int:
    """How many workgroups that run at the same time can share the ranges of ``shared`` heads."""
    multiprocessors = resident.workgroups if resident else _MULTIPROCESSORS
    return max(1, multiprocessors // sharing_workgroups(heads, kv_heads, shared))


def sharing_workgroups(heads: int, kv_heads: int, shared: int) -> int:
    """Workgroups of all heads, where each takes up to ``shared`` heads of one KV head."""
    return kv_heads * -(-(heads // kv_heads) // shared)


def attended_ranges(bucket: int, window: int, tokens: int) -> int:
    """How many ranges of ``tokens`` a decode token sees at most, at a position within ``bucket`` tokens."""
    ranges = -(-bucket // tokens)
    return min(ranges, -(-(window - 1) // tokens) + 1) if window else ranges
