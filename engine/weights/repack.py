"""Tensors of a GGUF file, rearranged into the two planes that the kernels read.

``quants`` is read in 16-byte units, ``scales`` in 32-bit words; together they are as large as the file's own
blocks, but for padding. shaders/include/dequant.glsl is the reader: the two files change together.

In both layouts a row is cut into blocks of 32 columns (the last one padded with zeros), a quad is four neighbouring
columns, and a unit of nibbles has the quad at place p in word p's low halves, or in word p - 4's high halves. Planes
of tensors of one type and width, laid end to end, are the planes of the tensors stacked by rows (where rows are
multiples of 8).

- "cpu": [group of 8 rows][block][row][unit], a block's quads in order (as in Q4_0), and for each group and block the
  eight rows' high bits and scales. Words of four-bit types have their highest bit flipped (lanes_cpu.glsl says why).
- "gpu": [row][block][unit], a block's quads in order (as in Q4_0), and for each row its high bits, block by block, then
  its scales.

Source of the block formats: ggml-common.h and ggml-quants.c of https://github.com/ggml-org/ggml.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.errors import EngineError

Layout = Literal["cpu", "gpu"]
LAYOUTS: tuple[Layout, ...] = ("cpu", "gpu")
Bytes = npt.NDArray[np.uint8]
_Array = npt.NDArray[Any]

_T = GGMLQuantizationType
FLOATS = (_T.F32, _T.F16, _T.BF16)
BLOCKS_OF_32 = (_T.Q4_0, _T.Q4_1, _T.Q5_0, _T.Q5_1, _T.Q8_0)
BLOCKS_OF_256 = (_T.Q4_K, _T.Q6_K)
SUPPORTED_TYPES = FLOATS + BLOCKS_OF_32 + BLOCKS_OF_256

_CHUNK_BYTES = 1 << 20  # of source a step, so that temporaries stay small beside the tensor
_UNITS = {_T.F32: 8, _T.F16: 4, _T.BF16: 4, _T.Q8_0: 2}  # 16-byte units a block; 1 for the rest
# words of scales for 8 rows of a block ("cpu"); of 8 blocks for the K types
_GROUP_WORDS = {_T.Q4_0: 4, _T.Q4_1: 8, _T.Q5_0: 12, _T.Q5_1: 16, _T.Q8_0: 4, _T.Q4_K: 32, _T.Q6_K: 164}
_DUMMY_SCALES_BYTES = 16
_FLIPPED = (_T.Q4_0, _T.Q4_1, _T.Q4_K)  # in the "cpu" layout a unit's words have their highest bit flipped
_HALF = np.dtype("<u2")
_WORD = np.dtype("<u4")
_UNIT = np.dtype("<c16")  # 16 bytes that numpy copies in one piece; never computed with


def check_shape(type: GGMLQuantizationType, rows: int, cols: int) -> None:
    """Raise EngineError where the kernels cannot take such a matrix."""
    if type not in SUPPORTED_TYPES:
        raise EngineError(
            f"tensor type {type.name} is not supported; these are: {', '.join(item.name for item in SUPPORTED_TYPES)}"
        )
    multiple = 4 if type in FLOATS else 32 if type in BLOCKS_OF_32 else 256
    if rows <= 0 or cols <= 0 or cols % multiple:
        raise EngineError(f"a {type.name} matrix of {rows} x {cols}: its columns must be a multiple of {multiple}")


def plane_bytes(type: GGMLQuantizationType, rows: int, cols: int, layout: Layout) -> tuple[int, int]:
    """Sizes in bytes of (quants, scales) as ``repack`` makes them."""
    check_shape(type, rows, cols)
    blocks = -(-cols // 32)
    unit_bytes = 16 * _UNITS.get(type, 1) * blocks
    if layout == "cpu":
        groups = -(-rows // 8)
        words = _GROUP_WORDS.get(type, 0) * (blocks // 8 if type in BLOCKS_OF_256 else blocks)
        return groups * 8 * unit_bytes, max(groups * words * 4, _DUMMY_SCALES_BYTES)
    return rows * unit_bytes, max(-(-rows * _row_words(type, blocks) * 4 // 16) * 16, _DUMMY_SCALES_BYTES)


def repack(raw: Bytes, type: GGMLQuantizationType, rows: int, cols: int, layout: Layout) -> tuple[Bytes, Bytes]:
    """The planes (quants, scales), flat uint8, of a tensor's bytes as the file holds them.

    ``raw`` is flat uint8, rows one after another. Rows are padded to a multiple of 8 in the "cpu" layout.
    Raise EngineError for a type or width the kernels do not have, or where ``raw`` has another size.
    """
    quant_bytes, scale_bytes = plane_bytes(type, rows, cols, layout)
    per_block, block_bytes = GGML_QUANT_SIZES[type]
    row_bytes = cols // per_block * block_bytes
    if raw.size != rows * row_bytes:
        raise EngineError(f"a {type.name} matrix of {rows} x {cols} takes {rows * row_bytes} bytes, not {raw.size}")
    quants, scales = np.empty(quant_bytes, np.uint8), np.zeros(scale_bytes, np.uint8)
    step = max(8, _CHUNK_BYTES // row_bytes // 8 * 8)
    quant_step, scale_step = _bytes_of_8_rows(type, cols, layout)

    def chunk(start: int) -> None:
        count = min(step, rows - start)
        source = raw[start * row_bytes : (start + count) * row_bytes].reshape(count, row_bytes)
        if layout == "cpu" and count % 8:
            source = np.concatenate([source, np.zeros((-count % 8, row_bytes), np.uint8)])
        fields = _fields(source, type, cols)
        units = quants[start // 8 * quant_step :][: len(source) * quant_step // 8]
        words = scales[start // 8 * scale_step :][: len(source) * scale_step // 8]
        if layout == "cpu":
            _write_cpu(units, words, fields)
            if type in _FLIPPED:
                units.view(_WORD)[...] ^= np.uint32(0x80000000)
        else:
            _write_gpu(units, words, fields)

    starts = range(0, rows, step)
    if len(starts) == 1:
        chunk(0)
    else:  # numpy lets go of the interpreter's lock in loops of this size
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            list(pool.map(chunk, starts))
    return quants, scales


def _row_words(type: GGMLQuantizationType, blocks: int) -> int:
    """Words of scales of one row in the "gpu" layout."""
    halves = (blocks + 1) // 2
    return {
        _T.Q4_0: halves, _T.Q4_1: blocks, _T.Q5_0: blocks + halves, _T.Q5_1: 2 * blocks, _T.Q8_0: halves,
        _T.Q4_K: blocks // 2, _T.Q6_K: blocks // 2 * 5 + (blocks // 8 + 1) // 2,
    }.get(type, 0)  # fmt: skip


def _bytes_of_8_rows(type: GGMLQuantizationType, cols: int, layout: Layout) -> tuple[int, int]:
    blocks = -(-cols // 32)
    quant_bytes = 8 * 16 * _UNITS.get(type, 1) * blocks
    if layout == "gpu":
        return quant_bytes, 8 * 4 * _row_words(type, blocks)
    return quant_bytes, 4 * _GROUP_WORDS.get(type, 0) * (blocks // 8 if type in BLOCKS_OF_256 else blocks)


class _Fields:
    """A chunk of rows taken apart.

    ``units`` (rows, blocks, units a block) of 16 bytes. ``scales`` lists the arrays of the scales plane in their
    order there: each (rows, n, per) with n a block or eight blocks, elements of 2 or 4 bytes.
    """

    def __init__(self, units: _Array, scales: list[_Array]) -> None:
        self.units = units
        self.scales = scales


def _fields(source: Bytes, type: GGMLQuantizationType, cols: int) -> _Fields:
    rows = len(source)
    if type in FLOATS:
        return _Fields(_float_units(source, cols, _UNITS[type]), [])
    if type in BLOCKS_OF_32:
        scale = ("dm", _WORD) if type in (_T.Q4_1, _T.Q5_1) else ("d", _HALF)
        high = [("high", _WORD)] if type in (_T.Q5_0, _T.Q5_1) else []
        units = ("units", _UNIT, (_UNITS.get(type, 1),))
        blocks = source.view(np.dtype([scale, *high, units]))
        scales = [_spread_fifth_bits(blocks["high"])[..., None]] if high else []
        return _Fields(blocks["units"], [*scales, blocks[scale[0]][..., None]])
    if type is _T.Q4_K:
        blocks = source.view(np.dtype([("scales", _WORD, (4,)), ("qs", "u1", (128,))]))
        return _Fields(_halves_to_blocks(blocks["qs"]).reshape(rows, -1, 1), [blocks["scales"]])
    layout = np.dtype([("ql", "u1", (128,)), ("qh", "u1", (64,)), ("sub", _HALF, (8,)), ("d", _HALF)])
    blocks = source.view(layout)
    # for 128 columns 64 bytes of ql: the first 32 hold blocks 0 (low) and 2 (high), the others 1 and 3
    nibbles = _halves_to_blocks(blocks["ql"]).reshape(rows, -1, 2, 2).swapaxes(-1, -2)
    two_bits = [_pack_two_bits(blocks["qh"].reshape(rows, -1, 2, 32), 2 * block) for block in range(4)]
    words = np.stack(two_bits, axis=-2).view(_WORD).reshape(rows, -1, 16)
    return _Fields(nibbles.reshape(rows, -1, 1), [words, blocks["sub"], blocks["d"][..., None]])


def _float_units(source: Bytes, cols: int, units: int) -> _Array:
    """(rows, blocks, units) of 16 bytes, the last block filled up with zeros."""
    rows, blocks = len(source), -(-cols // 32)
    if cols % 32:
        padded = np.zeros((rows, blocks * units * 16), np.uint8)
        padded[:, : source.shape[1]] = source
        source = padded
    return np.ascontiguousarray(source).view(_UNIT).reshape(rows, blocks, units)


def _spread_fifth_bits(high: _Array) -> _Array:
    """Q5's 32 high bits (bit i = column i) reordered: column 4 w + j at bit 8 w + 2 j, 16 more one further."""
    result = np.zeros(high.shape, _WORD)
    for nibble in range(8):  # columns 4 nibble to 4 nibble + 3, spread to every second bit
        four = high >> np.uint32(4 * nibble) & np.uint32(15)
        two = (four | four << np.uint32(2)) & np.uint32(0x33)
        one = (two | two << np.uint32(1)) & np.uint32(0x55)
        result |= one << np.uint32(8 * (nibble % 4) + nibble // 4)
    return result


def _halves_to_blocks(qs: _Array) -> _Array:
    """Q4_K's 32 bytes of low and high halves for 64 columns as two blocks of 16 bytes each."""
    bytes_of_64 = qs.reshape(*qs.shape[:-1], 4, 2, 2, 8).view("<u8")[..., 0]  # (..., 64s, columns 0-15 or 16-31, 2)
    mask = np.uint64(0x0F0F0F0F0F0F0F0F)
    low, high = bytes_of_64 & mask, bytes_of_64 >> np.uint64(4) & mask
    result = np.empty((*bytes_of_64.shape[:-2], 2, 2), "<u8")
    np.bitwise_or(low[..., 0, :], low[..., 1, :] << np.uint64(4), out=result[..., 0, :])
    np.bitwise_or(high[..., 0, :], high[..., 1, :] << np.uint64(4), out=result[..., 1, :])
    return result.view(_UNIT)


def _pack_two_bits(qh: _Array, shift: int) -> _Array:
    """A block's bits 4 and 5, one pair of the bits of each of 32 bytes, as eight bytes in the kernels' order.

    Byte k holds columns 2 k, 2 k + 16, 2 k + 1, 2 k + 17 from its lowest bits up.
    """
    halves = (qh.view("<u8") >> np.uint64(shift)) & np.uint64(0x0303030303030303)
    nibbles: _Array = (halves[..., :2] | halves[..., 2:] << np.uint64(2)).view("<u2")
    packed: _Array = (nibbles | nibbles >> np.uint16(4)).astype(np.uint8)
    return packed


def _write_cpu(quants: Bytes, scales: Bytes, fields: _Fields) -> None:
    rows, blocks, units = fields.units.shape
    groups = rows // 8
    source = fields.units.reshape(groups, 8, blocks, units)
    quants.view(_UNIT).reshape(groups, blocks, 8, units)[...] = source.transpose(0, 2, 1, 3)
    if not fields.scales:
        return
    steps = fields.scales[-1].shape[1]  # blocks, or eights of blocks
    target = scales.reshape(groups, steps, -1)
    at = 0
    for item in fields.scales:
        values = item.reshape(groups, 8, steps, -1)
        if values.shape[-1] == 16:  # high bits of eight blocks: block before row
            moved = values.reshape(groups, 8, steps, 8, 2).transpose(0, 2, 3, 1, 4)
        else:
            moved = values.transpose(0, 2, 1, 3)
        size = moved[0, 0].size * item.dtype.itemsize
        target[..., at : at + size].view(item.dtype).reshape(moved.shape)[...] = moved
        at += size


def _write_gpu(quants: Bytes, scales: Bytes, fields: _Fields) -> None:
    rows, blocks, units = fields.units.shape
    quants.view(_UNIT).reshape(rows, blocks, units)[...] = fields.units
    if not fields.scales:
        return
    target = scales.reshape(rows, -1)
    at = 0
    for item in fields.scales:
        size = item[0].size * item.dtype.itemsize
        target[:, at : at + size].view(item.dtype)[...] = item.reshape(rows, -1)
        at += -(-size // 4) * 4
