"""How a GPU's matrix-vector kernels divide their rows and columns; docs/performance.md says how it was measured.

``lanes`` is part of a row's arithmetic (its order of summation) and so the same for every kernel; how many rows a
workgroup takes at once, and how many workgroups there are, changes no bit.
"""

from __future__ import annotations

from typing import NamedTuple

from gguf.constants import GGMLQuantizationType as _T

from engine.vulkan.pipelines import Resident
from engine.weights.formats import CODEBOOKS, FLOATS

_MOST_LANES = 128
_INVOCATIONS_A_GROUP = 512
_MOST_TEAMS = 8  # a workgroup
_INVOCATIONS_WANTED = 132 * 512  # what an H200 holds of these kernels at once
MOST_PARTS = 4096  # teams of the LM head
_ROWS_AT_ONCE = {_T.F32: 1, _T.F16: 2, _T.BF16: 2, _T.Q6_K: 4}  # of all tensors; what registers hold
_DEFAULT_ROWS = 8
_ROWS_OF_CHUNKS = 4
_OTHER_SHARED_BYTES = 4608  # sums of rows, and the LM head's history
_CODEBOOK_SHARED_BYTES = 2048
_ATTEND_LANES = 512
_FEW_LOADS = {1: 1.3, 2: 1.12, 4: 1.04}  # what rows of all tensors at once cost: fewer loads are in flight
_MOST_HEADS_A_GROUP = 1  # to share keys costs an H200 more (fewer workgroups, more registers) than its L2 cache saves


def lanes(cols: int, subgroup_size: int) -> int:
    """Invocations that share a row of ``cols`` columns: one a block of 32 columns, up to a limit."""
    blocks = -(-cols // 32)
    return min(-(-blocks // subgroup_size), _MOST_LANES // subgroup_size) * subgroup_size


def group_invocations(subgroup_size: int, most_invocations: int) -> int:
    """Invocations a workgroup where all kernels have as many: in the persistent mode."""
    return min(_INVOCATIONS_A_GROUP, 16 * subgroup_size, most_invocations)


def pick_lanes(subgroup_size: int) -> int:
    """Invocations of the workgroup that samples; part of its arithmetic."""
    return attend_lanes(subgroup_size)


def division(
    kernel: str,
    kind: _T,
    rows: int,
    cols: int,
    subgroup_size: int,
    most_invocations: int,
    resident: Resident | None = None,
) -> tuple[int, int, int]:
    """(rows at once, teams a workgroup, workgroups) of ``kernel`` for a matrix of ``rows`` x ``cols``.

    ``most_invocations``: what a workgroup of this device may have. Workgroups that are ``resident`` are shared out so
    that the busiest team has few rows.
    """
    team = lanes(cols, subgroup_size)
    several_chunks = cols > 32 * team  # then a row's next blocks are loaded as the last ones are used up
    wanted = _ROWS_OF_CHUNKS if several_chunks else _DEFAULT_ROWS
    most = min(_ROWS_AT_ONCE.get(kind, wanted), subgroup_size) // (2 if kernel == "gate_up_groups" else 1)
    least = 2 if kernel == "qkv_groups" else 1  # a pair of dimensions turns together
    if resident is not None:
        sides = 2 if kernel == "gate_up_groups" else 1
        return _resident_division(max(most, least), least, rows, sides, max(1, resident.group // team), resident)
    teams = max(1, min(_INVOCATIONS_A_GROUP, _MOST_TEAMS * team, most_invocations) // team)
    most_groups = max(1, min(_INVOCATIONS_WANTED // team, MOST_PARTS) // teams)
    at_once = max(most, least)
    while at_once > least and rows < at_once * most_groups * teams * 7 // 8:
        at_once //= 2
    tiles = -(-rows // at_once)
    turns = -(-tiles // (most_groups * teams))
    return at_once, teams, -(-tiles // (turns * teams))


def _resident_division(
    most: int, least: int, rows: int, sides: int, teams: int, resident: Resident
) -> tuple[int, int, int]:
    def cost(at_once: int) -> float:
        turns = -(-rows // (at_once * teams * resident.workgroups))
        return turns * at_once * (_FEW_LOADS.get(sides * at_once, 1.0) if turns > 1 else 1.0)

    choices = [most >> halvings for halvings in range(most.bit_length()) if most >> halvings >= least]
    at_once = min(choices, key=cost)
    return at_once, teams, min(resident.workgroups, -(-rows // (at_once * teams)))


def stage_blocks(kind: _T, cols: int, subgroup_size: int, shared_bytes: int) -> int:
    """Blocks of 32 columns of x in a workgroup's ``shared_bytes`` of shared memory at once: all, or whole chunks."""
    block_bytes = 144 if kind in FLOATS else 112  # PITCH of block_x.glsl
    blocks = -(-cols // 32)
    others = _OTHER_SHARED_BYTES + (_CODEBOOK_SHARED_BYTES if kind in CODEBOOKS else 0)
    most = (shared_bytes - others - 4 * blocks) // block_bytes
    team = lanes(cols, subgroup_size)
    return blocks if blocks <= most else max(1, most // team) * team


def norm_late(kernel: str) -> bool:
    """Whether the norm's weights are loaded after its sum: a wait, but in kernels short of registers a gain."""
    return kernel in ("gate_up_groups", "head_groups")


def attend_lanes(subgroup_size: int) -> int:
    """Invocations a workgroup of decode attention; part of its arithmetic."""
    return max(64, min(_ATTEND_LANES, 16 * subgroup_size))


class PromptTiles(NamedTuple):
    """Queries a workgroup of prompt attention, and keys it takes at once; these are part of the arithmetic."""

    queries: int
    keys: int


def prompt_tiles(head_size: int) -> PromptTiles:
    """The tiles of attend_prompt.comp: float32 queries and float16 keys of it in 40 KiB of shared memory."""
    return PromptTiles(32, 64) if head_size <= 128 else PromptTiles(16, 32)


def heads_a_group(heads: int, kv_heads: int, head_size: int) -> int:
    """Query heads that one workgroup of decode attention serves from the same keys."""
    shared = heads // kv_heads
    fitting = [n for n in range(1, _MOST_HEADS_A_GROUP + 1) if shared % n == 0 and n * head_size <= 512]
    return max(fitting, default=1)
