"""Matrix ops: a weight in device memory, and the kernels that multiply by it.

The one place that chooses between the kernels of software devices and of GPUs. An op is made anew each token in
``rerecord`` mode, so what does not change is worked out once a weight and kept in its ``plans``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gguf.constants import GGMLQuantizationType

from engine.program.op import Op
from engine.program.tuning import division, lanes, norm_late, stage_blocks
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, Kernel, Kernels
from engine.weights.formats import FLOATS, Layout

Use = Literal[
    "matvec", "matvec_add", "norm_matvec", "gate_up", "norm_gate_up", "qkv", "norm_qkv", "head", "norm_head",
    "matmul", "matmul_add", "embed", "embed_decode",
]  # fmt: skip
Groups = tuple[int, int, int]

_MAX_GROUPS = 65535  # a dimension, all that the specification guarantees
_TOKENS_A_TILE = {True: 16, False: 64}  # by "software device"
_ROWS_A_TILE = {True: 8, False: 64}
_GROUP_KERNELS = {
    "matvec": "matvec_groups", "matvec_add": "matvec_groups", "gate_up": "gate_up_groups", "qkv": "qkv_groups",
    "head": "head_groups",
}  # fmt: skip
_GPU_ONLY = ("norm_matvec", "norm_gate_up", "qkv", "norm_qkv", "head", "norm_head")


class Norm(NamedTuple):
    """An RMS norm of a matrix op's input: its weights, float32 (cols,), and the epsilon under the root."""

    weight: Slice
    eps: float


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
    kernels: Kernels, uses: Iterable[tuple[Use, GGMLQuantizationType, int, int]], rope: Defines | None = None
) -> list[tuple[str, Defines, bool]]:
    """What ``Kernels.prepare`` must build for these (use, type, rows, cols), each once.

    ``rope`` is what ``qkv`` is called with. Uses that this kind of device has no kernel for are left out.
    """
    cpu = layout(kernels) == "cpu"
    found: dict[tuple[Any, ...], tuple[str, Defines, bool]] = {}
    for use in uses:
        if cpu and use[0] in _GPU_ONLY:
            continue
        name, defines, _ = _choose(kernels, *use)
        if use[0] in ("qkv", "norm_qkv"):
            defines |= rope or {}
        found[(name, *sorted(defines.items()))] = (name, defines, False)
    return list(found.values())


def matvec(
    kernels: Kernels,
    weight: Weight,
    x: Slice,
    y: Slice,
    *,
    add: bool = False,
    norm: Norm | None = None,
    piece: str = "weights",
    name: str = "",
) -> Op:
    """y = W x, or y += W x: x float32 (cols,), y float32 (rows,); ``norm`` (on GPUs) is applied to x first."""
    use: Use = "matvec_add" if add else "norm_matvec" if norm else "matvec"
    kernel, groups, scalars, moved = _plan(kernels, weight, use)
    if layout(kernels) == "cpu":
        buffers: tuple[Slice, ...] = (weight.quants, weight.scales, x, y)
    else:
        buffers = (weight.quants, weight.scales, x, norm.weight if norm else x, y)
        scalars += (norm.eps if norm else 0.0,)
    return Op(name or weight.name, kernel, buffers, scalars, groups, piece, moved)


def gate_up(
    kernels: Kernels, gate: Weight, up: Weight, x: Slice, y: Slice, *, norm: Norm | None = None, name: str = "gate_up"
) -> Op:
    """y = silu(gate x) * (up x): x float32 (cols,), y float32 (rows,). Both weights of one type and shape.

    ``norm`` (on GPUs) is applied to x first.
    """
    use: Use = "norm_gate_up" if norm else "gate_up"
    plan = gate.plans.get((kernels, use))
    if plan is None:
        if (gate.type, gate.rows, gate.cols) != (up.type, up.rows, up.cols):
            raise ValueError(f"{gate.name} and {up.name} differ in type or shape: they cannot be one op")
        plan = _plan(kernels, gate, use)
    kernel, groups, scalars, moved = plan
    planes = (gate.quants, gate.scales, up.quants, up.scales)
    if layout(kernels) == "cpu":
        return Op(name, kernel, (*planes, x, y), scalars, groups, "weights", moved)
    buffers = (*planes, x, norm.weight if norm else x, y)
    return Op(name, kernel, buffers, (*scalars, norm.eps if norm else 0.0), groups, "weights", moved)


class Caches(NamedTuple):
    """Where ``qkv`` puts things: the RoPE table, a layer's KV cache for ``context`` tokens, the state."""

    rope_table: Slice
    k_cache: Slice
    v_cache: Slice
    state: Slice
    heads: int
    kv_heads: int
    context: int


