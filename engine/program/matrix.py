"""Ops that multiply by a weight.

An op is made anew each token in ``rerecord`` mode, so what does not change is worked out once a weight and kept in its
``plans``.
"""

from __future__ import annotations

from engine.program import resident_rows
from engine.program.matrix_kernels import TO_FLOAT16_DEFINES, Groups, Use, choose, layout, operation_of, turning
from engine.program.matrix_tiles import FEW_TOKENS
from engine.program.op import Op
from engine.program.operands import Bias, Caches, Float16, Norm, Weight
from engine.program.resident_rows import End
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, Kernel, KernelSet


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
    if resident_rows.takes(kernels, weight.type, weight.cols):
        kind = resident_rows.ADD if add else resident_rows.BIAS if bias else resident_rows.STORE
        added = End(kind, bias=bias.vector if bias else None)
        return resident_rows.row_op(kernels, weight, x, y, added, norm, piece=piece, name=name)
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
    if resident_rows.takes(kernels, gate.type, gate.cols):
        gated = End(resident_rows.GATE_GELU if gelu else resident_rows.GATE)
        return resident_rows.row_op(kernels, gate, x, y, gated, norm, odd=up, name=name)
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
    if resident_rows.takes(kernels, weight.type, weight.cols):
        stored = End(
            resident_rows.QKV,
            bias.vector if bias else None,
            *caches[:4],
            heads=caches.heads,
            kv_heads=caches.kv_heads,
            context=caches.context,
            rope=rope if caches.rope_table else {**rope, "ROTATED": 0},
        )
        return resident_rows.row_op(kernels, weight, x, q, stored, norm, name=name)
    if caches.rope_table is None:
        if bias:
            raise ValueError("there is no kernel for a bias without RoPE")
        use = "norm_qkv_store" if norm else "qkv_store"
    elif bias:
        use = "norm_qkv_bias" if norm else "qkv_bias"
    else:
        use = "norm_qkv" if norm else "qkv"
    kernel, groups, scalars, moved = _plan(kernels, weight, use, turning(rope, use))
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
    step, state, scratch, padded = scan
    if resident_rows.takes(kernels, weight.type, weight.cols):
        keys = End(resident_rows.HEAD, state=state, step=step, scratch=scratch, padded=padded)
        op = resident_rows.row_op(kernels, weight, x, y, keys, norm, piece="head", name=name, further_bytes=4 * padded)
        return op, op.groups[0] * resident_rows.teams(kernels)
    kernel, groups, scalars, moved = _plan(kernels, weight, "norm_head" if norm else "head")
    buffers = (weight.quants, weight.scales, x, norm.weight if norm else x, y, step, state, scratch)
    scalars = (*scalars, norm.eps if norm else 0.0, padded)
    op = Op(name or weight.name, kernel, buffers, scalars, groups, "head", moved + 4 * padded)
    return op, groups[0] * int(kernel.defines["TEAMS"])


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
        kernel_name, defines, groups = choose(kernels, use, weight.type, rows, cols, few)
        sides = 2 if operation_of(use) == "gate_up" else 1
        moved = sides * weight.bytes + 4 * (rows + cols)
        by_columns = kernel_name.endswith("_groups")
        scalars = (rows, 1.0 / cols) if by_columns else (rows, cols)
        plan = (kernels.get(kernel_name, defines | (more or {})), groups, scalars, moved)
        weight.plans[kernels, use, few] = plan
    return plan
