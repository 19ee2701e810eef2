"""A file's blocks taken apart into what the kernels' planes hold.

A unit of four-bit types (16 bytes) has column 4 w + j of a block in the low half of byte j of word w, and column 16
more in the high half. Two-bit values (8 bytes a block) fill such halves in pairs: half h of byte j of word w has
columns 16 h + 8 w + j and 4 more. One-bit values (4 bytes): bit t of byte j is column 4 t + j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from engine.weights.formats import FLOATS, FORMATS

Array = npt.NDArray[Any]

_T = GGMLQuantizationType
_BYTE, _HALF, _WORD, _PAIR = np.dtype("u1"), np.dtype("<u2"), np.dtype("<u4"), np.dtype("<u8")
_UNIT = np.dtype("<c16")  # 16 bytes that numpy copies in one piece; never computed with

# scale, and where there are any the high bits, before the quants
_BLOCKS_OF_32: dict[GGMLQuantizationType, tuple[np.dtype[Any], bool]] = {
    _T.Q4_0: (_HALF, False), _T.Q4_1: (_WORD, False), _T.Q5_0: (_HALF, True), _T.Q5_1: (_WORD, True),
    _T.Q8_0: (_HALF, False), _T.IQ4_NL: (_HALF, False), _T.MXFP4: (_BYTE, False),
}  # fmt: skip
_BLOCKS_OF_256 = {
    _T.Q2_K: np.dtype([("sub", _HALF, (8,)), ("qs", "u1", (64,)), ("dm", _WORD)]),
    _T.Q3_K: np.dtype([("high", "u1", (32,)), ("qs", "u1", (64,)), ("sub", "u1", (12,)), ("d", _HALF)]),
    _T.Q4_K: np.dtype([("scales", _WORD, (4,)), ("qs", "u1", (128,))]),
    _T.Q5_K: np.dtype([("scales", _WORD, (4,)), ("high", "u1", (32,)), ("qs", "u1", (128,))]),
    _T.Q6_K: np.dtype([("qs", "u1", (128,)), ("high", "u1", (64,)), ("sub", _HALF, (8,)), ("d", _HALF)]),
    _T.IQ4_XS: np.dtype([("scales", _WORD, (2,)), ("qs", _UNIT, (8,))]),
}


@dataclass(frozen=True, slots=True)
class Fields:
    """A chunk of rows taken apart.

    ``units``: (rows, blocks, n) of 8 or 16 bytes. ``high``: (rows, blocks, n), elements of 4 or 8 bytes, or None.
    ``scales``: the items of the format, each (rows, steps, n), elements of 1 to 4 bytes.
    """

    units: Array
    high: Array | None
    scales: list[Array]


def take_apart(source: npt.NDArray[np.uint8], type: GGMLQuantizationType, cols: int) -> Fields:
    """``source``: uint8 (rows, bytes a row), as the file holds it, a row of ``cols`` columns."""
    rows = len(source)
    if type in FLOATS:
        return Fields(_float_units(source, cols, FORMATS[type].unit_bytes // 16), None, [])
    if type in _BLOCKS_OF_32:
        scale, has_high = _BLOCKS_OF_32[type]
        high = [("high", _WORD)] if has_high else []
        block = [("scale", scale), *high, ("units", _UNIT, (FORMATS[type].unit_bytes // 16,))]
        blocks = source.view(np.dtype(block))
        bits = _one_bits_of_word(blocks["high"])[..., None] if has_high else None
        return Fields(blocks["units"], bits, [blocks["scale"][..., None]])
    blocks = source.view(_BLOCKS_OF_256[type])
    units, bits = _units_of_256(blocks, type), None
    if type in (_T.Q3_K, _T.Q5_K):
        bits = _one_bits_of_bytes(blocks["high"])
    elif type is _T.Q6_K:
        bits = _two_bits(blocks["high"])
    if type is _T.Q2_K:
        scales = [blocks["sub"], blocks["dm"][..., None]]
    elif type is _T.Q3_K:
        scales = [_q3_scales(blocks["sub"], blocks["d"])]
    elif type is _T.Q6_K:
        scales = [blocks["sub"], blocks["d"][..., None]]
    else:
        scales = [blocks["scales"]]
    units = units.reshape(rows, -1, 1)
    return Fields(units, None if bits is None else bits.reshape(rows, units.shape[1], -1), scales)


def _units_of_256(blocks: Array, type: GGMLQuantizationType) -> Array:
    if type is _T.IQ4_XS:
        units: Array = blocks["qs"]
        return units
    if type in (_T.Q2_K, _T.Q3_K):
        return _two_bits(blocks["qs"])
    pairs = _swap_nibbles(*_pairs_of_16(blocks["qs"]))
    if type is not _T.Q6_K:
        return np.stack(pairs, axis=-1)
    # for 128 columns 64 bytes: the first 32 hold blocks 0 (low) and 2 (high), the others 1 and 3
    return np.stack((pairs[0][::2], pairs[0][1::2], pairs[1][::2], pairs[1][1::2]), axis=-1)


def _float_units(source: npt.NDArray[np.uint8], cols: int, units: int) -> Array:
    """(rows, blocks, units) of 16 bytes, the last block filled up with zeros."""
    rows, blocks = len(source), -(-cols // 32)
    if cols % 32:
        padded = np.zeros((rows, blocks * units * 16), np.uint8)
        padded[:, : source.shape[1]] = source
        source = padded
    return np.ascontiguousarray(source).view(_UNIT).reshape(rows, blocks, units)


def _pairs_of_16(qs: Array) -> tuple[Array, Array]:
    """For each 32 bytes the first 16 and the others, each (n,) in one piece: long loops are what numpy is fast at."""
    pairs = np.ascontiguousarray(qs).view(_UNIT).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def _swap_nibbles(first: Array, second: Array) -> tuple[Array, Array]:
    """The low halves of the bytes of both, and the high ones: each unit has those of ``first`` in its low halves."""
    x, y = first.view(_PAIR), second.view(_PAIR)
    swapped = (x >> np.uint64(4) ^ y) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x ^ swapped << np.uint64(4)).view(_UNIT), (y ^ swapped).view(_UNIT)


def _two_bits(qs: Array) -> Array:
    """(..., 64) bytes, for each 32 of them four blocks of 32 columns in bits 0-1 to 6-7: 8 bytes a block, (n, 4)."""
    # with columns 0-3 and 4-7 (and so on) in words a and b, first a's bits 2-3 change places with b's 0-1, and 6-7 with
    # 4-5; then nibbles of the halves of the block change places: a transpose of four words by four pairs of bits
    words = np.ascontiguousarray(qs).view(_PAIR)
    swapped = (words >> np.uint64(2) ^ words >> np.uint64(32)) & np.uint64(0x33333333)
    words = words ^ (swapped << np.uint64(32) | swapped << np.uint64(2))
    result = np.empty((words.size // 4, 4), _PAIR)
    low_word = np.uint64(0xFFFFFFFF)
    for blocks, units in enumerate(_swap_nibbles(*_pairs_of_16(words))):
        first, second = (np.ascontiguousarray(units.view(_PAIR)[half::2]) for half in range(2))
        result[:, 2 * blocks] = first & low_word | second << np.uint64(32)
        result[:, 2 * blocks + 1] = first >> np.uint64(32) | second & ~low_word
    return result


def _one_bits_of_word(high: Array) -> Array:
    """Q5's 32 high bits, bit i = column i, in the kernels' order."""
    result = np.zeros(high.shape, _WORD)
    for nibble in range(8):
        four = high >> np.uint32(4 * nibble) & np.uint32(15)
        # bit j moves to 8 j: four copies at distances of 7 put each where a mask takes it
        result |= (four * np.uint32(0x00204081) & np.uint32(0x01010101)) << np.uint32(nibble)
    return result


def _one_bits_of_bytes(high: Array) -> Array:
    """(..., 32) bytes, bit i of each = a column of block i, as (n, 8) words in the kernels' order."""
    columns = np.ascontiguousarray(high).reshape(-1, 8, 4)
    result = np.empty_like(columns)
    for place in range(4):  # bytes 4 t + place, t from 0 to 7
        result[..., place] = _transpose_8x8(np.ascontiguousarray(columns[..., place]).view(_PAIR)).view("u1")
    return result.view(_WORD)[..., 0]


