"""Matrix ops: a weight in device memory, and the kernels that multiply by it.

The one place that chooses between the kernels of software devices and of GPUs. An op is made anew each token in
``rerecord`` mode, so what does not change is worked out once a weight and kept in its ``plans``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from gguf.constants import GGMLQuantizationType

from engine.program.op import Op
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, Kernel, Kernels
from engine.weights.repack import FLOATS, Layout

Use = Literal["matvec", "matvec_add", "gate_up", "matmul", "matmul_add", "embed", "embed_decode"]
Groups = tuple[int, int, int]

_MAX_GROUPS = 65535  # a dimension, all that the specification guarantees
_TOKENS_A_TILE = {True: 16, False: 64}  # by "software device"
_ROWS_A_TILE = {True: 8, False: 64}


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A (rows, cols) matrix in device memory, as ``engine.weights.repack`` lays it out for ``layout(kernels)``.

    ``bytes`` counts what one pass over it reads. ``plans`` belongs to this module.
    """

    name: str
    type: GGMLQuantizationType
    rows: int
    cols: int
    quants: Slice
    scales: Slice
    bytes: int
    plans: dict[Any, Any] = field(default_factory=dict, repr=False)


def layout(kernels: Kernels) -> Layout:
    """The layout of planes that these kernels read."""
    return "cpu" if "CPU_DEVICE" in kernels.base else "gpu"


def required_kernels(
    kernels: Kernels, uses: Iterable[tuple[Use, GGMLQuantizationType, int, int]]
) -> list[tuple[str, Defines, bool]]:
    """What ``Kernels.prepare`` must build for these (use, type, rows, cols), each once."""
    cpu = layout(kernels) == "cpu"
    found: dict[tuple[Any, ...], tuple[str, Defines, bool]] = {}
    for use in uses:
        name, defines, _ = _choose(cpu, *use)
        found[(name, *sorted(defines.items()))] = (name, defines, False)
    return list(found.values())


def matvec(
    kernels: Kernels, weight: Weight, x: Slice, y: Slice, *, add: bool = False, piece: str = "weights", name: str = ""
) -> Op:
    """y = W x, or y += W x: x float32 (cols,), y float32 (rows,)."""
    kernel, groups, scalars, moved = _plan(kernels, weight, "matvec_add" if add else "matvec")
    return Op(name or weight.name, kernel, (weight.quants, weight.scales, x, y), scalars, groups, piece, moved)


def gate_up(kernels: Kernels, gate: Weight, up: Weight, x: Slice, y: Slice, name: str = "gate_up") -> Op:
    """y = silu(gate x) * (up x): x float32 (cols,), y float32 (rows,). Both weights of one type and shape."""
    plan = gate.plans.get((kernels, "gate_up"))
    if plan is None:
        if (gate.type, gate.rows, gate.cols) != (up.type, up.rows, up.cols):
            raise ValueError(f"{gate.name} and {up.name} differ in type or shape: they cannot be one op")
        plan = _plan(kernels, gate, "gate_up")
    kernel, groups, scalars, moved = plan
    buffers = (gate.quants, gate.scales, up.quants, up.scales, x, y)
    return Op(name, kernel, buffers, scalars, groups, "weights", moved)


