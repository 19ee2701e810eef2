"""How decode attention is shared out among a GPU's workgroups; docs/performance.md says how it was counted.

How many query heads share a workgroup, and which token ranges it takes, changes no bit. The numbers are those of an
H200, and what other devices begin with.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.vulkan.pipelines import Resident

_LANES = 512
LEAST_RANGE_TOKENS = 64  # no device's token ranges are shorter; those of software devices have so many
_LANE_TOKENS = 8  # of a range: whose keys and values, a load each, are all under way at once
_LANE_TOKENS_OF_MANY_LOADS = 4
_MULTIPROCESSORS = 132  # a workgroup each: more registers than that allows two
_MOST_HEADS = 4  # by registers
_MOST_RESIDENT_HEADS = 2
_OTHER_SHARED_BYTES = 1024


class AttendShape(NamedTuple):
    """``lanes`` a workgroup, of which ``lanes_a_token`` share a token, and a range's tokens: part of the arithmetic."""

    lanes: int
    lanes_a_token: int
    tokens: int


class MostHeads(NamedTuple):
    """A workgroup takes up to ``heads`` query heads of a KV head, with room for the results of ``at_once``."""

    heads: int
    at_once: int


class AttendDivision(NamedTuple):
    """A workgroup takes ``heads`` query heads of a KV head, and one of ``workgroups`` parts of the token ranges."""

    heads: int
    workgroups: int


def attend_lanes(subgroup_size: int) -> int:
    """Invocations a workgroup; part of the arithmetic."""
    return max(64, min(_LANES, 16 * subgroup_size))


def attend_shape(head_size: int, subgroup_size: int) -> AttendShape:
    """The shape of decode attention on a GPU: its fixed ranges are what the lanes can have under way at once."""
    lanes = attend_lanes(subgroup_size)
    units = head_size // 8  # of 16 bytes; a power of two of lanes shares a token
    lanes_a_token = min(subgroup_size, max(_LANE_TOKENS, 1 << (units - 1).bit_length()))
    tokens = _LANE_TOKENS if units <= lanes_a_token else _LANE_TOKENS_OF_MANY_LOADS
    return AttendShape(lanes, lanes_a_token, lanes // lanes_a_token * min(tokens, lanes_a_token))


def range_tokens(head_size: int, subgroup_size: int, row_kernels: bool) -> int:
    """Tokens of a range of decode attention; frozen for a device, since others change bits."""
    return LEAST_RANGE_TOKENS if row_kernels else attend_shape(head_size, subgroup_size).tokens


def most_heads(
    heads: int, kv_heads: int, head_size: int, subgroup_size: int, shared_bytes: int, resident: Resident | None
) -> MostHeads:
    """What a workgroup of decode attention takes where many tokens are seen.

    ``shared_bytes``: a workgroup's shared memory, which holds each subgroup's results.
    """
    shared = heads // kv_heads
    most = -(-shared // -(-shared // (_MOST_RESIDENT_HEADS if resident else _MOST_HEADS)))
    shape = attend_shape(head_size, subgroup_size)
    subgroups = shape.lanes // subgroup_size
    others = _OTHER_SHARED_BYTES + most * (4 * shape.tokens + 8 * subgroups)
    fitting = max(1, (shared_bytes - others) // (subgroups * 4 * head_size))
    batches = -(-most // fitting)
    return MostHeads(most, -(-most // batches))


def attend_division(heads: int, kv_heads: int, most: int, ranges: int, resident: Resident | None) -> AttendDivision:
    """The division for up to ``ranges`` token ranges, with ``most`` heads a workgroup or one.

    Few ranges leave every head a workgroup of its own. Of many, workgroups share the work so that all of them run at
    the same time: those that are ``resident``, else as many as an H200 has multiprocessors.
    """
    multiprocessors = resident.workgroups if resident else _MULTIPROCESSORS
    shared = 1 if ranges * heads <= multiprocessors and resident is None else most
    parts = max(1, min(ranges, multiprocessors // sharing_workgroups(heads, kv_heads, shared)))
    turns = -(-ranges // parts)
    return AttendDivision(shared, -(-ranges // turns))


def sharing_workgroups(heads: int, kv_heads: int, shared: int) -> int:
    """Workgroups of all heads, where each takes up to ``shared`` heads of one KV head."""
    return kv_heads * -(-(heads // kv_heads) // shared)


def attended_ranges(bucket: int, window: int, tokens: int) -> int:
    """How many ranges of ``tokens`` a decode token sees at most, at a position within ``bucket`` tokens."""
    ranges = -(-bucket // tokens)
    return min(ranges, -(-(window - 1) // tokens) + 1) if window else ranges