def _transpose_8x8(x: Array) -> Array:
    """Bit j of byte i becomes bit i of byte j (Warren, Hacker's Delight, 7-3)."""
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
        swapped = (x ^ x >> np.uint64(shift)) & np.uint64(mask)
        x = x ^ swapped ^ swapped << np.uint64(shift)
    return x


def _q3_scales(packed: Array, d: Array) -> Array:
    """Q3_K's d and sixteen 6-bit scales as four words: d; the scales' low four bits in order; their high two bits."""
    result = np.zeros((*d.shape, 4), _WORD)
    result[..., 0] = d
    low = np.ascontiguousarray(packed[..., :8]).view(_PAIR)[..., 0]
    mask = np.uint64(0x0F0F0F0F0F0F0F0F)
    for word, nibbles in enumerate((low & mask, low >> np.uint64(4) & mask)):
        pairs = (nibbles | nibbles >> np.uint64(4)) & np.uint64(0x00FF00FF00FF00FF)
        pairs = (pairs | pairs >> np.uint64(8)) & np.uint64(0x0000FFFF0000FFFF)
        result[..., 1 + word] = pairs | pairs >> np.uint64(16)
    high = np.ascontiguousarray(packed[..., 8:]).view(_WORD)[..., 0]
    # bits 2 g of byte m (scale 4 g + m) go to bits 2 m of byte g: a transpose of four by four
    for shift, mask_of in ((6, 0x00CC00CC), (12, 0x0000F0F0)):
        swapped = (high ^ high >> np.uint32(shift)) & np.uint32(mask_of)
        high = high ^ swapped ^ swapped << np.uint32(shift)
    result[..., 3] = high
    return result
