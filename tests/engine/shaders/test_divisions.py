"""Every division of a matrix's rows gives the same bits, as long as as many lanes share a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from engine.decode.sampling import Sampling
from engine.decode.state import STATE_BYTES, STEP_BYTES, initial_state, pack_step
from engine.program import matrix, sample
from engine.program.nodes import Node
from engine.program.op import Op
from engine.program.operands import Caches, Norm, Weight
from engine.program.row_choices import RowDevice, divisions, lane_choices
from engine.program.tuning import Matrix, RowTuning
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Kernels
from engine.weights.repack import repack
from tests.engine.gpu import POISON, Gpu
from tests.engine.weight_data import T, activations, assert_product, random_raw, values

EPS = 1e-5
EVERY = 1000
Run = Callable[[Kernels, Weight], npt.NDArray[np.float32]]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    with Gpu(row_kernels=False) as device:
        yield device


@pytest.fixture(
    params=[1, pytest.param(EVERY, marks=[pytest.mark.soak, pytest.mark.timeout(600)])], ids=["one", "every"]
)
def tested(request: pytest.FixtureRequest) -> int:
    """How many divisions of each number of lanes, besides the usual one: random ones."""
    return int(request.param)


@pytest.fixture
def cols(gpu: Gpu) -> int:
    """Columns of three chunks, one and a half, and less than one, of one, two and four subgroups."""
    return 3 * 32 * gpu.device.subgroup_size


def row_device(gpu: Gpu) -> RowDevice:
    device = gpu.device
    return RowDevice(device.subgroup_size, device.most_invocations, device.shared_bytes)


def results(
    gpu: Gpu,
    random: np.random.Generator,
    tested: int,
    kernel: str,
    raw: npt.NDArray[np.uint8],
    type: T,
    shape: tuple[int, int],
    run: Run,
) -> dict[int, npt.NDArray[np.float32]]:
    """By lanes what ``run`` gives, the same for the usual division and for some of the others.

    ``shape``: rows and columns.
    """
    rows, cols = shape
    planes = [gpu.array(plane, constant=True) for plane in repack(raw, type, rows, cols, "gpu")]
    found, device = {}, row_device(gpu)
    teams = [device.subgroup_size * factor for factor in (1, 2, 4)]
    assert set(teams) <= set(lane_choices(type, cols, device))
    for team in teams:
        usual, *others = divisions(Matrix(kernel, type, rows, cols), team, device)
        for choice in (usual, *(others[i] for i in random.permutation(len(others))[:tested])):
            gpu.kernels.tuning = RowTuning({(type, cols): team}, {choice.matrix: choice.division})
            weight = Weight("w", type, rows, cols, planes[0], planes[1], planes[0].size + planes[1].size)
            result = run(gpu.kernels, weight)
            kernels = {key[0].defines["LANES"] for key in weight.plans.values()}
            assert kernels == {team}, "not what was asked for"
            assert choice is usual or np.array_equal(result, found[team]), f"other bits by {choice}"
            found[team] = result
    gpu.kernels.tuning = None
    return found


def written(gpu: Gpu, y: Slice, rows: int) -> npt.NDArray[np.float32]:
    result: npt.NDArray[np.float32] = gpu.read(y)
    assert (result[rows:].view(np.uint8) == POISON).all(), "wrote past the last row"
    return result[:rows]


@pytest.mark.parametrize("type", [T.Q4_0, T.Q6_K], ids=lambda type: type.name)
def test_projections(gpu: Gpu, random: np.random.Generator, cols: int, tested: int, type: T) -> None:
    rows = 67
    raw, x = random_raw(random, type, rows, cols), activations(random, cols)
    x_slice = gpu.array(x)

    def run(kernels: Kernels, weight: Weight) -> npt.NDArray[np.float32]:
        y = gpu.poisoned(rows * 4 + 64)
        gpu.run(matrix.matvec(kernels, weight, x_slice, y))
        return written(gpu, y, rows)

    for result in results(gpu, random, tested, "matvec_groups", raw, type, (rows, cols), run).values():
        assert_product(result, values(raw, type, rows, cols), x[None])


def test_gate_and_up_after_a_norm(gpu: Gpu, random: np.random.Generator, cols: int, tested: int) -> None:
    rows, type = 61, T.Q4_K
    raw = random_raw(random, type, rows, cols)
    x, scale = (gpu.array(random.standard_normal(cols).astype(np.float32)) for _ in range(2))

    def run(kernels: Kernels, weight: Weight) -> npt.NDArray[np.float32]:
        y = gpu.poisoned(rows * 4 + 64)
        gpu.run(matrix.gate_up(kernels, weight, weight, x, y, norm=Norm(scale, EPS)))
        return written(gpu, y, rows)

    results(gpu, random, tested, "gate_up_groups", raw, type, (rows, cols), run)


def test_qkv(gpu: Gpu, random: np.random.Generator, cols: int, tested: int) -> None:
    heads, kv_heads, size, context, type = 2, 1, 24, 16, T.Q4_1
    rows = (heads + 2 * kv_heads) * size
    raw = random_raw(random, type, rows, cols)
    x = gpu.array(random.standard_normal(cols).astype(np.float32))
    table = gpu.array(random.uniform(-1, 1, (context, size // 2, 2)).astype(np.float32))
    state = gpu.array(np.frombuffer(initial_state(3, 0, ()), np.uint8))

    def run(kernels: Kernels, weight: Weight) -> npt.NDArray[np.float32]:
        q, k, v = (gpu.poisoned(count * size * 4) for count in (heads, context, context))
        caches = Caches(table, k, v, state, heads, kv_heads, context)
        gpu.run(matrix.qkv(kernels, weight, x, q, caches, {"HEAD_DIM": size, "ROTATED": size}))
        return np.concatenate([gpu.read(item) for item in (q, k, v)])

    results(gpu, random, tested, "qkv_groups", raw, type, (rows, cols), run)


def test_the_head_and_what_is_sampled(gpu: Gpu, random: np.random.Generator, cols: int, tested: int) -> None:
    vocab, type = 1100, T.Q8_0
    raw = random_raw(random, type, vocab, cols)
    x = gpu.array(random.standard_normal(cols).astype(np.float32))
    step, readback = gpu.memory.allocate(STEP_BYTES, "upload"), gpu.memory.allocate(16, "readback")
    gpu.memory.write(step, np.frombuffer(pack_step(Sampling(temperature=0.9, top_p=1.0, seed=4)), np.uint8))
    image = np.frombuffer(initial_state(5, 7, [1, 2, 3, 4, 5]), np.uint8)

    def run(kernels: Kernels, weight: Weight) -> npt.NDArray[np.float32]:
        state = gpu.memory.allocate(STATE_BYTES)
        gpu.memory.write(state, image)
        logits, scratch = gpu.poisoned(vocab * 4), gpu.poisoned(sample.scratch_bytes(vocab))
        head = Node("head_keys", "head", (weight, x, logits))
        ops: list[Op] = sample.sample(kernels, logits, vocab, step, state, readback, scratch, 1, head)
        gpu.run(*ops)
        return np.concatenate([gpu.read(logits), gpu.read(readback)[:1]])

    results(gpu, random, tested, "head_groups", raw, type, (vocab, cols), run)
