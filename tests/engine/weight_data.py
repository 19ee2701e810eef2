"""Random quantised matrices for tests, with what gguf says they are worth."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

T = GGMLQuantizationType
K_TYPES = (T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS)  # of 256 columns a block
TYPES = (T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.IQ4_NL, T.MXFP4, *K_TYPES)
_SCALE_OFFSETS = {
    T.Q4_0: (0,),
    T.Q4_1: (0, 2),
    T.Q5_0: (0,),
    T.Q5_1: (0, 2),
    T.Q8_0: (0,),
    T.IQ4_NL: (0,),
    T.Q2_K: (80, 82),
    T.Q3_K: (108,),
    T.Q4_K: (0, 2),
    T.Q5_K: (0, 2),
    T.Q6_K: (208,),
    T.IQ4_XS: (0,),
}


def fresh_random() -> np.random.Generator:
    """A generator with a new seed each run; pytest shows the printed seed where a test fails."""
    seed = time.time_ns() % 2**32
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def random_raw(random: np.random.Generator, type: T, rows: int, cols: int) -> npt.NDArray[np.uint8]:
    """A matrix as a file holds it, flat: any bits for the quants, scales about 0.01, both signs."""
    if type is T.F32:
        return random.standard_normal(rows * cols).astype(np.float32).view(np.uint8)
    if type is T.F16:
        return random.standard_normal(rows * cols).astype(np.float16).view(np.uint8)
    if type is T.BF16:
        return (
            (random.standard_normal(rows * cols).astype(np.float32).view(np.uint32) >> 16)
            .astype(np.uint16)
            .view(np.uint8)
        )
    per_block, block_bytes = GGML_QUANT_SIZES[type]
    raw = random.integers(0, 256, (rows * cols // per_block, block_bytes), np.uint8)
    if type is T.MXFP4:  # an exponent of two
        raw[:, 0] = random.integers(115, 124, len(raw))
    for offset in _SCALE_OFFSETS.get(type, ()):
        scale = random.normal(0, 0.01, len(raw)).astype(np.float16)
        raw[:, offset : offset + 2] = scale[:, None].view(np.uint8)
    return raw.reshape(-1)


def values(raw: npt.NDArray[np.uint8], type: T, rows: int, cols: int) -> npt.NDArray[np.float32]:
    """float32 (rows, cols), as gguf (and ggml, to the bit) dequantises."""
    if type is T.F32:
        return raw.view(np.float32).reshape(rows, cols)
    return quants.dequantize(raw.reshape(rows, -1), type).reshape(rows, cols).astype(np.float32)


def activations(random: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    """Normal values with the outliers of 1e4 that real models have."""
    x = random.standard_normal(shape).astype(np.float32)
    flat = x.reshape(-1)
    flat[random.integers(0, flat.size, max(1, flat.size // 200))] = 1e4
    return x


def product_bound(
    weights: npt.NDArray[np.float32], x: npt.NDArray[np.float32], float16: bool = False
) -> npt.NDArray[np.float64]:
    """How far float32 sums may be from x (tokens, cols) times the transpose of ``weights``: (tokens, rows).

    2^-24 (32 + 3 sqrt(cols)) of sum |x| times the row's largest weight. A running sum's roundings add up like a random
    walk of steps of 0.29 of one: where a single outlier makes the sum, this is eight of its standard deviations, while
    float16 sums would be off by 1e-3. The largest weight stands for each, since a quantised weight near zero is the
    difference of d q and an offset.
    ``float16``: each weight may be rounded to it, by 2^-11 of itself at most, which adds 2^-11 of sum |x| |w|.
    """
    sizes = np.abs(x).astype(np.float64)
    roundings = 32 + 3 * np.sqrt(x.shape[-1])
    bound: npt.NDArray[np.float64] = 2.0**-24 * roundings * sizes.sum(-1)[:, None] * np.abs(weights).max(-1)[None, :]
    if float16:
        bound += 2.0**-11 * sizes @ np.abs(weights).T.astype(np.float64)
    return bound


def assert_within(result: npt.NDArray[Any], exact: npt.NDArray[np.float64], bound: npt.NDArray[np.float64]) -> None:
    """Each of ``result`` is finite and at most its bound away from ``exact``."""
    assert np.isfinite(result).all()
    error = np.abs(result.reshape(exact.shape) - exact)
    assert (error <= bound).all(), f"{np.max(error / np.maximum(bound, 1e-30)):.2f} times the bound"


def norm_error(width: int) -> float:
    """How far, relative to each value, an RMS norm over ``width`` may be off in float32.

    The squares add up without cancelling, so that each rounding is one of their sum at most, and half of one of its
    root; eight more for the mean, epsilon, root and products.
    """
    return (width / 2 + 8) * 2.0**-24


def assert_product(
    result: npt.NDArray[Any], weights: npt.NDArray[np.float32], x: npt.NDArray[np.float32], float16: bool = False
) -> None:
    """``result`` (tokens, rows) is x (tokens, cols) times the transpose of ``weights``, summed in float32."""
    exact = x.astype(np.float64) @ weights.astype(np.float64).T
    assert_within(result, exact, product_bound(weights, x, float16))
