"""Matrix ops: a weight in device memory, and the kernels that multiply by it.

The one place that chooses between the kernels of software devices and of GPUs. An op is made anew each token in
``rerecord`` mode, so what does not change is worked out once a weight and kept in its ``plans``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gguf.constants import GGMLQuantizationType

from engine.program.matrix_tiles import FEW_TOKENS, X_PARTS, matrix_tiles
from engine.program.op import Op
from engine.program.tuning import division, lanes, norm_late, stage_blocks
from engine.vulkan.cooperative_matrix import MatrixSize
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, Kernel, KernelSet
from engine.weights.formats import FLOATS, Layout

Use = Literal[
    "matvec", "matvec_add", "matvec_bias", "norm_matvec", "norm_matvec_bias",
    "gate_up", "norm_gate_up", "gate_up_gelu", "norm_gate_up_gelu",
    "qkv", "norm_qkv", "qkv_bias", "norm_qkv_bias", "qkv_store", "norm_qkv_store",
    "head", "norm_head", "matmul", "matmul_add", "matmul_bias", "embed", "embed_decode",
]  # fmt: skip
Groups = tuple[int, int, int]

MOST_GROUPS = 65535  # a dimension, all that the specification guarantees
_TOKENS_A_TILE = {True: 16, False: 64}  # by "software device"
_ROWS_A_TILE = {True: 8, False: 64}
TO_FLOAT16_DEFINES: Defines = {"LANES": 256, "X_PARTS": X_PARTS}
_OPERATIONS = ("matvec", "gate_up", "qkv", "head", "matmul", "embed")
_ENDINGS = {"add": "ADD", "bias": "BIAS", "gelu": "GELU"}  # of uses, and the define that says so to a kernel
# what can be done part by part: a result's rows are written, or one row of a table is read
SPLITTABLE = frozenset[str](("embed", "embed_decode", "matvec", "norm_matvec", "head", "norm_head"))


class Norm(NamedTuple):
    """An RMS norm of a matrix op's input: its weights, float32 (cols,), and the epsilon under the root."""

    weight: Slice
    eps: float


