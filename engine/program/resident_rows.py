"""The persistent mode's row kernel: projections of one weight type as one kernel, their shapes and ends as data.

It takes all whose x fits a workgroup's memory (``takes``); of the others each has a kernel of its own there too.
shaders/resident_rows.comp is the other half, and shaders/include/resident_ends.glsl mirrors the ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from gguf.constants import GGMLQuantizationType

from engine.program.op import Op
from engine.program.operands import Norm, Weight
from engine.program.tuning import MOST_PARTS, UNTUNED, lanes, stage_blocks
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, KernelSet
from engine.weights.formats import FLOATS

KERNEL = "resident_rows"
STORE, ADD, BIAS, GATE, GATE_GELU, QKV, HEAD = range(7)
_NORMED, _ADDS_BIAS, _HALVES, _DEEP, _PAIRED = 8, 16, 32, 64, 128
_END_DEFINES = {BIAS: "END_BIAS", GATE: "END_GATE", GATE_GELU: "END_GATE_GELU", QKV: "END_QKV", HEAD: "END_HEAD"}
_BUFFERS = 14
_SHAPE = struct.Struct("<5I")  # end, rows, cols, rows a tile, sums: the first of the scalars
_MOST_TURNS = 8  # of the workgroup over x: what an invocation has of it stays in registers
_TWO_BLOCKS_COST = 1.12  # of a lane at once, to four: fewer loads are in flight


class End(NamedTuple):
    """What becomes of the sums: STORE, ADD, ... and what these take, as the ops of engine.program.matrix do."""

    kind: int
    bias: Slice | None = None
    table: Slice | None = None
    k_cache: Slice | None = None
    v_cache: Slice | None = None
    state: Slice | None = None
    step: Slice | None = None
    scratch: Slice | None = None
    heads: int = 0
    kv_heads: int = 0
    context: int = 0
    rope: Defines | None = None
    padded: int = 0


def takes(kernels: KernelSet, type: GGMLQuantizationType, cols: int) -> bool:
    """Whether the row kernel multiplies matrices of ``cols`` columns."""
    if kernels.resident is None:
        return False
    device, group = kernels.device, kernels.resident.group
    blocks = -(-cols // 32)
    fits = stage_blocks(type, cols, device.subgroup_size, device.shared_bytes) == blocks
    return fits and blocks * 8 <= _MOST_TURNS * group


def teams(kernels: KernelSet) -> int:
    """Subgroups of a workgroup."""
    assert kernels.resident is not None
    return kernels.resident.group // kernels.device.subgroup_size


def row_op(
    kernels: KernelSet,
    weight: Weight,
    x: Slice,
    y: Slice,
    end: End,
    norm: Norm | None,
    *,
    odd: Weight | None = None,
    piece: str = "weights",
    name: str = "",
    further_bytes: int = 0,
) -> Op:
    """y = W x, or what ``end`` makes of it; ``norm`` is applied to x first.

    ``odd``: where every second row of a tile is a second tensor's, of the same type and shape.
    """
    resident = kernels.resident
    assert resident is not None
    kernel = kernels.get(KERNEL, {"WEIGHT_TYPE": f"WEIGHT_{weight.type.name}", "GROUP": resident.group})
    rows, cols, unused = weight.rows, weight.cols, weight.quants
    rows_a_tile, sides = _rows_a_tile(kernels, weight, end.kind), _sides(end.kind)
    rope = end.rope or {}
    pairs, rotated = int(rope.get("HEAD_DIM", 2)) // 2, int(rope.get("ROTATED", 0)) // 2
    flags = _NORMED * (norm is not None) | _ADDS_BIAS * (end.kind == QKV and end.bias is not None)
    if rows_a_tile * sides == 2 and weight.type not in FLOATS:
        # short rows gain nothing, and all of a type's would have four blocks
        flags |= _DEEP if _chunks(kernels, weight) > 1 else _PAIRED if _parts(kernels, weight) > 2 else 0
    flags |= _HALVES * ("ROPE_HALVES" in rope)
    read = norm.weight if norm else unused, y, end.bias or unused, end.table or unused
    touched = end.k_cache or y, end.v_cache or y, end.state or unused, end.step or unused, end.scratch or y
    shape = end.kind | flags, rows, cols, rows_a_tile, rows_a_tile * sides, 1.0 / cols, norm.eps if norm else 0.0
    places = end.heads, end.kv_heads, end.context, pairs, 1.0 / pairs, rotated, end.padded, _parts(kernels, weight)
    tiles = -(-rows // rows_a_tile)
    groups = min(resident.workgroups, tiles, MOST_PARTS // teams(kernels))
    uneven = odd or weight
    buffers = (weight.quants, weight.scales, uneven.quants, uneven.scales, x, *read, *touched)
    moved = weight.bytes + (odd.bytes if odd else 0) + 4 * (rows + cols) + further_bytes
    return Op(name or weight.name, kernel, buffers, (*shape, *places), (groups, 1, 1), piece, moved)


def needed(ops: Iterable[Op]) -> Defines:
    """What a build of the kernel for these of its ops must have."""
    defines: Defines = {}
    most: dict[str, int] = {}
    for op in ops:
        end, _, cols, _, sums = _SHAPE.unpack_from(op.push, 8 * _BUFFERS)
        kind = end & 7
        if kind in _END_DEFINES:
            defines[_END_DEFINES[kind]] = 1
        if end & _ADDS_BIAS:
            defines["END_BIAS"] = 1
        if end & (_DEEP | _PAIRED) or sums == 4:
            defines["WIDE"] = 1
        values = {"MOST_BLOCKS": -(-cols // 32)}
        if end & _NORMED:
            values["NORM_BLOCKS"] = values["MOST_BLOCKS"]
        most |= {define: max(most.get(define, 0), value) for define, value in values.items()}
    return defines | most


def _parts(kernels: KernelSet, weight: Weight) -> int:
    """Subgroups that share a row in other modes."""
    width = kernels.device.subgroup_size
    return lanes(weight.type, weight.cols, width, kernels.tuning or UNTUNED) // width


def _chunks(kernels: KernelSet, weight: Weight) -> int:
    """Blocks of a lane in its part of a row."""
    return -(-weight.cols // (32 * kernels.device.subgroup_size * _parts(kernels, weight)))


def _sides(end: int) -> int:
    return 2 if end in (GATE, GATE_GELU) else 1


def choices(type: GGMLQuantizationType, end: int) -> list[int]:
    """How many rows of each tensor a tile may have: all give the same bits."""
    return [sums // _sides(end) for sums in ((2,) if type in FLOATS else (4, 2))]


def _rows_a_tile(kernels: KernelSet, weight: Weight, end: int) -> int:
    """Rows of each tensor at once: so that the busiest team has few."""
    assert kernels.resident is not None
    sides, all_teams = _sides(end), kernels.resident.workgroups * teams(kernels)
    one_block = _chunks(kernels, weight) * _parts(kernels, weight) == 1

    def cost(at_once: int) -> float:
        turns = -(-weight.rows // (at_once * all_teams))
        few = sides * at_once == 2 and one_block and turns > 1
        return turns * at_once * (_TWO_BLOCKS_COST if few else 1.0)

    return min(choices(weight.type, end), key=cost)
