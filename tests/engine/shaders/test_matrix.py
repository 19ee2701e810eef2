"""Matrix kernels of both kinds of device against float64, and against each other to the bit."""

from __future__ import annotations

from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGMLQuantizationType

from engine.program import matrix, matrix_kernels, tuning
from engine.program.op import Op
from engine.program.operands import Bias, Caches, Float16, Norm, Weight
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, Kernels
from engine.weights.repack import repack
from tests.engine.gpu import POISON, Gpu
from tests.engine.matrices import guarded, make_weight, matmul, shapes
from tests.engine.weight_data import (
    TYPES,
    T,
    activations,
    assert_product,
    assert_within,
    product_bound,
    random_raw,
    values,
)


def run(gpu: Gpu, op: Op, y: Slice) -> npt.NDArray[np.float32]:
    gpu.run(op)
    return gpu.read(y)


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_matvec(gpu: Gpu, kernels: Kernels, random: np.random.Generator, type: GGMLQuantizationType) -> None:
    for rows, cols in shapes(type):
        raw = random_raw(random, type, rows, cols)
        weight = make_weight(gpu, kernels, raw, type, rows, cols)
        x = activations(random, cols)
        y = gpu.poisoned(rows * 4 + 64)
        result = run(gpu, matrix.matvec(kernels, weight, guarded(gpu, x), y), y)
        assert_product(result[:rows], values(raw, type, rows, cols), x[None])
        assert (result[rows:].view(np.uint8) == POISON).all(), "wrote past the last row"