def qkv(
    kernels: Kernels,
    weight: Weight,
    x: Slice,
    q: Slice,
    caches: Caches,
    rope: Defines,
    *,
    norm: Norm | None = None,
    name: str = "",
) -> Op:
    """On GPUs: the stacked Q, K and V projections, then RoPE; q float32 (q_size,), k and v into the KV cache.

    ``rope`` are rope.glsl's defines.
    """
    kernel, groups, scalars, moved = _plan(kernels, weight, "norm_qkv" if norm else "qkv", rope)
    buffers = (weight.quants, weight.scales, x, norm.weight if norm else x, q, *caches[:4])
    scalars = (*scalars, norm.eps if norm else 0.0, *caches[4:])
    return Op(name or weight.name, kernel, buffers, scalars, groups, "weights", moved)


def head_keys(
    kernels: Kernels,
    weight: Weight,
    x: Slice,
    y: Slice,
    scan: tuple[Slice, Slice, Slice, int],
    *,
    norm: Norm | None = None,
    name: str = "",
) -> tuple[Op, int]:
    """On GPUs: logits y = W x and what sample_scan.comp makes of them, and how many parts that has.

    ``scan``: step, state, scratch, and the padded vocabulary (engine.program.sample).
    """
    kernel, groups, scalars, moved = _plan(kernels, weight, "norm_head" if norm else "head")
    step, state, scratch, padded = scan
    buffers = (weight.quants, weight.scales, x, norm.weight if norm else x, y, step, state, scratch)
    scalars = (*scalars, norm.eps if norm else 0.0, padded)
    return Op(name or weight.name, kernel, buffers, scalars, groups, "head", moved), groups[0] * int(
        kernel.defines["TEAMS"]
    )


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
    kernels: Kernels,
    weight: Weight,
    ids: Slice,
    y: Slice,
    tokens: int,
    *,
    scale: float = 1.0,
    first: int = 0,
    name: str = "embed",
) -> Op:
    """y[t] = scale times row ids[first + t] of the table: ids uint32, y float32 (tokens, cols)."""
    kernel, groups, _, _ = _plan(kernels, weight, "embed")
    rows, cols = weight.rows, weight.cols
    moved = tokens * (weight.bytes // rows + 4 * cols)
    return Op(
        name,
        kernel,
        (weight.quants, weight.scales, ids, y),
        (rows, cols, first, scale),
        (groups[0], tokens, 1),
        "small",
        moved,
    )


def embed_decode(
    kernels: Kernels, weight: Weight, state: Slice, y: Slice, *, scale: float = 1.0, name: str = "embed"
) -> Op:
    """y = scale times row state[STATE_TOKEN] of the table: y float32 (cols,)."""
    kernel, groups, _, _ = _plan(kernels, weight, "embed_decode")
    rows, cols = weight.rows, weight.cols
    moved = weight.bytes // rows + 4 * cols
    buffers = (weight.quants, weight.scales, state, y)
    return Op(name, kernel, buffers, (rows, cols, 0, scale), groups, "small", moved)


def _plan(
    kernels: Kernels, weight: Weight, use: Use, more: Defines | None = None
) -> tuple[Kernel, Groups, tuple[int | float, ...], int]:
    plan: tuple[Kernel, Groups, tuple[int | float, ...], int] | None = weight.plans.get((kernels, use))
    if plan is None:
        rows, cols = weight.rows, weight.cols
        kernel_name, defines, groups = _choose(kernels, use, weight.type, rows, cols)
        sides = 2 if use in ("gate_up", "norm_gate_up") else 1
        moved = sides * weight.bytes + 4 * (rows + cols)
        by_columns = kernel_name.endswith("_groups")
        scalars = (rows, 1.0 / cols) if by_columns else (rows, cols)
        plan = (kernels.get(kernel_name, defines | (more or {})), groups, scalars, moved)
        weight.plans[kernels, use] = plan
    return plan


def _choose(
    kernels: Kernels, use: Use, type: GGMLQuantizationType, rows: int, cols: int
) -> tuple[str, Defines, Groups]:
    """Kernel name, defines and workgroup counts; for matmul the second count is tokens a tile."""
    cpu = layout(kernels) == "cpu"
    defines: Defines = {"WEIGHT_TYPE": f"WEIGHT_{type.name}"}
    if use in ("embed", "embed_decode"):
        if use == "embed_decode":
            defines["DECODE"] = 1
        return "embed", defines, (-(-cols // 256), 1, 1)
    if cpu and type in FLOATS and cols % 32:
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
    if use.startswith("norm_"):
        defines["NORM"] = 1
    name = _GROUP_KERNELS[use.removeprefix("norm_")]
    if "NORM" in defines and norm_late(name):
        defines["NORM_LATE"] = 1
    device = kernels.device
    size = device.subgroup_size
    at_once, teams, groups = division(name, type, rows, cols, size, device.most_invocations)
    stage = stage_blocks(type, cols, size, device.shared_bytes)
    defines |= {"COLS": cols, "LANES": lanes(cols, size), "TEAMS": teams, "ROWS": at_once, "STAGE_BLOCKS": stage}
    return name, defines, (groups, 1, 1)


def _spread(groups: int) -> Groups:
    """Workgroups over two dimensions where one does not hold them; kernels guard the surplus."""
    if groups <= _MAX_GROUPS:
        return groups, 1, 1
    height = -(-groups // _MAX_GROUPS)
    return -(-groups // height), height, 1
