"""Tensors of a GGUF file, rearranged into the two planes that the kernels read.

``quants`` is read in units of 16 bytes (8 for two-bit types), ``scales`` in words of 32 bits or more; together they are
as large as the file's own blocks, but for padding. shaders/include/dequant.glsl is the reader: it, this module and
engine.weights.blocks, which says what a unit and the high bits are, change together.

In both layouts a row is cut into blocks of 32 columns (the last one padded with zeros). Planes of tensors of one type
and width, laid end to end, are the planes of the tensors stacked by rows (where rows are multiples of 8).

- "cpu": [group of 8 rows][block][row][unit], and for each group and step of blocks (1, or 8 for types whose blocks have
  256 columns) the eight rows' high bits, block by block, then their scales, item by item. Words of four-bit types
  without high bits or codebook have their highest bit flipped (lanes_cpu.glsl says why).
- "gpu": [row][block][unit], and for each row its high bits, block by block, then its scales, item by item.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.errors import EngineError
from engine.weights.blocks import Fields, take_apart
from engine.weights.formats import Layout, plane_bytes, row_bytes

Bytes = npt.NDArray[np.uint8]

_T = GGMLQuantizationType
_CHUNK_BYTES = 1 << 20  # of source a step, so that temporaries stay small beside the tensor
_FLIPPED = (_T.Q4_0, _T.Q4_1, _T.Q4_K)  # in the "cpu" layout a unit's words have their highest bit flipped


def repack(raw: Bytes, type: GGMLQuantizationType, rows: int, cols: int, layout: Layout) -> tuple[Bytes, Bytes]:
    """The planes (quants, scales), flat uint8, of a tensor's bytes as the file holds them.

    ``raw`` is flat uint8, rows one after another. Rows are padded to a multiple of 8 in the "cpu" layout.
    Raise EngineError for a type or width the kernels do not have, or where ``raw`` has another size.
    """
    quant_bytes, scale_bytes = plane_bytes(type, rows, cols, layout)
    per_block, block_bytes = GGML_QUANT_SIZES[type]
    source_bytes = cols // per_block * block_bytes
    if raw.size != rows * source_bytes:
        raise EngineError(f"a {type.name} matrix of {rows} x {cols} takes {rows * source_bytes} bytes, not {raw.size}")
    quants, scales = np.zeros(quant_bytes, np.uint8), np.zeros(scale_bytes, np.uint8)
    step = max(8, _CHUNK_BYTES // source_bytes // 8 * 8)
    quant_step, scale_step = row_bytes(type, cols, layout)

    def chunk(start: int) -> None:
        count = min(step, rows - start)
        source = raw[start * source_bytes : (start + count) * source_bytes].reshape(count, source_bytes)
        if layout == "cpu" and count % 8:
            source = np.concatenate([source, np.zeros((-count % 8, source_bytes), np.uint8)])
        fields = take_apart(source, type, cols)
        units = quants[start * quant_step :][: len(source) * quant_step]
        words = scales[start * scale_step :][: len(source) * scale_step]
        if layout == "cpu":
            _write_cpu(units, words, fields)
            if type in _FLIPPED:
                units.view("<u4")[...] ^= np.uint32(0x80000000)
        else:
            _write_gpu(units, words, fields)

    starts = range(0, rows, step)
    if len(starts) == 1:
        chunk(0)
    else:  # numpy lets go of the interpreter's lock in loops of this size
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            list(pool.map(chunk, starts))
    return quants, scales


def _write_cpu(quants: Bytes, scales: Bytes, fields: Fields) -> None:
    rows, blocks, units = fields.units.shape
    groups = rows // 8
    source = fields.units.reshape(groups, 8, blocks, units)
    quants.view(source.dtype).reshape(groups, blocks, 8, units)[...] = source.transpose(0, 2, 1, 3)
    if not fields.scales:
        return
    steps = fields.scales[0].shape[1]
    items = [item.reshape(groups, 8, steps, -1).transpose(0, 2, 1, 3) for item in fields.scales]
    if fields.high is not None:
        items.insert(0, fields.high.reshape(groups, 8, steps, blocks // steps, -1).transpose(0, 2, 3, 1, 4))
    target = scales.reshape(groups, steps, -1)
    at = 0
    for item in items:
        size = item[0, 0].size * item.dtype.itemsize
        target[..., at : at + size].view(item.dtype).reshape(item.shape)[...] = item
        at += size


def _write_gpu(quants: Bytes, scales: Bytes, fields: Fields) -> None:
    quants.view(fields.units.dtype).reshape(fields.units.shape)[...] = fields.units
    if not fields.scales:
        return
    target = scales.reshape(len(fields.units), -1)
    at = 0
    for item in fields.scales if fields.high is None else [fields.high, *fields.scales]:
        size = item[0].size * item.dtype.itemsize
        target[:, at : at + size].view(item.dtype)[...] = item.reshape(len(item), -1)
        at += -(-size // 4) * 4