@pytest.mark.parametrize("type", (T.F16, T.Q4_0, T.Q8_0, T.Q2_K, T.Q6_K, T.MXFP4), ids=lambda type: type.name)
def test_one_workgroup_makes_what_many_make(
    gpu: Gpu, variants: dict[str, Kernels], random: np.random.Generator, type: T, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU kernels that take turn after turn, with a block a lane, several, and more of x than shared memory holds."""
    kernels = variants["gpu"]
    for rows, cols in ((70, 512), (37, 5120), (11, 12288)):
        raw = random_raw(random, type, rows, cols)
        x_host = activations(random, cols)
        x, results = guarded(gpu, x_host), []
        for wanted in (132 * 512, 1):
            monkeypatch.setattr(tuning, "_INVOCATIONS_WANTED", wanted)
            weight = make_weight(gpu, kernels, raw, type, rows, cols)
            y = gpu.poisoned(rows * 4 + 64)
            op = matrix.matvec(kernels, weight, x, y)
            assert (op.groups[0] == 1) == (wanted == 1)
            results.append(run(gpu, op, y))
        np.testing.assert_array_equal(*results)
        assert (results[0][rows:].view(np.uint8) == POISON).all(), "wrote past the last row"
        assert_product(results[0][:rows], values(raw, type, rows, cols), x_host[None])


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_embed(gpu: Gpu, kernels: Kernels, random: np.random.Generator, type: GGMLQuantizationType) -> None:
    """Rows come out as gguf dequantises them, to the bit: each weight needs one rounding at most."""
    for rows, cols in shapes(type):
        raw = random_raw(random, type, rows, cols)
        table = values(raw, type, rows, cols)
        weight = make_weight(gpu, kernels, raw, type, rows, cols)
        ids = random.integers(0, rows, 9).astype(np.uint32)
        y = gpu.poisoned(5 * cols * 4)
        result = run(gpu, matrix.embed(kernels, weight, gpu.array(ids), y, 5, first=4), y)
        np.testing.assert_array_equal(result.reshape(5, cols), table[ids[4:]])
        state = np.array([7, ids[0]], np.uint32)  # position, token
        result = run(gpu, matrix.embed_decode(kernels, weight, gpu.array(state), y), y)
        np.testing.assert_array_equal(result[:cols], table[ids[0]])
        scaled = table[ids[0]] * np.float32(25.3)  # Gemma scales its embeddings
        result = run(gpu, matrix.embed_decode(kernels, weight, gpu.array(state), y, scale=25.3), y)
        np.testing.assert_array_equal(result[:cols], scaled)
        result = run(gpu, matrix.embed(kernels, weight, gpu.array(ids), y, 1, scale=25.3), y)
        np.testing.assert_array_equal(result[:cols], scaled)


def test_mxfp4_has_every_exponent(gpu: Gpu, kernels: Kernels, random: np.random.Generator) -> None:
    rows, cols = 256, 32
    raw = random_raw(random, T.MXFP4, rows, cols).reshape(rows, -1)
    raw[:, 0] = np.arange(256)
    with np.errstate(over="ignore"):  # the last ones
        expected = values(raw.reshape(-1), T.MXFP4, rows, cols)
    weight = make_weight(gpu, kernels, raw.reshape(-1), T.MXFP4, rows, cols)
    y = gpu.poisoned(rows * cols * 4)
    result = run(gpu, matrix.embed(kernels, weight, gpu.array(np.arange(rows, dtype=np.uint32)), y, rows), y)
    result = result.reshape(rows, cols)
    np.testing.assert_array_equal(result[2:], expected[2:])
    np.testing.assert_allclose(
        result[:2], expected[:2], atol=1e-37
    )  # subnormal scales: a device may take them for zero


@pytest.mark.parametrize(
    ("type", "gelu"),
    [*((type, False) for type in TYPES), (T.F16, True), (T.Q4_1, True)],
    ids=lambda item: getattr(item, "name", "gelu" if item else "silu"),
)
def test_gate_up_is_two_matvecs_and_the_activation(
    gpu: Gpu, kernels: Kernels, random: np.random.Generator, type: GGMLQuantizationType, gelu: bool
) -> None:
    rows, cols = 43, 768
    gate_raw, up_raw = (random_raw(random, type, rows, cols) for _ in range(2))
    gate, up = (make_weight(gpu, kernels, raw, type, rows, cols) for raw in (gate_raw, up_raw))
    x_host = random.standard_normal(cols).astype(np.float32) * np.float32(0.3)
    x = gpu.array(x_host)
    a, b, separate, fused = (gpu.poisoned(rows * 4 + 64) for _ in range(4))
    activation = "gelu_mul" if gelu else "silu_mul"
    gated = Op(activation, kernels.get(activation), (a, b, separate), (rows,), (1, 1, 1))
    gpu.run(matrix.matvec(kernels, gate, x, a), matrix.matvec(kernels, up, x, b), gated)
    gpu.run(matrix.gate_up(kernels, gate, up, x, fused, gelu=gelu))
    np.testing.assert_array_equal(gpu.read(fused), gpu.read(separate))
    assert (gpu.read(fused)[rows:].view(np.uint8) == POISON).all(), "wrote past the last row"
    weights = [values(raw, type, rows, cols) for raw in (gate_raw, up_raw)]
    g, u = (weight.astype(np.float64) @ x_host for weight in weights)
    g_error, u_error = (product_bound(weight, x_host[None])[0] for weight in weights)
    activated = g / (1 + np.exp(-g))
    if gelu:
        activated = g / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
    # either activation is at most 1.13 steep; float32's own roundings in it are relative to g
    bound = (1.13 * g_error + 2e-6 * np.abs(g)) * (np.abs(u) + u_error) + np.abs(activated) * u_error
    assert_within(gpu.read(fused)[:rows], activated * u, bound)


@pytest.mark.parametrize("type", [T.F16, T.Q4_1, T.Q6_K], ids=lambda type: type.name)
def test_biased_product_is_product_then_bias(gpu: Gpu, kernels: Kernels, random: np.random.Generator, type: T) -> None:
    rows, cols, tokens = 27, 512, 3
    raw = random_raw(random, type, rows, cols)
    weight = make_weight(gpu, kernels, raw, type, rows, cols)
    x_host = activations(random, tokens, cols)
    x, vector = gpu.array(x_host), random.standard_normal(rows).astype(np.float32)
    bias = gpu.array(vector)
    for count in (1, tokens):
        fused, separate = (gpu.poisoned(count * rows * 4 + 64) for _ in range(2))
        add = Op("bias", kernels.get("bias"), (separate, bias), (rows, count * rows), (-(-count * rows // 64), 1, 1))
        if count == 1:
            gpu.run(matrix.matvec(kernels, weight, x, separate), add)
            gpu.run(matrix.matvec(kernels, weight, x, fused, bias=Bias(bias)))
        else:
            gpu.run(*matmul(gpu, kernels, weight, x, separate, count), add)
            gpu.run(*matmul(gpu, kernels, weight, x, fused, count, bias=Bias(bias)))
        result = gpu.read(fused)
        np.testing.assert_array_equal(result, gpu.read(separate))
        assert (result[count * rows :].view(np.uint8) == POISON).all(), "wrote past the last row"
        weights = values(raw, type, rows, cols)
        exact = x_host[:count].astype(np.float64) @ weights.T.astype(np.float64) + vector
        float16 = count > 1 and matrix_kernels.matrix_size(kernels) is not None
        bound = product_bound(weights, x_host[:count], float16) + 2.0**-23 * np.abs(exact)
        assert_within(result[: count * rows], exact, bound)


@pytest.mark.parametrize("type", [T.F16, T.Q4_1, T.Q6_K], ids=lambda type: type.name)
def test_added_product_is_product_then_add(gpu: Gpu, kernels: Kernels, random: np.random.Generator, type: T) -> None:
    rows, cols, tokens = 27, 512, 3
    weight = make_weight(gpu, kernels, random_raw(random, type, rows, cols), type, rows, cols)
    x = gpu.array(activations(random, tokens, cols))
    before = random.standard_normal((tokens, rows)).astype(np.float32)
    add = kernels.get("add")
    fused, separate, product = gpu.array(before), gpu.array(before), gpu.poisoned(before.nbytes)
    gpu.run(matrix.matvec(kernels, weight, x, fused, add=True), matrix.matvec(kernels, weight, x, product))
    gpu.run(Op("add", add, (separate, product), (rows,), (1, 1, 1)))
    np.testing.assert_array_equal(gpu.read(fused), gpu.read(separate))

    fused, separate, product = gpu.array(before), gpu.array(before), gpu.poisoned(before.nbytes)
    gpu.run(*matmul(gpu, kernels, weight, x, fused, tokens, add=True))
    gpu.run(*matmul(gpu, kernels, weight, x, product, tokens))
    gpu.run(Op("add", add, (separate, product), (rows * tokens,), (2, 1, 1)))
    np.testing.assert_array_equal(gpu.read(fused), gpu.read(separate))


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_stacked_weights_give_the_rows_of_the_separate_ones(
    gpu: Gpu, kernels: Kernels, random: np.random.Generator, type: GGMLQuantizationType
) -> None:
    cols, counts = 768, (24, 8, 8)
    planes = [
        repack(random_raw(random, type, rows, cols), type, rows, cols, matrix_kernels.layout(kernels))
        for rows in counts
    ]
    x = gpu.array(activations(random, cols))
    whole = [gpu.array(np.concatenate([item[i] for item in planes]), constant=True) for i in range(2)]
    y = gpu.poisoned(40 * 4)
    stacked = run(gpu, matrix.matvec(kernels, Weight("qkv", type, 40, cols, whole[0], whole[1], 0), x, y), y)
    separate = []
    for rows, item in zip(counts, planes, strict=True):
        quants, scales = (gpu.array(plane, constant=True) for plane in item)
        part = gpu.poisoned(rows * 4)
        separate.append(
            run(gpu, matrix.matvec(kernels, Weight("w", type, rows, cols, quants, scales, 0), x, part), part)
        )
    np.testing.assert_array_equal(stacked, np.concatenate(separate))


@pytest.mark.parametrize("rows", [4_099, 262_152])
def test_many_rows(gpu: Gpu, kernels: Kernels, random: np.random.Generator, rows: int) -> None:
    """Several rows a subgroup, and more workgroups than one dimension may hold."""
    cols = 32
    raw = random_raw(random, T.Q8_0, rows, cols)
    weight = make_weight(gpu, kernels, raw, T.Q8_0, rows, cols)
    x = activations(random, cols)
    y = gpu.poisoned(rows * 4)
    op = matrix.matvec(kernels, weight, gpu.array(x), y)
    assert max(op.groups) <= 65535
    assert_product(run(gpu, op, y), values(raw, T.Q8_0, rows, cols), x[None])


ROPE: Defines = {"HEAD_DIM": 8, "ROTATED": 4}


def test_required_kernels_are_the_ones_ops_use(gpu: Gpu, kernels: Kernels, random: np.random.Generator) -> None:
    required = matrix_kernels.required_kernels(
        kernels, [(use, T.Q4_1, 40, 64) for use in get_args(matrix_kernels.Use)], ROPE
    )
    prepared = {kernels.get(name, defines) for name, defines, _ in required}
    weight = make_weight(gpu, kernels, random_raw(random, T.Q4_1, 40, 64), T.Q4_1, 40, 64)
    x = gpu.poisoned(256)
    bias = Bias(x)
    many = Float16(x, x) if matrix_kernels.matrix_size(kernels) else x
    ops = [
        matrix.matvec(kernels, weight, x, x), matrix.matvec(kernels, weight, x, x, add=True),
        matrix.gate_up(kernels, weight, weight, x, x), matrix.matmul(kernels, weight, many, x, 3),
        matrix.matmul(kernels, weight, many, x, 3, add=True), matrix.embed(kernels, weight, x, x, 2),
        matrix.embed_decode(kernels, weight, x, x), matrix.matvec(kernels, weight, x, x, bias=bias),
        matrix.matmul(kernels, weight, many, x, 3, bias=bias), matrix.gate_up(kernels, weight, weight, x, x, gelu=True),
    ]  # fmt: skip
    if matrix_kernels.layout(kernels) == "gpu":
        caches = Caches(x, x, x, x, 3, 1, 1)
        for norm in (None, Norm(x, 1e-5)):
            for end in (None, bias):
                ops.append(matrix.qkv(kernels, weight, x, x, caches, ROPE, norm=norm, bias=end))
                ops.append(matrix.matvec(kernels, weight, x, x, norm=norm, bias=end))
            unturned = caches._replace(rope_table=None)
            ops.append(matrix.qkv(kernels, weight, x, x, unturned, ROPE, norm=norm))
            ops.append(matrix.gate_up(kernels, weight, weight, x, x, norm=norm))
            ops.append(matrix.gate_up(kernels, weight, weight, x, x, gelu=True, norm=norm))
            ops.append(matrix.head_keys(kernels, weight, x, x, (x, x, x, 1024), norm=norm)[0])
    assert {op.kernel for op in ops} == prepared
