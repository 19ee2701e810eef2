"""Where weights lie in device memory: next to each other where an op reads several, in parts where one is too large."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, combinations

from gguf.constants import GGMLQuantizationType

from engine.errors import EngineError
from engine.program.matrix_kernels import SPLITTABLE, Use
from engine.program.nodes import Stack
from engine.program.operands import Weight
from engine.vulkan.memory import Memory, Slice
from engine.weights.formats import Layout, plane_bytes, row_bytes
from engine.weights.gguf_header import TensorInfo
from engine.weights.spec import TensorSpec, Weights

_FLOAT_BYTES = 4
_PART_ROWS = 64  # parts begin at multiples: their results at multiples of 256 bytes, as descriptors may ask


@dataclass(frozen=True, slots=True)
class Placement:
    """How one device lays weights out: its planes, and the most bytes of one piece of memory."""

    layout: Layout
    most_bytes: int

    def groups(self, tensors: Mapping[str, TensorInfo], specs: list[TensorSpec]) -> Iterator[list[TensorSpec]]:
        """Runs of neighbours that share a stack and a type, and fit one piece; everything else alone."""
        group: list[TensorSpec] = []
        for spec in specs:
            if group and self._stackable(tensors, group, spec):
                group.append(spec)
                continue
            if group:
                yield group
            group = [spec]
        if group:
            yield group

    def part_rows(self, tensors: Mapping[str, TensorInfo], spec: TensorSpec) -> list[int]:
        """The rows of each part of a matrix: one where it fits. Raise EngineError where it cannot be split."""
        rows, cols = spec.shape
        kind = tensors[spec.file_name].type
        if max(plane_bytes(kind, rows, cols, self.layout)) <= self.most_bytes:
            return [rows]
        most_rows = self.most_bytes // max(row_bytes(kind, cols, self.layout)) // _PART_ROWS * _PART_ROWS
        if not most_rows or not set(spec.uses) <= SPLITTABLE:
            size = max(plane_bytes(kind, rows, cols, self.layout))
            raise EngineError(
                f"tensor {spec.name} takes {size / 1e6:,.0f} MB, and a piece of this device's memory is at most "
                f"{self.most_bytes / 1e6:,.0f} MB: take a quantised model or another --device"
            )
        count = -(-rows // most_rows)
        step = -(-rows // count // _PART_ROWS) * _PART_ROWS
        return [min(step, rows - first) for first in range(0, rows, step)]

    def matrix_uses(
        self, tensors: Mapping[str, TensorInfo], specs: list[TensorSpec]
    ) -> list[tuple[Use, GGMLQuantizationType, int, int]]:
        """(use, type, rows, cols) of every matrix, or its parts, and every stack."""
        uses = []
        for group in self.groups(tensors, specs):
            matrices = [spec for spec in group if spec.uses]
            kind = tensors[group[0].file_name].type
            for spec in matrices:
                parts = self.part_rows(tensors, spec)
                uses += [(use, kind, rows, spec.shape[1]) for rows in parts for use in spec.uses]
            if len(matrices) > 1:
                rows = sum(spec.shape[0] for spec in matrices)
                uses += [(use, kind, rows, group[0].shape[1]) for use in (*group[0].uses, *group[0].stacked)]
            elif matrices and group[0].stack:  # others of its stack have another type: a norm joins it by itself
                alone = [use for use in group[0].stacked if use.startswith("norm_matvec")]
                uses += [(use, kind, group[0].shape[0], group[0].shape[1]) for use in alone]
        return uses

    def _stackable(self, tensors: Mapping[str, TensorInfo], group: list[TensorSpec], spec: TensorSpec) -> bool:
        last = group[-1]
        kind = tensors[spec.file_name].type
        if not spec.stack or last.stack != spec.stack or tensors[last.file_name].type != kind:
            return False
        if last.shape[0] % 8 or spec.shape[0] % 8:
            return False
        if not spec.uses:
            return True
        rows = sum(member.shape[0] for member in group) + spec.shape[0]
        return max(plane_bytes(kind, rows, spec.shape[1], self.layout)) <= self.most_bytes


def allocate_weights(
    tensors: Mapping[str, TensorInfo], specs: list[TensorSpec], memory: Memory, layout: Layout
) -> Weights:
    """Weights with nothing in them yet; ``host`` ones are left out.

    Raise EngineError for a type or shape the kernels do not take, or where memory is out.
    """
    placement = Placement(layout, memory.most_bytes)
    groups = [_Group(placement, tensors, group) for group in placement.groups(tensors, specs) if not group[0].host]
    slices = iter(memory.allocate_many([size for group in groups for size in group.sizes], constant=True))
    weights = Weights()
    for group in groups:
        group.place([next(slices) for _ in group.sizes], weights)
    return weights


class _Group:
    """Vectors or matrices in one piece, or a matrix in one or several parts. ``sizes`` are its slices'."""

    def __init__(self, placement: Placement, tensors: Mapping[str, TensorInfo], group: list[TensorSpec]) -> None:
        self._layout, self._group = placement.layout, group
        self._type = tensors[group[0].file_name].type
        self._parts: list[int] = []
        if not group[0].uses:
            self.sizes = [sum(self._vector_bytes())]
        elif len(group) > 1:
            self.sizes = self._sum([spec.shape[0] for spec in group])
        else:
            self._parts = placement.part_rows(tensors, group[0])
            self.sizes = [size for rows in self._parts for size in self._planes(rows)]

    def place(self, slices: list[Slice], weights: Weights) -> None:
        """Note in ``weights`` what lies where."""
        first = self._group[0]
        if not first.uses:
            self._place_vectors(slices[0], weights)
        elif len(self._group) > 1:
            self._place_stack(slices, weights)
        elif len(self._parts) == 1:
            weights.matrices[first.name] = self._weight(first.name, first.shape[0], slices)
        else:
            parts, begin = [], 0
            for number, rows in enumerate(self._parts):
                planes = slices[2 * number : 2 * number + 2]
                parts.append(self._weight(f"{first.name}.{number}", rows, planes, begin))
                begin += rows
            weights.matrices[first.name] = self._weight(first.name, begin, slices[:2], parts=tuple(parts))

    def _place_stack(self, slices: list[Slice], weights: Weights) -> None:
        members, offsets = [], [0, 0]
        for spec in self._group:
            sizes = self._planes(spec.shape[0])
            planes = [slices[plane].part(offsets[plane], sizes[plane]) for plane in range(2)]
            offsets = [offsets[plane] + sizes[plane] for plane in range(2)]
            members.append(self._weight(spec.name, spec.shape[0], planes))
            weights.matrices[spec.name] = members[-1]
        name = "+".join(spec.name for spec in self._group)
        combined = self._weight(name, sum(member.rows for member in members), slices)
        weights.stacks[id(members[0])] = Stack(tuple(members), combined)

    def _place_vectors(self, whole: Slice, weights: Weights) -> None:
        sizes = self._vector_bytes()
        starts = list(accumulate(sizes, initial=0))
        vectors = [whole.part(start, size) for start, size in zip(starts, sizes, strict=False)]
        for spec, vector in zip(self._group, vectors, strict=True):
            weights.vectors[spec.name] = vector
        for first, end in combinations(range(len(starts)), 2):
            weights.spans[id(vectors[first]), end - first] = whole.part(starts[first], starts[end] - starts[first])

    def _vector_bytes(self) -> list[int]:
        return [math.prod(spec.shape) * _FLOAT_BYTES for spec in self._group]

    def _planes(self, rows: int) -> tuple[int, int]:
        return plane_bytes(self._type, rows, self._group[0].shape[1], self._layout)

    def _sum(self, rows: list[int]) -> list[int]:
        planes = [self._planes(count) for count in rows]
        return [sum(size[plane] for size in planes) for plane in range(2)]

    def _weight(
        self, name: str, rows: int, planes: list[Slice], first: int = 0, parts: tuple[Weight, ...] = ()
    ) -> Weight:
        size = sum(part.bytes for part in parts) or planes[0].size + planes[1].size
        return Weight(name, self._type, rows, self._group[0].shape[1], planes[0], planes[1], size, first, parts)
