"""How a GPU's matrix-vector kernels divide their rows and columns; docs/performance.md says how it was measured.

``lanes`` is part of a row's arithmetic (its order of summation) and so the same for every kernel; how many rows a
workgroup takes at once, and how many workgroups there are, changes no bit. The numbers here are those of an H200, and
what other devices begin with; a ``RowTuning``, as engine.profile.tune measures it, overrides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gguf.constants import GGMLQuantizationType as _T

from engine.vulkan.pipelines import Resident
from engine.weights.formats import CODEBOOKS, FLOATS

_MOST_LANES = 128
_INVOCATIONS_A_GROUP = 512
_MOST_TEAMS = 16  # a workgroup: each makes all of x ready and says that it is done, so few large ones are better
_INVOCATIONS_WANTED = 132 * 512  # what an H200 holds of these kernels at once
MOST_PARTS = 4096  # teams of the LM head
HEAD_KERNEL = "head_groups"
ROW_KERNELS = ("matvec_groups", "gate_up_groups", "qkv_groups", HEAD_KERNEL)  # those that divide rows so
_ROWS_AT_ONCE = {_T.F32: 1, _T.F16: 2, _T.BF16: 2, _T.Q6_K: 4}  # of all tensors; what registers hold
_DEFAULT_ROWS = 8
_ROWS_OF_CHUNKS = 4
MOST_SUMS_BYTES = 4096  # of shared memory
_OTHER_SHARED_BYTES = MOST_SUMS_BYTES + 512  # and the LM head's history
_CODEBOOK_SHARED_BYTES = 2048
_FEW_LOADS = {1: 1.3, 2: 1.12, 4: 1.04}  # what rows of all tensors at once cost: fewer loads are in flight


class Matrix(NamedTuple):
    """A matrix as a row kernel ("matvec_groups" and the others) meets it; ``rows`` of gate and up are those of each."""

    kernel: str
    type: _T
    rows: int
    cols: int


class Division(NamedTuple):
    """A team takes ``rows`` (of each tensor) at once, a workgroup has ``teams``, and there are ``workgroups``."""

    rows: int
    teams: int
    workgroups: int

    def is_one_turn(self, rows: int) -> bool:
        """Whether no team has more of a matrix's ``rows`` than it takes at once."""
        return rows <= self.rows * self.teams * self.workgroups


@dataclass(frozen=True, slots=True)
class RowTuning:
    """What was measured to be best on a device: lanes by (type, cols), divisions by matrix. The rest is as usual.

    A division belongs to its matrix's lanes. It is not asked where workgroups are resident. ``near_only`` are matrices
    whose division is as usual again where many tokens are seen, as a token at ``far_position`` was fastest; 0: not
    measured there yet.
    """

    lanes: Mapping[tuple[_T, int], int] = field(default_factory=dict)
    divisions: Mapping[Matrix, Division] = field(default_factory=dict)
    near_only: frozenset[Matrix] = frozenset()
    far_position: int = 0

    def far(self) -> RowTuning:
        """What holds where many tokens are seen."""
        kept = {matrix: divided for matrix, divided in self.divisions.items() if matrix not in self.near_only}
        return RowTuning(self.lanes, kept)


UNTUNED = RowTuning()


