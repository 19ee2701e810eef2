"""Fused kernels for GPUs give the bits of the kernels they replace."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from engine.decode.sampling import Sampling
from engine.decode.state import STATE_BYTES, STEP_BYTES, initial_state, pack_step
from engine.program import matrix, sample
from engine.program.nodes import Node
from engine.program.op import Op
from engine.program.operands import Bias, Caches, Norm
from engine.program.small_kernels import norm_defines
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines
from tests.engine.gpu import POISON, Gpu
from tests.engine.matrices import weight_of
from tests.engine.weight_data import TYPES, T, activations

EPS = 1e-5


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    with Gpu(row_kernels=False) as device:
        yield device


def normed(gpu: Gpu, x: Slice, weight: Slice, cols: int) -> tuple[Op, Slice]:
    """The norm as an op of its own, and where its result goes."""
    y = gpu.poisoned(cols * 4)
    kernel = gpu.kernels.get("norm", norm_defines(cols, gpu.device.subgroup_size, cpu=False))
    return Op("norm", kernel, (x, weight, y), (cols, 1 / cols, EPS), (1, 1, 1)), y


def norm_weight(gpu: Gpu, random: np.random.Generator, cols: int) -> Slice:
    return gpu.array(random.standard_normal(cols).astype(np.float32))


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
@pytest.mark.parametrize("cols", [256, 4352])  # 4352: more than the lanes take at once
def test_norm_into_projections(gpu: Gpu, random: np.random.Generator, type: T, cols: int) -> None:
    rows = 21
    weight = weight_of(gpu, random, type, rows, cols)
    x, scale = gpu.array(activations(random, cols)), norm_weight(gpu, random, cols)
    op, y = normed(gpu, x, scale, cols)
    separate, fused = (gpu.poisoned(rows * 4 + 64) for _ in range(2))
    gpu.run(op, matrix.matvec(gpu.kernels, weight, y, separate))
    gpu.run(matrix.matvec(gpu.kernels, weight, x, fused, norm=Norm(scale, EPS)))
    np.testing.assert_array_equal(gpu.read(fused), gpu.read(separate))
    if type is T.Q4_1:  # one of them: the bias comes after the products
        bias = Bias(norm_weight(gpu, random, rows))
        gpu.run(op, matrix.matvec(gpu.kernels, weight, y, separate, bias=bias))
        gpu.run(matrix.matvec(gpu.kernels, weight, x, fused, norm=Norm(scale, EPS), bias=bias))
        np.testing.assert_array_equal(gpu.read(fused), gpu.read(separate))
    gpu.run(op, matrix.gate_up(gpu.kernels, weight, weight, y, separate))
    gpu.run(matrix.gate_up(gpu.kernels, weight, weight, x, fused, norm=Norm(scale, EPS)))
    np.testing.assert_array_equal(gpu.read(fused), gpu.read(separate))
    assert (gpu.read(fused)[rows:].view(np.uint8) == POISON).all(), "wrote past the last row"


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize(("size", "rotated"), [(64, 64), (24, 16)])
@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize(("done", "end"), [(False, ""), (True, ""), (False, "bias"), (False, "unturned")])
def test_qkv_rope(
    gpu: Gpu, random: np.random.Generator, halves: bool, size: int, rotated: int, with_norm: bool, done: bool, end: str
) -> None:
    """``end``: what is besides, or instead of, RoPE at the end."""
    heads, kv_heads, cols, context, position = 3, 1, 288, 32, 7
    rows = (heads + 2 * kv_heads) * size
    weight = weight_of(gpu, random, T.Q4_1, rows, cols)
    x = gpu.array(random.standard_normal(cols).astype(np.float32))
    scale = norm_weight(gpu, random, cols)
    angles = random.uniform(0, 6, (context, rotated // 2))
    table = gpu.array(np.stack((np.cos(angles), np.sin(angles)), -1).astype(np.float32))
    words = np.zeros(128, np.uint32)
    words[[0, 2]] = position, done
    state = gpu.array(words)
    rope: Defines = {"HEAD_DIM": size, "ROTATED": rotated} | ({"ROPE_HALVES": 1} if halves else {})
    norm_op, y = normed(gpu, x, scale, cols)
    cache_bytes = kv_heads * context * size * 2
    caches = [gpu.poisoned(cache_bytes) for _ in range(4)]

    whole = gpu.poisoned(rows * 4)
    q, k, v = (
        whole.part(start * size * 4, count * size * 4)
        for start, count in ((0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads))
    )
    pairs = (heads + kv_heads) * size // 2
    bias = norm_weight(gpu, random, rows)
    biased = Op("bias", gpu.kernels.get("bias"), (whole, bias), (rows, rows), (-(-rows // 64), 1, 1))
    store = Op(
        "rope_store", gpu.kernels.get("rope_store", rope), (q, k, v, table, caches[0], caches[1], state),
        (heads, kv_heads, 1, context), (-(-pairs // 64), 1, 1),
    )  # fmt: skip
    if end == "unturned":
        store = Op(
            "store_kv", gpu.kernels.get("store_kv", {"HEAD_DIM": size}), (k, v, caches[0], caches[1], state),
            (kv_heads, 1, context), (-(-kv_heads * size // 64), 1, 1),
        )  # fmt: skip
    projection = matrix.matvec(gpu.kernels, weight, y if with_norm else x, whole)
    gpu.run(*([norm_op] if with_norm else []), projection, *([biased] if end == "bias" else []), store)
    q_fused = gpu.poisoned(heads * size * 4 + 64)
    where = Caches(None if end == "unturned" else table, caches[2], caches[3], state, heads, kv_heads, context)
    norm = Norm(scale, EPS) if with_norm else None
    added = Bias(bias) if end == "bias" else None
    gpu.run(matrix.qkv(gpu.kernels, weight, x, q_fused, where, rope, norm=norm, bias=added))
    for separate, fused in zip(caches[:2], caches[2:], strict=True):
        np.testing.assert_array_equal(gpu.read(fused, np.uint16), gpu.read(separate, np.uint16))
    untouched = (gpu.read(caches[2], np.uint8) == POISON).all()
    assert untouched == done
    if not done:
        np.testing.assert_array_equal(gpu.read(q_fused)[: heads * size], gpu.read(q))
    assert (gpu.read(q_fused)[heads * size :].view(np.uint8) == POISON).all()


@pytest.mark.parametrize("sampling", [
    Sampling(temperature=0.0), Sampling(temperature=0.0, repeat_penalty=1.3), Sampling(temperature=0.9, seed=3),
    Sampling(temperature=1.5, top_p=1.0, repeat_penalty=1.2, seed=8),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("vocab", [1024, 2091])
@pytest.mark.parametrize("with_norm", [False, True])
def test_head_and_first_step_of_sampling(
    gpu: Gpu, random: np.random.Generator, sampling: Sampling, vocab: int, with_norm: bool
) -> None:
    cols = 64
    weight = weight_of(gpu, random, T.Q8_0, vocab, cols)
    x = gpu.array(random.standard_normal(cols).astype(np.float32))
    scale = norm_weight(gpu, random, cols)
    step, readback = gpu.memory.allocate(STEP_BYTES, "upload"), gpu.memory.allocate(16, "readback")
    gpu.memory.write(step, np.frombuffer(pack_step(sampling), np.uint8))
    history = random.integers(0, vocab, 50).tolist()
    image = np.frombuffer(initial_state(len(history), 7, history), np.uint8)
    norm_op, y = normed(gpu, x, scale, cols)
    results: list[tuple[int, npt.NDArray[np.float32], npt.NDArray[np.uint32]]] = []
    for fused in (False, True):
        state = gpu.memory.allocate(STATE_BYTES)
        gpu.memory.write(state, image)
        scratch = gpu.poisoned(sample.scratch_bytes(vocab))
        logits = gpu.poisoned(vocab * 4)
        head = None
        if fused:
            args = (weight, x, logits, Norm(scale, EPS)) if with_norm else (weight, x, logits)
            head = Node("head_keys", "head", args)
        ops = sample.sample(gpu.kernels, logits, vocab, step, state, readback, scratch, 1, head)
        if not fused:
            ops = [matrix.matvec(gpu.kernels, weight, y if with_norm else x, logits), *ops]
            ops = [norm_op, *ops] if with_norm else ops
        gpu.run(*ops)
        keys = gpu.read(scratch, np.uint32)[: -(-vocab // 1024) * 1024]
        results.append((int(gpu.read(readback, np.uint32)[0]), gpu.read(logits), keys))
    (id_separate, logits_separate, keys_separate), (id_fused, logits_fused, keys_fused) = results
    np.testing.assert_array_equal(logits_fused, logits_separate)
    np.testing.assert_array_equal(keys_fused, keys_separate)
    assert id_fused == id_separate
