"""How a GPU's matrix-vector kernels divide their rows and columns; docs/performance.md says how it was measured.

``lanes`` is part of a row's arithmetic (its order of summation) and so the same for every kernel; how many rows a
workgroup takes at once, and how many workgroups there are, changes no bit.
"""

from __future__ import annotations

from gguf.constants import GGMLQuantizationType as _T

_MOST_LANES = 128
# what an H200 holds of these kernels at once: four workgroups of 128 a multiprocessor; three where a block and its
# scales take 32 bytes and the norm's weights are loaded early
_INVOCATIONS_WANTED = 1 << 16
_INVOCATIONS_WANTED_WIDE = 3 << 14
_WIDE = (_T.Q4_K, _T.Q6_K)
MOST_GROUPS = 4096
_GROUPS_WANTED = 140  # with fewer tiles, they have fewer rows: each multiprocessor should have one
_ROWS_AT_ONCE = {_T.F32: 1, _T.F16: 2, _T.BF16: 2}  # of all tensors; what registers hold
_DEFAULT_ROWS = 8
_MOST_HEADS_A_GROUP = 1  # to share keys costs an H200 more (fewer workgroups, more registers) than its L2 cache saves


def lanes(cols: int, subgroup_size: int) -> int:
    """Invocations that share a row of ``cols`` columns: one a block of 32 columns, up to a limit."""
    blocks = -(-cols // 32)
    return min(-(-blocks // subgroup_size), _MOST_LANES // subgroup_size) * subgroup_size


def rows_and_groups(kernel: str, kind: _T, rows: int, cols: int, subgroup_size: int) -> tuple[int, int]:
    """(rows at once, workgroups) of ``kernel`` for a matrix of ``rows`` x ``cols``."""
    most = min(_ROWS_AT_ONCE.get(kind, _DEFAULT_ROWS), subgroup_size) // (2 if kernel == "gate_up_groups" else 1)
    least = 2 if kernel == "qkv_groups" else 1  # a pair of dimensions turns together
    at_once = max(most, least)
    while at_once > least and rows // at_once < _GROUPS_WANTED:
        at_once //= 2
    tiles = -(-rows // at_once)
    wide = kind in _WIDE and not norm_late(kernel) and rows > cols
    invocations = _INVOCATIONS_WANTED_WIDE if wide else _INVOCATIONS_WANTED
    most_groups = min(invocations // lanes(cols, subgroup_size), MOST_GROUPS)
    turns = -(-tiles // most_groups)
    return at_once, -(-tiles // turns)


def norm_late(kernel: str) -> bool:
    """Whether the norm's weights are loaded after its sum: a wait, but in kernels short of registers a gain."""
    return kernel in ("gate_up_groups", "head_groups")


def heads_a_group(heads: int, kv_heads: int, head_size: int) -> int:
    """Query heads that one workgroup of decode attention serves from the same keys."""
    shared = heads // kv_heads
    fitting = [n for n in range(1, _MOST_HEADS_A_GROUP + 1) if shared % n == 0 and n * head_size <= 512]
    return max(fitting, default=1)