class Bias(NamedTuple):
    """What is added to a matrix op's result: float32 (rows,)."""

    vector: Slice


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A (rows, cols) matrix in device memory, as ``engine.weights.repack`` lays it out for ``layout(kernels)``.

    ``bytes`` counts what one pass over it reads. One too large for a piece of memory is in ``parts`` by rows, each of
    which begins at row ``first`` of the whole; the planes are then the first part's. ``plans`` belongs to this module.
    """

    name: str
    type: GGMLQuantizationType
    rows: int
    cols: int
    quants: Slice
    scales: Slice
    bytes: int
    first: int = 0
    parts: tuple[Weight, ...] = ()
    plans: dict[Any, Any] = field(default_factory=dict, repr=False)


class Float16(NamedTuple):
    """What cooperative matrices take for x (tokens, cols): float16 in whole blocks of 32 columns, and a factor a token.

    ``values`` and ``factors``, float32 (tokens,), as shaders/to_float16.comp leaves them.
    """

    values: Slice
    factors: Slice


def layout(kernels: KernelSet) -> Layout:
    """The layout of planes that these kernels read."""
    return "cpu" if "CPU_DEVICE" in kernels.base else "gpu"


def matrix_size(kernels: KernelSet) -> MatrixSize | None:
    """The cooperative matrices that ``matmul`` uses; None where it takes x as it is."""
    plain = layout(kernels) == "cpu" or "NO_COOPERATIVE_MATRIX" in kernels.base
    return None if plain else kernels.device.matrix_size


def required_kernels(
    kernels: KernelSet, uses: Iterable[tuple[Use, GGMLQuantizationType, int, int]], rope: Defines | None = None
) -> list[tuple[str, Defines, bool]]:
    """What ``Kernels.prepare`` must build for these (use, type, rows, cols), each once.

    ``rope`` is what ``qkv`` is called with. Uses that this kind of device has no kernel for are left out.
    """
    cpu = layout(kernels) == "cpu"
    found: dict[tuple[Any, ...], tuple[str, Defines, bool]] = {}
    for use in uses:
        operation = _operation(use[0])
        if cpu and (operation in ("qkv", "head") or use[0].startswith("norm_")):
            continue
        for few in (False, True) if operation == "matmul" and matrix_size(kernels) else (False,):
            name, defines, _ = _choose(kernels, *use, few)
            if operation == "qkv":
                defines |= _turning(rope or {}, use[0])
            found[(name, *sorted(defines.items()))] = (name, defines, False)
    return list(found.values())


def matvec(
    kernels: KernelSet,
    weight: Weight,
    x: Slice,
    y: Slice,
    *,
    add: bool = False,
    norm: Norm | None = None,
    bias: Bias | None = None,
    piece: str = "weights",
    name: str = "",
) -> Op:
    """y = W x, y += W x, or y = W x + bias: x float32 (cols,), y float32 (rows,).

    ``norm`` (on GPUs) is applied to x first.
    """
    use: Use
    if norm:
        use = "norm_matvec_bias" if bias else "norm_matvec"
    else:
        use = "matvec_add" if add else "matvec_bias" if bias else "matvec"
    kernel, groups, scalars, moved = _plan(kernels, weight, use)
    end = bias.vector if bias else x
    if layout(kernels) == "cpu":
        buffers: tuple[Slice, ...] = (weight.quants, weight.scales, x, y, end)
    else:
        buffers = (weight.quants, weight.scales, x, norm.weight if norm else x, y, end)
        scalars += (norm.eps if norm else 0.0,)
    return Op(name or weight.name, kernel, buffers, scalars, groups, piece, moved)


def gate_up(
    kernels: KernelSet,
    gate: Weight,
    up: Weight,
    x: Slice,
    y: Slice,
    *,
    gelu: bool = False,
    norm: Norm | None = None,
    name: str = "gate_up",
) -> Op:
    """y = silu(gate x) * (up x), or gelu: x float32 (cols,), y float32 (rows,). Both weights of one type and shape.

    ``norm`` (on GPUs) is applied to x first.
    """
    plain: Use = "gate_up_gelu" if gelu else "gate_up"
    after_norm: Use = "norm_gate_up_gelu" if gelu else "norm_gate_up"
    use = after_norm if norm else plain
    plan = gate.plans.get((kernels, use, False))
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
    """Where ``qkv`` puts things: the RoPE table, a layer's KV cache for ``context`` tokens, the state.

    Without a table nothing is turned.
    """

    rope_table: Slice | None
    k_cache: Slice
    v_cache: Slice
    state: Slice
    heads: int
    kv_heads: int
    context: int


def qkv(
    kernels: KernelSet,
    weight: Weight,
    x: Slice,
    q: Slice,
    caches: Caches,
    rope: Defines,
    *,
    norm: Norm | None = None,
    bias: Bias | None = None,
    name: str = "",
) -> Op:
    """On GPUs: the stacked Q, K and V projections, then RoPE; q float32 (q_size,), k and v into the KV cache.

    ``rope`` are rope.glsl's defines; ``bias`` is added before RoPE, float32 (q_size + 2 kv_size,).
    """
    use: Use
    if caches.rope_table is None:
        if bias:
            raise ValueError("there is no kernel for a bias without RoPE")
        use = "norm_qkv_store" if norm else "qkv_store"
    elif bias:
        use = "norm_qkv_bias" if norm else "qkv_bias"
    else:
        use = "norm_qkv" if norm else "qkv"
    kernel, groups, scalars, moved = _plan(kernels, weight, use, _turning(rope, use))
    table, end = caches.rope_table or x, bias.vector if bias else x
    buffers = (weight.quants, weight.scales, x, norm.weight if norm else x, q, table, *caches[1:4], end)
    scalars = (*scalars, norm.eps if norm else 0.0, *caches[4:])
    return Op(name or weight.name, kernel, buffers, scalars, groups, "weights", moved)


def head_keys(
    kernels: KernelSet,
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


def to_float16(kernels: KernelSet, x: Slice, y: Float16, tokens: int, cols: int, name: str = "to_float16") -> Op:
    """x, float32 (tokens, cols), as cooperative matrices take it."""
    kernel = kernels.get("to_float16", TO_FLOAT16_DEFINES)
    moved = tokens * cols * 6
    return Op(name, kernel, (x, y.values, y.factors), (cols,), (tokens, 1, 1), "small", moved)


def matmul(
    kernels: KernelSet,
    weight: Weight,
    x: Slice | Float16,
    y: Slice,
    tokens: int,
    *,
    add: bool = False,
    bias: Bias | None = None,
    name: str = "",
) -> Op:
    """Y = X W^T, Y += X W^T, or Y = X W^T + bias: X float32 (tokens, cols), Y float32 (tokens, rows).

    X is a Float16 where, and only where, there is a ``matrix_size``. A token's result does not depend on how many
    tokens there are.
    """
    use: Use = "matmul_add" if add else "matmul_bias" if bias else "matmul"
    few = isinstance(x, Float16) and tokens <= FEW_TOKENS
    kernel, (row_tiles, tile_tokens, _), scalars, moved = _plan(kernels, weight, use, few=few)
    tiles = -(-tokens // tile_tokens)
    moved += 4 * (tokens - 1) * (weight.rows + weight.cols)
    buffers: tuple[Slice, ...]
    if isinstance(x, Float16):
        buffers = (weight.quants, weight.scales, *x, y, bias.vector if bias else x.factors)
        groups = (tiles, row_tiles, 1)  # what reads the same weights runs at the same time
    else:
        buffers = (weight.quants, weight.scales, x, y, bias.vector if bias else x)
        groups = (row_tiles, tiles, 1)
    return Op(name or weight.name, kernel, buffers, (*scalars, tokens), groups, "weights", moved)


def embed(
    kernels: KernelSet,
    weight: Weight,
    ids: Slice,
    y: Slice,
    tokens: int,
    *,
    scale: float = 1.0,
    first: int = 0,
    table: Weight | None = None,
    name: str = "embed",
) -> Op:
    """y[t] = scale times row ids[first + t] of the table: ids uint32, y float32 (tokens, cols).

    ``weight`` may be a part of ``table``: rows that others hold are left as they are.
    """
    kernel, groups, _, _ = _plan(kernels, weight, "embed")
    rows, cols = weight.rows, weight.cols
    moved = tokens * (weight.bytes // rows + 4 * cols)
    return Op(
        name,
        kernel,
        (weight.quants, weight.scales, ids, y),
        (rows, cols, first, scale, weight.first, (table or weight).rows),
        (groups[0], tokens, 1),
        "small",
        moved,
    )


def embed_decode(
    kernels: KernelSet,
    weight: Weight,
    state: Slice,
    y: Slice,
    *,
    scale: float = 1.0,
    table: Weight | None = None,
    name: str = "embed",
) -> Op:
    """y = scale times row state[STATE_TOKEN] of the table: y float32 (cols,). ``table`` as for ``embed``."""
    kernel, groups, _, _ = _plan(kernels, weight, "embed_decode")
    rows, cols = weight.rows, weight.cols
    moved = weight.bytes // rows + 4 * cols
    buffers = (weight.quants, weight.scales, state, y)
    scalars = (rows, cols, 0, scale, weight.first, (table or weight).rows)
    return Op(name, kernel, buffers, scalars, groups, "small", moved)


def _plan(
    kernels: KernelSet, weight: Weight, use: Use, more: Defines | None = None, few: bool = False
) -> tuple[Kernel, Groups, tuple[int | float, ...], int]:
    plan: tuple[Kernel, Groups, tuple[int | float, ...], int] | None = weight.plans.get((kernels, use, few))
    if plan is None:
        if weight.parts:
            raise ValueError(f"{weight.name} lies in {len(weight.parts)} parts: one op cannot read it")
        rows, cols = weight.rows, weight.cols
        kernel_name, defines, groups = _choose(kernels, use, weight.type, rows, cols, few)
        sides = 2 if _operation(use) == "gate_up" else 1
        moved = sides * weight.bytes + 4 * (rows + cols)
        by_columns = kernel_name.endswith("_groups")
        scalars = (rows, 1.0 / cols) if by_columns else (rows, cols)
        plan = (kernels.get(kernel_name, defines | (more or {})), groups, scalars, moved)
        weight.plans[kernels, use, few] = plan
    return plan


def _choose(
    kernels: KernelSet, use: Use, type: GGMLQuantizationType, rows: int, cols: int, few: bool = False
) -> tuple[str, Defines, Groups]:
    """Kernel name, defines and workgroup counts; for matmul the second count is tokens a tile.

    ``few``: of a product by cooperative matrices with at most FEW_TOKENS.
    """
    cpu = layout(kernels) == "cpu"
    operation = _operation(use)
    defines: Defines = {"WEIGHT_TYPE": f"WEIGHT_{type.name}"}
    if operation == "embed":
        if use == "embed_decode":
            defines["DECODE"] = 1
        return "embed", defines, (-(-cols // 256), 1, 1)
    if cpu and type in FLOATS and cols % 32:
        defines["TAIL"] = 1
    if ending := _ENDINGS.get(use.rpartition("_")[-1]):
        defines[ending] = 1
    size = matrix_size(kernels)
    if operation == "matmul" and size:
        device = kernels.device
        tiles = matrix_tiles(rows, few, size, device.subgroup_size, device.shared_bytes)
        defines |= tiles.defines(size)
        return "matmul_matrices", defines, (-(-rows // tiles.rows), tiles.tokens, 1)
    if operation == "matmul":
        tile = _TOKENS_A_TILE[cpu]
        if cpu:
            defines["TOKENS"] = tile
        return "matmul_rows" if cpu else "matmul_tiled", defines, (-(-rows // _ROWS_A_TILE[cpu]), tile, 1)
    if cpu:
        if operation == "gate_up":
            return "gate_up_rows", defines, _spread(-(-rows // 8))
        defines["OCTETS"] = 2
        return "matvec_rows", defines, _spread(-(-rows // 16))
    if use.startswith("norm_"):
        defines["NORM"] = 1
    name = f"{operation}_groups"
    if "NORM" in defines and norm_late(name) and kernels.resident is None:
        defines["NORM_LATE"] = 1
    device = kernels.device
    width = device.subgroup_size
    at_once, teams, groups = division(name, type, rows, cols, width, device.most_invocations, kernels.resident)
    stage = stage_blocks(type, cols, width, device.shared_bytes)
    defines |= {"COLS": cols, "LANES": lanes(cols, width), "TEAMS": teams, "ROWS": at_once, "STAGE_BLOCKS": stage}
    return name, defines, (groups, 1, 1)


def _operation(use: Use) -> str:
    """A use without what comes before or after the multiplication: "matvec" of "norm_matvec_bias"."""
    return next(name for name in _OPERATIONS if use.removeprefix("norm_").startswith(name))


def _turning(rope: Defines, use: Use) -> Defines:
    """rope.glsl's defines for a use of "qkv": of a layer without RoPE nothing turns."""
    return {**rope, "ROTATED": 0} if use.endswith("_store") else rope


def _spread(groups: int) -> Groups:
    """Workgroups over two dimensions where one does not hold them; kernels guard the surplus."""
    if groups <= MOST_GROUPS:
        return groups, 1, 1
    height = -(-groups // MOST_GROUPS)
    return -(-groups // height), height, 1
