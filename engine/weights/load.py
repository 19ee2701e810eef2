"""From a model source to weights in device memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from engine.errors import EngineError
from engine.program.operands import Weight
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.upload import Piece, upload
from engine.weights.formats import SUPPORTED_TYPES, Layout, row_bytes
from engine.weights.placement import allocate_weights
from engine.weights.repack import repack
from engine.weights.source import Bytes, ModelSource
from engine.weights.spec import Rows, TensorSpec, Weights

__all__ = ["Rows", "TensorSpec", "Weights", "allocate_weights", "check_tensors", "load"]

_CHUNK_BYTES = 1 << 20  # of the file a step: a few of them stay in a processor's cache
_VECTOR_TYPES: dict[GGMLQuantizationType, str] = {GGMLQuantizationType.F32: "<f4", GGMLQuantizationType.F16: "<f2"}


def check_tensors(file: ModelSource, specs: list[TensorSpec]) -> None:
    """Raise EngineError naming the first tensor that is missing, has another shape, or an unsupported type.

    Of a folder, whose names are all known, also one that the architecture would leave out.
    """
    header = "the header" if file.folder is None else "config.json"
    for spec in specs:
        name, shape = spec.file_name, spec.file_shape
        info = file.tensors.get(name)
        if info is None:
            raise EngineError(f"{file.path.name}: tensor {name} is missing")
        if info.shape != shape:
            raise EngineError(f"{file.path.name}: tensor {info.name} is {info.shape}, {header} says {shape}")
        allowed = SUPPORTED_TYPES if spec.uses else tuple(_VECTOR_TYPES)
        if info.type not in allowed:
            names = ", ".join(kind.name for kind in allowed)
            raise EngineError(
                f"{file.path.name}: tensor {info.name} is {info.type.name}, which is not supported; there is {names}"
            )
    if file.folder is not None and (unused := file.tensors.keys() - {spec.file_name for spec in specs}):
        name = min(file.tensors[key].name for key in unused)
        raise EngineError(f"{file.path.name}: tensor {name} has no place in the model that config.json describes")


def load(
    file: ModelSource, specs: list[TensorSpec], memory: Memory, layout: Layout, progress: Callable[[int, int], None]
) -> Weights:
    """Repack every tensor for ``layout`` and copy it to the device.

    ``progress(done_bytes, total_bytes)`` counts bytes of the file. The host holds a few pieces of some tensors at a
    time, of about _CHUNK_BYTES each.
    """
    weights = allocate_weights(file.tensors, specs, memory, layout)
    total = sum(spec.bytes_of(file.tensors[spec.file_name]) for spec in specs)
    on_host = [spec for spec in specs if spec.host]
    for spec in on_host:
        weights.host[spec.name] = _vector(file, spec)
    done = sum(spec.bytes_of(file.tensors[spec.file_name]) for spec in on_host)

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    upload(memory, (piece for spec in specs if not spec.host for piece in _pieces(file, spec, layout, weights)), count)
    memory.flush()
    return weights


def _pieces(file: ModelSource, spec: TensorSpec, layout: Layout, weights: Weights) -> Iterator[Piece]:
    """A tensor in pieces of whole rows."""
    info = file.tensors[spec.file_name]
    weight = weights.matrices.get(spec.name)
    if weight is None:
        yield Piece((weights.vectors[spec.name],), partial(_fill_vector, file, spec), spec.bytes_of(info))
        return
    file_bytes = info.size_bytes // info.shape[0]
    unit = math.lcm(8, spec.rows.taken if spec.rows else 1)
    step = max(unit, _CHUNK_BYTES // file_bytes // unit * unit)
    for part in weight.parts or (weight,):
        for first in range(0, part.rows, step):
            count = min(step, part.rows - first)
            fill = partial(_fill_matrix, file, spec, layout, weight, part.first + first, count)
            yield Piece(_targets(part, first, count, layout), fill, count * file_bytes)


def _targets(weight: Weight, first: int, count: int, layout: Layout) -> tuple[Slice, ...]:
    """Where ``count`` rows from ``first`` on lie in each plane that has some of them; the last fill it up."""
    targets = []
    steps = row_bytes(weight.type, weight.cols, layout)
    for plane, row in zip((weight.quants, weight.scales), steps, strict=True):
        size = row * count if first + count < weight.rows else plane.size - row * first
        if size:
            targets.append(plane.part(row * first, size))
    return tuple(targets)


def _fill_matrix(
    file: ModelSource, spec: TensorSpec, layout: Layout, weight: Weight, first: int, count: int, out: list[Bytes]
) -> None:
    raw = _read_rows(file, spec, first, count)
    for target, plane in zip(out, repack(raw, weight.type, count, weight.cols, layout), strict=False):
        target[: plane.size] = plane[: target.size]


def _fill_vector(file: ModelSource, spec: TensorSpec, out: list[Bytes]) -> None:
    out[0].view(np.float32)[...] = _vector(file, spec)


def _vector(file: ModelSource, spec: TensorSpec) -> npt.NDArray[np.float32]:
    raw = _read_rows(file, spec, 0, spec.shape[0])
    return raw.view(_VECTOR_TYPES[file.tensors[spec.file_name].type]).astype(np.float32)


def _read_rows(file: ModelSource, spec: TensorSpec, first: int, count: int) -> Bytes:
    """Rows of the spec's tensor, ``first`` being a multiple of what ``spec.rows`` takes at once."""
    if spec.rows is None:
        return file.rows(spec.file_name, first, count)
    period, start, taken = spec.rows
    raw = file.rows(spec.file_name, first // taken * period, count // taken * period)
    return raw.reshape(count // taken, period, -1)[:, start : start + taken].reshape(-1)
