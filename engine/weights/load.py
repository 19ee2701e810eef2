"""From a model source to weights in device memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, combinations
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from engine.errors import EngineError
from engine.program.matrix import Use, Weight
from engine.program.nodes import Stack
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.upload import Piece, upload
from engine.weights.formats import SUPPORTED_TYPES, Layout, plane_bytes, row_bytes
from engine.weights.gguf_header import TensorInfo
from engine.weights.repack import repack
from engine.weights.source import Bytes, ModelSource

_CHUNK_BYTES = 1 << 20  # of the file a step: a few of them stay in a processor's cache
_FLOAT_BYTES = 4
_VECTOR_TYPES: dict[GGMLQuantizationType, str] = {GGMLQuantizationType.F32: "<f4", GGMLQuantizationType.F16: "<f2"}


class Rows(NamedTuple):
    """Of every ``period`` rows of a tensor in the file the ``taken`` from ``first`` on."""

    period: int
    first: int
    taken: int


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor a model needs: its name and shape, row-major.

    ``uses`` are what ``engine.program.matrix`` does with it; without one it is a vector, float32 on the device,
    whatever its shape. Tensors with the same ``stack`` are laid out next to each other where their types allow, and
    ``stacked`` is what it does with all of them at once besides; ``host`` ones stay on the host. With ``rows`` the
    tensor is those rows of the file's tensor ``source``.
    """

    name: str
    shape: tuple[int, ...]
    uses: tuple[Use, ...] = ()
    stack: str | None = None
    stacked: tuple[Use, ...] = ()
    host: bool = False
    source: str = ""  # the name in the file where it is another
    rows: Rows | None = None

    @property
    def file_name(self) -> str:
        """The tensor's name in the file."""
        return self.source or self.name

    @property
    def file_shape(self) -> tuple[int, ...]:
        """The tensor's shape in the file."""
        if self.rows is None:
            return self.shape
        return (self.shape[0] // self.rows.taken * self.rows.period, *self.shape[1:])

    def bytes_of(self, info: TensorInfo) -> int:
        """How many of the bytes of the file's tensor are this one's."""
        return info.size_bytes if self.rows is None else info.size_bytes // self.rows.period * self.rows.taken


@dataclass(slots=True)
class Weights:
    """What a model's nodes refer to.

    ``stacks`` is keyed by the id() of a stack's first matrix; ``spans`` has the slice of n stacked vectors at (id() of
    the first, n).
    """

    matrices: dict[str, Weight] = field(default_factory=dict)
    vectors: dict[str, Slice] = field(default_factory=dict)
    host: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    stacks: dict[int, Stack] = field(default_factory=dict)
    spans: dict[tuple[int, int], Slice] = field(default_factory=dict)


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


def allocate_weights(
    tensors: Mapping[str, TensorInfo], specs: list[TensorSpec], memory: Memory, layout: Layout
) -> Weights:
    """Weights with nothing in them yet; ``host`` ones are left out.

    Raise EngineError for a type or shape the kernels do not take, or where memory is out.
    """
    weights = Weights()
    for group in stack_groups(tensors, specs):
        _allocate_group(tensors, group, memory, layout, weights)
    return weights


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


def matrix_uses(
    tensors: Mapping[str, TensorInfo], specs: list[TensorSpec]
) -> list[tuple[Use, GGMLQuantizationType, int, int]]:
    """(use, type, rows, cols) of every matrix and every stack."""
    uses = []
    for group in stack_groups(tensors, specs):
        shapes = [(spec.shape[0], spec.shape[1]) for spec in group if spec.uses]
        kind = tensors[group[0].file_name].type
        uses += [(use, kind, *shape) for shape in shapes for use in group[0].uses]
        if len(shapes) > 1:
            rows, cols = sum(shape[0] for shape in shapes), shapes[0][1]
            uses += [(use, kind, rows, cols) for use in (*group[0].uses, *group[0].stacked)]
    return uses


def stack_groups(tensors: Mapping[str, TensorInfo], specs: list[TensorSpec]) -> Iterator[list[TensorSpec]]:
    """Runs of neighbours that share a stack and a type; everything else alone."""
    group: list[TensorSpec] = []
    for spec in specs:
        last = group[-1] if group else None
        if last and spec.stack and last.stack == spec.stack and _stackable(tensors, last, spec):
            group.append(spec)
            continue
        if group:
            yield group
        group = [spec]
    if group:
        yield group


def _stackable(tensors: Mapping[str, TensorInfo], first: TensorSpec, second: TensorSpec) -> bool:
    same = tensors[first.file_name].type == tensors[second.file_name].type
    return same and first.shape[0] % 8 == 0 and second.shape[0] % 8 == 0


def _allocate_group(
    tensors: Mapping[str, TensorInfo], group: list[TensorSpec], memory: Memory, layout: Layout, weights: Weights
) -> None:
    if not group[0].uses:
        if not group[0].host:
            _allocate_vectors(group, memory, weights)
        return
    kind = tensors[group[0].file_name].type
    sizes = [plane_bytes(kind, spec.shape[0], spec.shape[1], layout) for spec in group]
    whole = [memory.allocate(sum(size[plane] for size in sizes), constant=True) for plane in range(2)]
    members, offsets = [], [0, 0]
    for spec, size in zip(group, sizes, strict=True):
        planes = [whole[plane].part(offsets[plane], size[plane]) for plane in range(2)]
        offsets = [offsets[plane] + size[plane] for plane in range(2)]
        members.append(_weight(spec.name, kind, spec.shape, planes))
        weights.matrices[spec.name] = members[-1]
    if len(group) > 1:
        shape = (sum(spec.shape[0] for spec in group), group[0].shape[1])
        combined = _weight("+".join(spec.name for spec in group), kind, shape, whole)
        weights.stacks[id(members[0])] = Stack(tuple(members), combined)


def _allocate_vectors(group: list[TensorSpec], memory: Memory, weights: Weights) -> None:
    sizes = [prod(spec.shape) * _FLOAT_BYTES for spec in group]
    starts = list(accumulate(sizes, initial=0))
    whole = memory.allocate(starts[-1], constant=True)
    vectors = [whole.part(start, size) for start, size in zip(starts, sizes, strict=False)]
    for spec, vector in zip(group, vectors, strict=True):
        weights.vectors[spec.name] = vector
    for first, end in combinations(range(len(starts)), 2):
        weights.spans[id(vectors[first]), end - first] = whole.part(starts[first], starts[end] - starts[first])


def _weight(name: str, kind: GGMLQuantizationType, shape: tuple[int, ...], planes: list[Slice]) -> Weight:
    rows, cols = shape
    return Weight(name, kind, rows, cols, planes[0], planes[1], planes[0].size + planes[1].size)


def _pieces(file: ModelSource, spec: TensorSpec, layout: Layout, weights: Weights) -> Iterator[Piece]:
    """A tensor in pieces of whole rows."""
    info = file.tensors[spec.file_name]
    weight = weights.matrices.get(spec.name)
    if weight is None:
        yield Piece((weights.vectors[spec.name],), partial(_fill_vector, file, spec), spec.bytes_of(info))
        return
    file_bytes = info.size_bytes // info.shape[0]
    steps = row_bytes(weight.type, weight.cols, layout)
    unit = math.lcm(8, spec.rows.taken if spec.rows else 1)
    step = max(unit, _CHUNK_BYTES // file_bytes // unit * unit)
    for first in range(0, weight.rows, step):
        count = min(step, weight.rows - first)
        targets = []
        for plane, row in zip((weight.quants, weight.scales), steps, strict=True):
            size = row * step if first + step < weight.rows else plane.size - row * first  # the last fills it up
            if size:
                targets.append(plane.part(row * first, size))
        fill = partial(_fill_matrix, file, spec, layout, weight, first, count)
        yield Piece(tuple(targets), fill, count * file_bytes)


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
