"""The block formats that the kernels have, and how large their planes are.

Formats: ggml-common.h of https://github.com/ggml-org/ggml. shaders/include/weight_type.glsl is this table's other half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gguf.constants import GGMLQuantizationType

from engine.errors import EngineError

Layout = Literal["cpu", "gpu"]
LAYOUTS: tuple[Layout, ...] = ("cpu", "gpu")

_T = GGMLQuantizationType


@dataclass(frozen=True, slots=True)
class Format:
    """What the planes hold for a row: bytes of units and words of high bits for each block of 32 columns, and scales,
    items of so many bytes, for each ``step`` blocks."""

    unit_bytes: int
    high_words: int = 0
    scales: tuple[int, ...] = ()
    step: int = 1


FORMATS: dict[GGMLQuantizationType, Format] = {
    _T.F32: Format(128),
    _T.F16: Format(64),
    _T.BF16: Format(64),
    _T.Q4_0: Format(16, 0, (2,)),
    _T.Q4_1: Format(16, 0, (4,)),
    _T.Q5_0: Format(16, 1, (2,)),
    _T.Q5_1: Format(16, 1, (4,)),
    _T.Q8_0: Format(32, 0, (2,)),
    _T.IQ4_NL: Format(16, 0, (2,)),
    _T.MXFP4: Format(16, 0, (1,)),
    _T.Q2_K: Format(8, 0, (16, 4), 8),
    _T.Q3_K: Format(8, 1, (16,), 8),
    _T.Q4_K: Format(16, 0, (16,), 8),
    _T.Q5_K: Format(16, 1, (16,), 8),
    _T.Q6_K: Format(16, 2, (16, 2), 8),
    _T.IQ4_XS: Format(16, 0, (8,), 8),
}
SUPPORTED_TYPES = tuple(FORMATS)
FLOATS = (_T.F32, _T.F16, _T.BF16)
CODEBOOKS = (_T.IQ4_NL, _T.IQ4_XS, _T.MXFP4)  # a quant is the place of its value in a table
K_TYPES = tuple(type for type, form in FORMATS.items() if form.step == 8)  # blocks of 256 in the file

_DUMMY_SCALES_BYTES = 16


def check_shape(type: GGMLQuantizationType, rows: int, cols: int) -> None:
    """Raise EngineError where the kernels cannot take such a matrix."""
    if type not in FORMATS:
        raise EngineError(
            f"tensor type {type.name} is not supported; these are: {', '.join(item.name for item in SUPPORTED_TYPES)}"
        )
    multiple = 4 if type in FLOATS else 32 * FORMATS[type].step
    if rows <= 0 or cols <= 0 or cols % multiple:
        raise EngineError(f"a {type.name} matrix of {rows} x {cols}: its columns must be a multiple of {multiple}")


def plane_bytes(type: GGMLQuantizationType, rows: int, cols: int, layout: Layout) -> tuple[int, int]:
    """Sizes in bytes of (quants, scales) as ``engine.weights.repack`` makes them."""
    check_shape(type, rows, cols)
    units, scales = row_bytes(type, cols, layout)
    if layout == "cpu":
        rows = -(-rows // 8) * 8
    return -(-rows * units // 16) * 16, max(-(-rows * scales // 16) * 16, _DUMMY_SCALES_BYTES)


def row_bytes(type: GGMLQuantizationType, cols: int, layout: Layout) -> tuple[int, int]:
    """Bytes of a row in (quants, scales); in the "cpu" layout an eighth of eight rows'."""
    form, blocks = FORMATS[type], -(-cols // 32)
    steps = blocks // form.step
    scales = [bytes * steps for bytes in form.scales]
    if layout == "gpu":
        scales = [-(-size // 4) * 4 for size in scales]
    return form.unit_bytes * blocks, 4 * form.high_words * blocks + sum(scales)
