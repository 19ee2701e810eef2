"""Random matrices in device memory, and products with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.program import matrix, matrix_kernels
from engine.program.op import Op
from engine.program.operands import Float16, Weight
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Kernels
from engine.weights.repack import repack
from tests.engine.gpu import Gpu
from tests.engine.weight_data import K_TYPES, T, random_raw


def make_weight(gpu: Gpu, kernels: Kernels, raw: npt.NDArray[np.uint8], type: T, rows: int, cols: int) -> Weight:
    planes = repack(raw, type, rows, cols, matrix_kernels.layout(kernels))
    quants, scales = (gpu.array(plane, constant=True) for plane in planes)
    return Weight("w", type, rows, cols, quants, scales, quants.size + scales.size)


def weight_of(gpu: Gpu, random: np.random.Generator, type: T, rows: int, cols: int) -> Weight:
    """A random one as the device's own kernels take it."""
    return make_weight(gpu, gpu.kernels, random_raw(random, type, rows, cols), type, rows, cols)


def guarded(gpu: Gpu, x: npt.NDArray[np.float32]) -> Slice:
    """x with NaN behind it: to read past the end shows, even where the weight there is zero."""
    return gpu.array(np.concatenate([x.reshape(-1), np.full(64, np.nan, np.float32)]))


def matmul(gpu: Gpu, kernels: Kernels, weight: Weight, x: Slice, y: Slice, tokens: int, **end: Any) -> list[Op]:
    """The ops of a product with x, float32 (tokens, cols)."""
    if matrix_kernels.matrix_size(kernels) is None:
        return [matrix.matmul(kernels, weight, x, y, tokens, **end)]
    halves = tokens * -(-weight.cols // 32) * 64
    made = Float16(gpu.poisoned(2 * halves), gpu.poisoned(tokens * 4))
    op = matrix.to_float16(kernels, x, made, tokens, weight.cols)
    return [op, matrix.matmul(kernels, weight, made, y, tokens, **end)]


def shapes(type: T) -> list[tuple[int, int]]:
    if type in K_TYPES:
        return [(1, 256), (21, 512), (40, 1536)]
    odd = [(13, 100), (9, 4)] if type in (T.F32, T.F16, T.BF16) else []
    return [(1, 32), (7, 96), (19, 576), (40, 1536), *odd]
