"""How a GPU's matrix-vector kernels divide their rows and columns; docs/performance.md says how it was measured.

``lanes`` is part of a row's arithmetic (its order of summation) and so the same for every kernel; how many rows a
workgroup takes at once, and how many workgroups there are, changes no bit.
"""

from __future__ import annotations

from gguf.constants import GGMLQuantizationType as _T

_MOST_LANES = 384
_MOST_GROUPS = 264  # two for each of an H200's multiprocessors
_GROUPS_WANTED = 132  # with fewer, workgroups take fewer rows at once
# rows at once, of all tensors: as many as registers hold twice, the next ones being loaded beside those at hand
_ROWS_AT_ONCE = {_T.F32: 1, _T.F16: 2, _T.BF16: 2}
_DEFAULT_ROWS = 4


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
    # a small matrix has a workgroup a tile: to take turns pays where there is x to keep for many rows
    tiles = -(-rows // at_once)
    turns = -(-tiles // _MOST_GROUPS)
    return at_once, -(-tiles // turns)