def matmul(
    kernels: Kernels, weight: Weight, x: Slice, y: Slice, tokens: int, *, add: bool = False, name: str = ""
) -> Op:
    """Y = X W^T, or Y += X W^T: X float32 (tokens, cols), Y float32 (tokens, rows).

    A token's result does not depend on how many tokens there are.
    """
    kernel, groups, scalars, moved = _plan(kernels, weight, "matmul_add" if add else "matmul")
    tiles = -(-tokens // groups[1])
    buffers = (weight.quants, weight.scales, x, y)
    moved += 4 * (tokens - 1) * (weight.rows + weight.cols)
    return Op(name or weight.name, kernel, buffers, (*scalars, tokens), (groups[0], tiles, 1), "weights", moved)


def embed(
    kernels: Kernels, weight: Weight, ids: Slice, y: Slice, tokens: int, *, first: int = 0, name: str = "embed"
) -> Op:
    """y[t] = row ids[first + t] of the table: ids uint32, y float32 (tokens, cols)."""
    kernel, groups, (rows, cols), _ = _plan(kernels, weight, "embed")
    moved = tokens * (weight.bytes // rows + 4 * cols)
    return Op(
        name,
        kernel,
        (weight.quants, weight.scales, ids, y),
        (rows, cols, first),
        (groups[0], tokens, 1),
        "small",
        moved,
    )


def embed_decode(kernels: Kernels, weight: Weight, state: Slice, y: Slice, *, name: str = "embed") -> Op:
    """y = row state[STATE_TOKEN] of the table: y float32 (cols,)."""
    kernel, groups, (rows, cols), _ = _plan(kernels, weight, "embed_decode")
    moved = weight.bytes // rows + 4 * cols
    return Op(name, kernel, (weight.quants, weight.scales, state, y), (rows, cols, 0), groups, "small", moved)


def _plan(kernels: Kernels, weight: Weight, use: Use) -> tuple[Kernel, Groups, tuple[int, ...], int]:
    plan: tuple[Kernel, Groups, tuple[int, ...], int] | None = weight.plans.get((kernels, use))
    if plan is None:
        rows, cols = weight.rows, weight.cols
        kernel_name, defines, groups = _choose(layout(kernels) == "cpu", use, weight.type, rows, cols)
        sides = 2 if use == "gate_up" else 1
        moved = sides * weight.bytes + 4 * (rows + cols)
        plan = (kernels.get(kernel_name, defines), groups, (rows, cols), moved)
        weight.plans[kernels, use] = plan
    return plan


def _choose(cpu: bool, use: Use, type: GGMLQuantizationType, rows: int, cols: int) -> tuple[str, Defines, Groups]:
    """Kernel name, defines and workgroup counts; for matmul the second count is tokens a tile."""
    defines: Defines = {"WEIGHT_TYPE": f"WEIGHT_{type.name}"}
    if not cpu and type not in FLOATS and cols % 256:
        defines["RAGGED"] = 1
    if use in ("embed", "embed_decode"):
        if use == "embed_decode":
            defines["DECODE"] = 1
        return "embed", defines, (-(-cols // 256), 1, 1)
    if type in FLOATS and cols % 32:
        defines["TAIL"] = 1
    if use in ("matvec_add", "matmul_add"):
        defines["ADD"] = 1
    if use in ("matmul", "matmul_add"):
        tile = _TOKENS_A_TILE[cpu]
        if cpu:
            defines["TOKENS"] = tile
        return "matmul_rows" if cpu else "matmul_tiled", defines, (-(-rows // _ROWS_A_TILE[cpu]), tile, 1)
    if cpu:
        if use == "gate_up":
            return "gate_up_rows", defines, _spread(-(-rows // 8))
        defines["OCTETS"] = 2
        return "matvec_rows", defines, _spread(-(-rows // 16))
    # two rows a subgroup halve the reads of x (gate_up has two by itself), where enough subgroups are left
    a_subgroup, subgroups = (2 if use != "gate_up" and rows >= 2048 else 1), 4
    defines["ROWS"], defines["SUBGROUPS"] = a_subgroup, subgroups
    name = "gate_up_subgroup" if use == "gate_up" else "matvec_subgroup"
    return name, defines, _spread(-(-rows // (a_subgroup * subgroups)))


def _spread(groups: int) -> Groups:
    """Workgroups over two dimensions where one does not hold them; kernels guard the surplus."""
    if groups <= _MAX_GROUPS:
        return groups, 1, 1
    height = -(-groups // _MAX_GROUPS)
    return -(-groups // height), height, 1
