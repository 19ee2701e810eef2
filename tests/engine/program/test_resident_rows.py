"""The persistent mode's row kernel gives the bits of the kernels that separate dispatches run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from engine.decode.sampling import Sampling
from engine.decode.state import STATE_BYTES, STEP_BYTES, initial_state, pack_step
from engine.program import matrix, resident_rows, sample
from engine.program.nodes import Node
from engine.program.op import Op
from engine.program.operands import Bias, Caches, Norm, Weight
from engine.program.resident import ResidentKernels
from engine.program.tuning import RowTuning, group_invocations
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, KernelSet, Resident
from tests.engine.gpu import POISON, Gpu
from tests.engine.matrices import weight_of
from tests.engine.walk import walk
from tests.engine.weight_data import TYPES, T, activations

EPS = 1e-5
COLS = 768  # 24 blocks of 32: three chunks, one and a half, and less than one of 8, 16 and 32 lanes
Build = Callable[[KernelSet, list[Slice]], list[Op]]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    with Gpu(row_kernels=False) as device:
        yield device


def vector(gpu: Gpu, random: np.random.Generator, count: int, constant: bool = True) -> Slice:
    return gpu.array(random.standard_normal(count).astype(np.float32), constant)


def take_rows(wanted: int) -> Callable[[KernelSet, Weight, int], int]:
    """``wanted`` rows a tile, or what comes nearest."""
    return lambda kernels, weight, end: min(resident_rows.choices(weight.type, end), key=lambda n: abs(n - wanted))


def assert_same(
    gpu: Gpu,
    weights: Sequence[Weight],
    sizes: Sequence[int],
    build: Build,
    state: Slice | None = None,
    factors: Sequence[int] = (1, 2),
) -> None:
    """What ``build`` makes writes the same to buffers of ``sizes`` bytes both ways.

    Whatever rows a tile has, and with each of ``factors`` subgroups sharing a row in the other kernels.
    """
    for factor in factors:
        lanes = {(weight.type, weight.cols): gpu.device.subgroup_size * factor for weight in weights}
        assert_same_of_lanes(gpu, lanes, sizes, build, state)
        for weight in weights:
            weight.plans.clear()


def assert_same_of_lanes(
    gpu: Gpu, lanes: dict[tuple[T, int], int], sizes: Sequence[int], build: Build, state: Slice | None
) -> None:
    separate = [gpu.poisoned(size) for size in sizes]
    state = state or gpu.array(np.zeros(STATE_BYTES, np.uint8))
    group = group_invocations(gpu.device.subgroup_size, gpu.device.most_invocations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu.kernels, "tuning", RowTuning(lanes))
        gpu.run(*build(gpu.kernels, separate))
        expected = [gpu.read(item, np.uint16) for item in separate]
        assert not any((item == POISON * 0x101).all() for item in expected)
        kernels = ResidentKernels(gpu.kernels, Resident(group, 2))
        for wanted in (None, 4, 1):
            if wanted is not None:
                patch.setattr(resident_rows, "_rows_a_tile", take_rows(wanted))
            joined = [gpu.poisoned(size) for size in sizes]
            ops = build(kernels, joined)
            rows = [op for op in ops if op.kernel.name == resident_rows.KERNEL]
            assert len(rows) >= len(ops) - 1 and len({op.kernel for op in rows}) == len({type for type, _ in lanes})
            walk(gpu, kernels, ops, state)
            for item, values in zip(joined, expected, strict=True):
                np.testing.assert_array_equal(gpu.read(item, np.uint16), values)


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_projections(gpu: Gpu, random: np.random.Generator, type: T) -> None:
    many, few, gate, up = (weight_of(gpu, random, type, rows, COLS) for rows in (131, 3, 70, 70))
    x, scale, bias = gpu.array(activations(random, COLS)), vector(gpu, random, COLS), vector(gpu, random, 131)
    norm = Norm(scale, EPS)

    def build(kernels: KernelSet, out: list[Slice]) -> list[Op]:
        ops = [matrix.gate_up(kernels, gate, up, x, out[0], norm=norm)]
        if whole:
            ops += [
                matrix.matvec(kernels, many, x, out[1], norm=norm),
                matrix.matvec(kernels, many, x, out[1], add=True),
                matrix.matvec(kernels, many, x, out[2], bias=Bias(bias)),
                matrix.matvec(kernels, few, x, out[3], norm=norm),
                matrix.gate_up(kernels, gate, up, x, out[4], gelu=True),
            ]
        return ops

    whole = type in (T.F16, T.Q4_1, T.Q6_K)  # the rest is the same for all types, and takes long to compile
    sizes = [70 * 4 + 64, 131 * 4 + 64, 131 * 4, 64, 70 * 4]
    factors = (1, 2) if whole else (2,)
    assert_same(gpu, (many, few, gate, up), sizes if whole else sizes[:1], build, factors=factors)


@pytest.mark.parametrize("type", [T.F16, T.Q4_0, T.Q4_1, T.Q6_K], ids=lambda type: type.name)
def test_what_is_no_number_stays_none(gpu: Gpu, random: np.random.Generator, type: T) -> None:
    kernels = ResidentKernels(
        gpu.kernels, Resident(group_invocations(gpu.device.subgroup_size, gpu.device.most_invocations), 2)
    )
    weight, norm = weight_of(gpu, random, type, 37, COLS), Norm(vector(gpu, random, COLS), EPS)
    x, state = gpu.poisoned(COLS * 4), gpu.array(np.zeros(STATE_BYTES, np.uint8))
    out = [gpu.poisoned(37 * 4) for _ in range(3)]
    ops = [
        matrix.matvec(kernels, weight, x, out[0]),
        matrix.matvec(kernels, weight, x, out[1], norm=norm),
        matrix.gate_up(kernels, weight, weight, x, out[2], norm=norm),
    ]
    for place in (random.integers(16), COLS - 1 - random.integers(16), random.integers(COLS)):
        for value in (np.nan, np.inf, -np.inf):
            values = random.standard_normal(COLS).astype(np.float32)
            values[place] = value
            gpu.memory.write(x, values)
            for item in out:
                gpu.memory.write(item, np.zeros(37, np.float32))
            gpu.memory.flush()
            walk(gpu, kernels, ops, state)
            assert not any(np.isfinite(gpu.read(item)).any() for item in out)


def test_widths_and_types_side_by_side(gpu: Gpu, random: np.random.Generator) -> None:
    """One kernel a type for all widths: less than a chunk, one, and as long an x as there is room for."""
    sizes = [(T.Q4_K, 256, 40), (T.Q4_0, 64, 9), (T.Q4_0, 2048, 300), (T.Q4_0, 512, 17), (T.F16, 100, 33)]
    weights = [weight_of(gpu, random, type, rows, cols) for type, cols, rows in sizes]
    inputs = [gpu.array(activations(random, cols)) for _, cols, _ in sizes]
    norm = Norm(vector(gpu, random, 64), EPS)

    def build(kernels: KernelSet, out: list[Slice]) -> list[Op]:
        normed = (None, norm, None, None, None)
        each = zip(weights, inputs, out, normed, strict=True)
        return [matrix.matvec(kernels, weight, x, y, norm=norm) for weight, x, y, norm in each]

    assert_same(gpu, weights, [rows * 4 for _, _, rows in sizes], build, factors=(1, 4))


@pytest.mark.parametrize(("type", "size", "rotated", "halves", "end"), [
    (T.Q4_1, 64, 64, False, ""), (T.Q4_1, 24, 16, True, "bias"), (T.Q4_1, 80, 80, False, "unturned"),
    (T.F16, 80, 48, True, ""), (T.F16, 64, 64, False, "bias"),
], ids=str)  # fmt: skip
def test_qkv(gpu: Gpu, random: np.random.Generator, size: int, rotated: int, halves: bool, end: str, type: T) -> None:
    heads, kv_heads, context, position = 5, 3, 32, 7
    rows = (heads + 2 * kv_heads) * size
    weight, x = weight_of(gpu, random, type, rows, 288), gpu.array(activations(random, 288))
    angles = random.uniform(0, 6, (context, rotated // 2))
    table = gpu.array(np.stack((np.cos(angles), np.sin(angles)), -1).astype(np.float32), constant=True)
    words = np.zeros(STATE_BYTES // 4, np.uint32)
    words[0] = position
    state = gpu.array(words)
    rope: Defines = {"HEAD_DIM": size, "ROTATED": rotated} | ({"ROPE_HALVES": 1} if halves else {})
    bias = Bias(vector(gpu, random, rows)) if end == "bias" else None
    norm = Norm(vector(gpu, random, 288), EPS)

    def build(kernels: KernelSet, out: list[Slice]) -> list[Op]:
        where = Caches(None if end == "unturned" else table, out[1], out[2], state, heads, kv_heads, context)
        return [matrix.qkv(kernels, weight, x, out[0], where, rope, norm=norm, bias=bias)]

    cache_bytes = kv_heads * context * size * 2
    assert_same(gpu, (weight,), [heads * size * 4 + 64, cache_bytes, cache_bytes], build, state)


@pytest.mark.parametrize("sampling", [
    Sampling(temperature=0.0), Sampling(temperature=0.0, repeat_penalty=1.3), Sampling(temperature=0.9, seed=3),
    Sampling(temperature=1.5, top_p=0.9, repeat_penalty=1.2, seed=8),
], ids=str)  # fmt: skip
def test_head(gpu: Gpu, random: np.random.Generator, sampling: Sampling) -> None:
    vocab = 2091
    weight, x, norm = (
        weight_of(gpu, random, T.Q8_0, vocab, 96),
        vector(gpu, random, 96),
        Norm(vector(gpu, random, 96), EPS),
    )
    step = gpu.memory.allocate(STEP_BYTES, "upload")
    gpu.memory.write(step, np.frombuffer(pack_step(sampling), np.uint8))
    history = random.integers(0, vocab, 50).tolist()
    image = np.frombuffer(initial_state(len(history), 7, history), np.uint8)
    states: list[Slice] = []
    padded = -(-vocab // 1024) * 1024

    def build(kernels: KernelSet, out: list[Slice]) -> list[Op]:
        states.append(gpu.array(image))
        scratch = gpu.poisoned(sample.scratch_bytes(vocab))
        keys = scratch.part(0, padded * 4)
        head = Node("head_keys", "head", (weight, x, out[0], norm))
        ops = sample.sample(kernels, out[0], vocab, step, states[-1], out[1], scratch, 1, head)
        scratches.append(keys)
        return ops

    scratches: list[Slice] = []
    assert_same(gpu, (weight,), [vocab * 4 + 64, 16], build, factors=(1,))
    for found in (scratches, states):
        first, *others = (gpu.read(item, np.uint32) for item in found)
        assert len(others) == 3 and all(np.array_equal(first, other) for other in others)


def test_what_it_does_not_take(gpu: Gpu) -> None:
    """An x that neither shared memory nor the registers hold."""
    width = gpu.device.subgroup_size
    kernels = ResidentKernels(gpu.kernels, Resident(16 * width, 2))
    fits = 8 * 16 * width >= 8192 // 32 * 8 and gpu.device.shared_bytes >= 8192 // 32 * 112 + 8192
    assert resident_rows.takes(kernels, T.Q4_0, 8192) == fits
    assert not resident_rows.takes(kernels, T.Q4_0, 16384)
    assert not resident_rows.takes(gpu.kernels, T.Q4_0, 32)
