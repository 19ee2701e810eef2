"""Products with many tokens: against float64, whatever the chunk, and what cooperative matrices take for x."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from engine.program import matrix, matrix_kernels
from engine.program.operands import Float16
from engine.vulkan.pipelines import Kernels
from tests.engine.gpu import POISON, Gpu
from tests.engine.matrices import guarded, make_weight, matmul, shapes
from tests.engine.weight_data import TYPES, T, activations, assert_product, random_raw, values


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_matmul(gpu: Gpu, prompt_kernels: Kernels, random: np.random.Generator, type: GGMLQuantizationType) -> None:
    for (rows, cols), tokens in zip(shapes(type), (1, 17, 5, 70, 33, 16), strict=False):
        raw = random_raw(random, type, rows, cols)
        weight = make_weight(gpu, prompt_kernels, raw, type, rows, cols)
        x = activations(random, tokens, cols)
        y = gpu.poisoned(tokens * rows * 4 + rows * 4 + 64)
        gpu.run(*matmul(gpu, prompt_kernels, weight, guarded(gpu, x), y, tokens))
        result = gpu.read(y)
        assert (result[tokens * rows :].view(np.uint8) == POISON).all(), "wrote past the last token"
        float16 = matrix_kernels.matrix_size(prompt_kernels) is not None
        assert_product(result[: tokens * rows], values(raw, type, rows, cols), x, float16)


@pytest.mark.parametrize(("rows", "cols"), [(24, 576), (2100, 96)])  # tiles depend on rows, and on few or many tokens
def test_a_token_does_not_depend_on_its_chunk(
    gpu: Gpu, prompt_kernels: Kernels, random: np.random.Generator, rows: int, cols: int
) -> None:
    tokens = 70
    weight = make_weight(gpu, prompt_kernels, random_raw(random, T.Q4_1, rows, cols), T.Q4_1, rows, cols)
    x = activations(random, tokens, cols)
    y = gpu.poisoned(tokens * rows * 4)
    gpu.run(*matmul(gpu, prompt_kernels, weight, gpu.array(x), y, tokens))
    together = gpu.read(y).reshape(tokens, rows)
    for start, stop in ((0, 1), (1, 37), (37, 70)):
        part = gpu.poisoned((stop - start) * rows * 4)
        gpu.run(*matmul(gpu, prompt_kernels, weight, gpu.array(x[start:stop]), part, stop - start))
        np.testing.assert_array_equal(gpu.read(part).reshape(-1, rows), together[start:stop])


@pytest.mark.parametrize("cols", [4, 100, 576])
def test_to_float16_keeps_22_bits(
    gpu: Gpu, variants: dict[str, Kernels], random: np.random.Generator, cols: int
) -> None:
    """Whatever the size of a token's values, which may be 2^30 apart: of the largest, 2^-38 gets lost."""
    x = activations(random, 6, cols)
    x[1] = 0.0
    x[2:4] *= np.array([[1e30], [1e-25]], np.float32)
    x[4, 0], x[5, 0] = 60000.0, -3e38
    blocks = -(-cols // 32)
    made = Float16(gpu.poisoned(6 * blocks * 128), gpu.poisoned(6 * 4))
    gpu.run(matrix.to_float16(variants["gpu"], guarded(gpu, x), made, 6, cols))
    parts = gpu.read(made.values, np.float16).reshape(6, blocks, 2, 8, 4).astype(np.float64)
    parts = parts[..., [0, 2, 1, 3]].sum(2).reshape(6, -1)  # as float16.glsl orders a quad
    factors = gpu.read(made.factors).astype(np.float64)
    assert np.isfinite(parts).all()
    assert not parts[:, cols:].any()
    assert (np.frexp(factors)[0] == 0.5).all(), "not powers of two"
    back = parts[:, :cols] * factors[:, None] * 16  # WEIGHT_FACTOR
    largest = np.abs(x).max(-1, keepdims=True)
    assert (np.abs(back - x) <= 2.0**-21 * np.abs(x) + 2.0**-38 * largest).all()