def lanes(type: _T, cols: int, subgroup_size: int, tuned: RowTuning = UNTUNED) -> int:
    """Invocations that share a row of ``cols`` columns: one a block of 32 columns, up to a limit."""
    known = tuned.lanes.get((type, cols))
    if known is not None:
        return known
    blocks = -(-cols // 32)
    return min(-(-blocks // subgroup_size), _MOST_LANES // subgroup_size) * subgroup_size


def group_invocations(subgroup_size: int, most_invocations: int) -> int:
    """Invocations a workgroup where all kernels have as many: in the persistent mode."""
    return min(_INVOCATIONS_A_GROUP, 16 * subgroup_size, most_invocations)


def division(
    matrix: Matrix,
    subgroup_size: int,
    most_invocations: int,
    resident: Resident | None = None,
    tuned: RowTuning = UNTUNED,
) -> Division:
    """How its kernel divides ``matrix``.

    ``most_invocations``: what a workgroup of this device may have. Workgroups that are ``resident`` are shared out so
    that the busiest team has few rows.
    """
    kernel, type, rows, cols = matrix
    known = tuned.divisions.get(matrix)
    if known is not None and resident is None:
        return known
    team = lanes(type, cols, subgroup_size, tuned)
    several_chunks = cols > 32 * team  # for which the persistent mode's rule is older, and untimed with eight rows
    wanted = _ROWS_OF_CHUNKS if several_chunks and resident is not None else _DEFAULT_ROWS
    most = min(_ROWS_AT_ONCE.get(type, wanted), subgroup_size) // tensors(kernel)
    least = least_rows(kernel)
    if resident is not None:
        teams = max(1, resident.group // team)
        return _resident_division(max(most, least), least, rows, tensors(kernel), teams, resident)
    teams = max(1, min(_INVOCATIONS_A_GROUP, _MOST_TEAMS * team, most_invocations) // team)
    most_teams = _most_teams(team, 1.0) // teams * teams
    at_once = max(most, least)
    while at_once > least and rows < at_once * most_teams * 7 // 8:
        at_once //= 2
    return share_out(rows, at_once, team, teams)


def share_out(rows: int, at_once: int, team: int, teams: int, times: float = 1.0) -> Division:
    """The division with as many workgroups as an H200 holds at once, or ``times`` that, all with alike much to do."""
    most_groups = max(1, _most_teams(team, times) // teams)
    tiles = -(-rows // at_once)
    turns = -(-tiles // (most_groups * teams))
    return Division(at_once, teams, -(-tiles // (turns * teams)))


def tensors(kernel: str) -> int:
    """Tensors whose rows ``kernel`` takes at once."""
    return 2 if kernel == "gate_up_groups" else 1


def least_rows(kernel: str) -> int:
    """The fewest rows that ``kernel`` takes at once: a pair of dimensions turns together."""
    return 2 if kernel == "qkv_groups" else 1


def sums_bytes(kernel: str, at_once: int, invocations: int, subgroup_size: int) -> int:
    """Shared memory that a workgroup's sums take (row_parts of row_products.glsl)."""
    slots = min(subgroup_size // at_once, 4)
    return 4 * (invocations // subgroup_size) * slots * at_once * tensors(kernel)


def _most_teams(team: int, times: float) -> int:
    return min(int(_INVOCATIONS_WANTED * times) // team, MOST_PARTS)


def _resident_division(most: int, least: int, rows: int, sides: int, teams: int, resident: Resident) -> Division:
    def cost(at_once: int) -> float:
        turns = -(-rows // (at_once * teams * resident.workgroups))
        return turns * at_once * (_FEW_LOADS.get(sides * at_once, 1.0) if turns > 1 else 1.0)

    choices = [most >> halvings for halvings in range(most.bit_length()) if most >> halvings >= least]
    at_once = min(choices, key=cost)
    return Division(at_once, teams, min(resident.workgroups, -(-rows // (at_once * teams))))


def stage_blocks(type: _T, cols: int, team: int, shared_bytes: int) -> int:
    """Blocks of 32 columns of x in a workgroup's ``shared_bytes`` of shared memory at once.

    All, or whole chunks of a ``team``'s lanes.
    """
    block_bytes = 144 if type in FLOATS else 112  # PITCH of block_x.glsl
    blocks = -(-cols // 32)
    others = _OTHER_SHARED_BYTES + (_CODEBOOK_SHARED_BYTES if type in CODEBOOKS else 0)
    most = (shared_bytes - others - 4 * blocks) // block_bytes
    return blocks if blocks <= most else max(1, most // team) * team
