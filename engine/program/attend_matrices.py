"""Which cooperative matrices decode attention takes, and its ranges: shaders/attend_matrices.comp is the other half.

They serve query heads that share keys; where one head has a key to itself there is nothing to multiply it by together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.models.config import Geometry
from engine.program.attend_division import attend_lanes
from engine.vulkan.cooperative_matrix import MatrixSize
from engine.vulkan.pipelines import Defines

_PASS_DIMS = 64  # of a head, that are in shared memory at once
_UNIT_DIMS = 8  # 16 bytes
_MOST_HEAD_SIZE = 128  # by registers: keys and values of a range are all under way at once
_COLUMNS_A_HEAD = 2  # float16 numbers that stand for one
_OTHER_SHARED_BYTES = 1024  # the persistent mode's among them


class AttendMatrices(NamedTuple):
    """A workgroup of ``lanes`` takes ``heads`` of a KV head's ``shared`` query heads, and ranges of ``tokens``."""

    size: MatrixSize
    lanes: int
    heads: int
    shared: int
    tokens: int

    def defines(self) -> Defines:
        """What attend_matrices.comp must know, besides HEAD_DIM and MERGE."""
        return {
            "MATRIX_M": self.size.m, "MATRIX_N": self.size.n, "MATRIX_K": self.size.k,
            "LANES": self.lanes, "HEADS": self.heads, "SHARED": self.shared, "SPLIT": self.tokens,
        }  # fmt: skip


def attend_matrices(
    g: Geometry, sizes: Iterable[MatrixSize], subgroup_size: int, shared_bytes: int
) -> AttendMatrices | None:
    """With the one of ``sizes`` that leaves the fewest columns idle; None where attend_groups.comp is to be taken.

    Part of the arithmetic. ``shared_bytes``: a workgroup's shared memory.
    """
    found = [made for size in sizes if (made := _with(g, size, subgroup_size, shared_bytes))]
    return min(found, key=lambda made: (-made.heads, made.size.n, -made.size.m * made.size.k), default=None)


def _with(g: Geometry, size: MatrixSize, subgroup_size: int, shared_bytes: int) -> AttendMatrices | None:
    """With matrices of this size, where the kernel can have them."""
    shared = g.heads // g.kv_heads
    m, n, k = size
    if shared < 2 or g.head_size > _MOST_HEAD_SIZE or n % 4 or n < 2 * _COLUMNS_A_HEAD:
        return None
    if any(step % _UNIT_DIMS or _PASS_DIMS % step or g.head_size % step for step in (m, k)):
        return None
    lanes = attend_lanes(subgroup_size)
    subgroups, slots = lanes // subgroup_size, subgroup_size * _UNIT_DIMS // _PASS_DIMS
    shares = subgroups * m // _PASS_DIMS  # of a range's tokens
    if subgroup_size < m or not slots or m % slots or subgroups % 4 or not shares or subgroups * m % _PASS_DIMS:
        return None
    tokens = subgroups * m
    if tokens // shares % k:
        return None
    sharers = -(-shared * _COLUMNS_A_HEAD // n)  # workgroups of a KV head, with as many heads each
    heads = -(-shared // sharers)
    units = _PASS_DIMS // _UNIT_DIMS
    tile = tokens * (units + 1)
    sums = shares * n * (-(-g.head_size // _PASS_DIMS) * _PASS_DIMS // 4 + 1)
    held = tile + n * (g.head_size // _UNIT_DIMS + 1) + n * (tokens // _UNIT_DIMS + 1)
    if heads > subgroups or sums > tile or 16 * held + 8 * heads * subgroups + _OTHER_SHARED_BYTES > shared_bytes:
        return None
    return AttendMatrices(size, lanes, heads, shared, tokens)
