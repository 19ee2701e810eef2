"""Gated DeltaNet's kernels against float64 numpy, of software devices and of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from engine.cache import RecurrentState
from engine.decode.state import NO_ID, STATE_BYTES, STATE_DONE, STATE_MARK, STATE_POSITION
from engine.models.config import DeltaShape, Geometry
from engine.program.delta import DeltaLowering
from engine.program.nodes import Node
from engine.program.resident import ResidentKernels
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Resident
from tests.engine.gpu import POISON, Gpu
from tests.engine.qwen35_reference import DeltaInputs, DeltaResults, DeltaWeights, delta_net
from tests.engine.walk import walk
from tests.engine.weight_data import assert_within, fresh_random, norm_error

EPS = 1e-6
TOKENS = 23
SHAPES = [
    (1, 1, 32),
    (2, 6, 64),
    (3, 3, 128),
    (1, 2, 96),
    (1, 1, 160),
    (2, 2, 256),
]  # key heads, value heads, head size
Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module", params=[None, False], ids=["software", "gpu"])
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    with Gpu(row_kernels=request.param) as device:
        yield device


class Layer(NamedTuple):
    """Random weights and ``TOKENS`` tokens' projections, and what they should give."""

    shape: DeltaShape
    inputs: tuple[Floats, ...]
    weights: tuple[Floats, ...]
    expected: DeltaResults


def random_layer(key_heads: int, value_heads: int, size: int) -> Layer:
    random = fresh_random()
    shape = DeltaShape(1, key_heads, value_heads, size, 4)

    def normal(*dimensions: int) -> Floats:
        return random.standard_normal(dimensions).astype(np.float32)

    inputs = (
        normal(TOKENS, shape.conv_size), normal(TOKENS, shape.value_size),
        3 * normal(TOKENS, value_heads), 2 * normal(TOKENS, value_heads),
    )  # fmt: skip
    inputs[0][:, :: size // 2] *= 30  # some channels stand out
    weights = (normal(shape.conv_size, 4), 2 * normal(value_heads), -np.exp(normal(value_heads)), 1 + normal(size))
    wide = [array.astype(np.float64) for array in (*inputs, *weights)]
    expected = delta_net(DeltaInputs(*wide[:4]), DeltaWeights(*wide[4:]), key_heads, EPS)
    return Layer(shape, inputs, weights, expected)


class Run:
    """A layer's state on the device, and chunks of tokens fed through it."""

    def __init__(self, gpu: Gpu, layer: Layer) -> None:
        self.gpu, self.layer, shape = gpu, layer, layer.shape
        self.geometry = Geometry(
            layers=1, hidden=32, heads=1, kv_heads=1, head_size=32, rotated=32, rope_halves=True, ffn=32, vocab=32,
            eps=EPS, trained_context=32, windows_tokens=(), attention_scale=1.0, delta=shape,
        )  # fmt: skip
        self.recurrent, self.marked = (
            RecurrentState(gpu.poisoned(shape.conv_bytes), gpu.poisoned(shape.state_bytes)) for _ in range(2)
        )
        self.weights = [gpu.array(array, constant=True) for array in layer.weights]

    def feed(
        self, start: int, end: int, fused: bool = False, done: bool = False, mark: int = NO_ID, group: int | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Tokens ``start`` to ``end``: what the convolution, the delta rule and the layer give; fused the last only.

        With ``group`` by resident workgroups of so many invocations.
        """
        gpu, shape = self.gpu, self.layer.shape
        words = np.zeros(STATE_BYTES // 4, np.uint32)
        words[STATE_POSITION], words[STATE_DONE], words[STATE_MARK] = start, done, mark
        state, tokens = gpu.array(words), end - start
        states = (state, [self.recurrent], [self.marked])
        resident = None if group is None else ResidentKernels(gpu.kernels, Resident(group, 2))
        lowering = DeltaLowering(resident or gpu.kernels, self.geometry, *states, tokens, prefill=not fused)
        x, z, alpha, beta = (gpu.array(array[start:end]) for array in self.layer.inputs)
        conv, bias, a, norm = self.weights
        y, o, out = (
            gpu.poisoned(tokens * size * 4 + 64) for size in (shape.conv_size, shape.value_size, shape.value_size)
        )
        nodes = [
            Node("conv", "conv", (x, conv, 0, y)),
            Node("delta", "delta", (x, y, alpha, beta, bias, a, 0, o)),
            Node("gated_norm", "gated_norm", (o, z, norm, out)),
        ]
        if fused:
            nodes = [Node("delta_step", "delta_step", (x, conv, alpha, beta, bias, a, z, norm, 0, out))]
        ops = [lowering.lowered[node.kind](node) for node in nodes]
        if resident is None:
            gpu.run(*ops)
        else:
            walk(gpu, resident, ops, gpu.array(np.zeros(STATE_BYTES, np.uint8)))
        return tuple(self._read(item, tokens) for item in (y, o, out))  # type: ignore[return-value]

    def _read(self, source: Slice, tokens: int) -> Floats:
        found: Floats = self.gpu.read(source)[:-16].reshape(tokens, -1)
        assert (self.gpu.read(source.part(source.size - 64, 64), np.uint8) == POISON).all(), "wrote past the end"
        return found

    def state(self, marked: bool = False) -> tuple[Floats, Floats]:
        """The ring (4, channels), and the delta state (value_heads, key dimension, value dimension)."""
        shape, held = self.layer.shape, self.marked if marked else self.recurrent
        delta = self.gpu.read(held.delta).reshape(-1, shape.head_size, shape.head_size)
        if not self.gpu.device.row_kernels:
            delta = delta.swapaxes(1, 2)
        return self.gpu.read(held.conv).reshape(4, -1), delta


def assert_close(found: npt.NDArray[Any], expected: npt.NDArray[np.float64], tolerance: float) -> None:
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def gated_norm_error(layer: Layer, o_error: float) -> npt.NDArray[np.float64]:
    """How far the layer's output may be off where its input is by ``o_error``: a head of small values grows with it."""
    o = layer.expected.o.reshape(TOKENS, -1, layer.shape.head_size)
    rms = np.sqrt((o**2).mean(-1, keepdims=True) + EPS)
    z = layer.inputs[1].astype(np.float64).reshape(o.shape)
    gate = np.abs(layer.weights[3] * z / (1 + np.exp(-z)))
    bound: npt.NDArray[np.float64] = gate * (2 * o_error / rms + norm_error(layer.shape.head_size) * np.abs(o) / rms)
    return bound.reshape(layer.expected.y.shape)


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_a_chunk_is_the_definition(gpu: Gpu, sizes: tuple[int, int, int]) -> None:
    layer = random_layer(*sizes)
    run = Run(gpu, layer)
    y, o, out = run.feed(0, TOKENS)
    assert_close(y, layer.expected.qkv, 3e-6)
    assert_close(o, layer.expected.o, 1e-5)
    assert_within(out, layer.expected.y, gated_norm_error(layer, 1e-5 * np.abs(layer.expected.o).max()))
    ring, delta = run.state()
    assert_close(delta, layer.expected.states[-1], 1e-5)
    for token in range(TOKENS - 4, TOKENS):
        np.testing.assert_array_equal(ring[token % 4], layer.inputs[0][token])


def assert_same_state(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_no_cut_changes_a_bit(gpu: Gpu, sizes: tuple[int, int, int]) -> None:
    layer = random_layer(*sizes)
    whole = Run(gpu, layer)
    expected = whole.feed(0, TOKENS)
    for cuts in ([1, 2, 3, 4, 9], [5, 6], [17, 20], list(range(1, TOKENS))):
        run = Run(gpu, layer)
        found = [run.feed(start, end) for start, end in zip([0, *cuts], [*cuts, TOKENS], strict=True)]
        for parts, all_at_once in zip(zip(*found, strict=True), expected, strict=True):
            np.testing.assert_array_equal(np.concatenate(parts), all_at_once)
        assert_same_state(run.state(), whole.state())


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_one_dispatch_gives_the_bits_of_three(gpu: Gpu, sizes: tuple[int, int, int]) -> None:
    if gpu.device.row_kernels:
        pytest.skip("software devices have no such kernel")
    layer = random_layer(*sizes)
    separate, fused = Run(gpu, layer), Run(gpu, layer)
    for token in range(9):
        expected = separate.feed(token, token + 1)[2]
        np.testing.assert_array_equal(fused.feed(token, token + 1, fused=True)[2], expected)
        for one, other in zip(fused.state(), separate.state(), strict=True):
            written = slice(None) if one.ndim == 3 else slice(0, token + 1)  # rows of the ring
            np.testing.assert_array_equal(one[written], other[written])


@pytest.mark.parametrize(
    ("sizes", "group"),
    # every workgroup of this many invocations, whatever the heads need: more, not a whole number of times, fewer
    [((1, 2, 32), 512), ((2, 2, 96), 512), ((1, 2, 160), 512), ((2, 4, 64), 128), ((1, 2, 192), 128)],
    ids=str,
)
def test_resident_workgroups_give_the_bits_of_three_dispatches(
    gpu: Gpu, sizes: tuple[int, int, int], group: int
) -> None:
    if gpu.device.row_kernels:
        pytest.skip("software devices have no such kernel")
    layer = random_layer(*sizes)
    separate, joined = Run(gpu, layer), Run(gpu, layer)
    for token in range(5):
        expected = separate.feed(token, token + 1)[2]
        np.testing.assert_array_equal(joined.feed(token, token + 1, fused=True, group=group)[2], expected)
    before = separate.state()
    assert_same_state(joined.state(), before)
    joined.feed(5, 6, fused=True, done=True, group=group)
    assert_same_state(joined.state(), before)


@pytest.mark.parametrize("fused", [False, True])
def test_a_token_behind_an_end_token_leaves_the_state(gpu: Gpu, fused: bool) -> None:
    if fused and gpu.device.row_kernels:
        pytest.skip("software devices have no such kernel")
    run = Run(gpu, random_layer(2, 4, 64))
    run.feed(0, 6)
    before = run.state()
    run.feed(6, 7, fused, done=True)
    assert_same_state(run.state(), before)


def test_the_first_token_reads_no_state(gpu: Gpu) -> None:
    layer = random_layer(1, 3, 32)
    run = Run(gpu, layer)  # poisoned
    expected = run.feed(0, TOKENS)[2]
    np.testing.assert_array_equal(run.feed(0, TOKENS)[2], expected)  # over another conversation's


@pytest.mark.parametrize(("start", "token"), [(0, 0), (0, 2), (2, 0), (2, 1), (9, 0), (9, 2), (9, 3), (5, 17)])
def test_a_marked_token_leaves_what_a_chunk_up_to_it_does(gpu: Gpu, start: int, token: int) -> None:
    layer = random_layer(2, 4, 64)
    run, other = Run(gpu, layer), Run(gpu, layer)
    if start:
        run.feed(0, start)
        other.feed(0, start)
    assert all((gpu.read(item, np.uint8) == POISON).all() for item in run.marked)  # no mark so far
    whole = run.feed(start, TOKENS, mark=token)
    other.feed(start, start + token + 1)
    filled = [row % 4 for row in range(max(0, start + token - 3), start + token + 1)]
    (ring, delta), (expected_ring, expected_delta) = run.state(marked=True), other.state()
    np.testing.assert_array_equal(ring[filled], expected_ring[filled])
    np.testing.assert_array_equal(delta, expected_delta)
    if not start:
        np.testing.assert_array_equal(whole[2], Run(gpu, layer).feed(0, TOKENS)[2])  # it changes nothing else


@pytest.mark.parametrize("count", [1, 63, 1000])
def test_sigmoid_mul(gpu: Gpu, count: int) -> None:
    x, gate = fresh_random().normal(0, 5, (2, count)).astype(np.float32)
    target = gpu.array(x)
    gpu.dispatch("sigmoid_mul", (target, gpu.array(gate)), (count,), (-(-count // 64), 1, 1))
    expected = x / (1 + np.exp(-gate.astype(np.float64)))
    # exp may be off by 3 + 2 |x| steps, as Vulkan allows; the sum and the division by four
    assert_within(gpu.read(target)[:count], expected, 2.0**-23 * (7 + 2 * np.abs(gate)) * np.abs(expected))
