"""From a GGUF file to weights in device memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from engine.errors import EngineError
from engine.program.matrix import Use, Weight
from engine.program.nodes import Stack
from engine.vulkan.memory import Memory, Slice
from engine.weights.gguf import GGUFFile, TensorInfo
from engine.weights.repack import SUPPORTED_TYPES, Layout, repack

_VECTOR_TYPES: dict[GGMLQuantizationType, str] = {GGMLQuantizationType.F32: "<f4", GGMLQuantizationType.F16: "<f2"}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor a model needs: its name and shape, row-major.

    ``uses`` are what ``engine.program.matrix`` does with it. Tensors with the same ``stack`` are laid out
    next to each other where their types allow; ``host`` ones stay on the host.
    """

    name: str
    shape: tuple[int, ...]
    uses: tuple[Use, ...] = ()
    stack: str | None = None
    host: bool = False


@dataclass(slots=True)
class Weights:
    """What a model's nodes refer to. ``stacks`` is keyed by the id() of a stack's first member."""

    matrices: dict[str, Weight] = field(default_factory=dict)
    vectors: dict[str, Slice] = field(default_factory=dict)
    host: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    stacks: dict[int, Stack] = field(default_factory=dict)


def check_tensors(file: GGUFFile, specs: list[TensorSpec]) -> None:
    """Raise EngineError naming the first tensor that is missing, has another shape, or an unsupported type."""
    for spec in specs:
        info = file.tensors.get(spec.name)
        if info is None:
            raise EngineError(f"{file.path.name}: tensor {spec.name} is missing")
        if info.shape != spec.shape:
            raise EngineError(f"{file.path.name}: tensor {spec.name} is {info.shape}, the header says {spec.shape}")
        allowed = SUPPORTED_TYPES if len(spec.shape) == 2 else tuple(_VECTOR_TYPES)
        if info.type not in allowed:
            names = ", ".join(kind.name for kind in allowed)
            raise EngineError(
                f"{file.path.name}: tensor {spec.name} is {info.type.name}, which is not supported; there is {names}"
            )


def load(
    file: GGUFFile, specs: list[TensorSpec], memory: Memory, layout: Layout, progress: Callable[[int, int], None]
) -> Weights:
    """Repack every tensor for ``layout`` and copy it to the device.

    ``progress(done_bytes, total_bytes)`` counts bytes of the file. The host holds one tensor at a time.
    """
    weights = Weights()
    total = sum(file.tensors[spec.name].size_bytes for spec in specs)
    done = 0
    for group in stack_groups(file.tensors, specs):
        _load_group(file, group, memory, layout, weights)
        done += sum(file.tensors[spec.name].size_bytes for spec in group)
        file.release()
        progress(done, total)
    memory.flush()
    return weights


def matrix_uses(
    tensors: Mapping[str, TensorInfo], specs: list[TensorSpec]
) -> list[tuple[Use, GGMLQuantizationType, int, int]]:
    """(use, type, rows, cols) of every matrix and every stack."""
    uses = []
    for group in stack_groups(tensors, specs):
        shapes = [spec.shape for spec in group if len(spec.shape) == 2]
        shapes += [(sum(shape[0] for shape in shapes), shapes[0][1])] if len(shapes) > 1 else []
        kind = tensors[group[0].name].type
        uses += [(use, kind, *shape) for shape in shapes for use in group[0].uses]
    return uses


def stack_groups(tensors: Mapping[str, TensorInfo], specs: list[TensorSpec]) -> Iterator[list[TensorSpec]]:
    """Runs of neighbours that share a stack and a type; everything else alone."""
    group: list[TensorSpec] = []
    for spec in specs:
        last = group[-1] if group else None
        if last and spec.stack and last.stack == spec.stack and _stackable(tensors[last.name], tensors[spec.name]):
            group.append(spec)
            continue
        if group:
            yield group
        group = [spec]
    if group:
        yield group


def _stackable(first: TensorInfo, second: TensorInfo) -> bool:
    return first.type == second.type and first.shape[0] % 8 == 0 and second.shape[0] % 8 == 0


def _load_group(file: GGUFFile, group: list[TensorSpec], memory: Memory, layout: Layout, weights: Weights) -> None:
    spec = group[0]
    info = file.tensors[spec.name]
    if len(spec.shape) == 1:
        values = file.data(spec.name).view(_VECTOR_TYPES[info.type]).astype(np.float32)
        if spec.host:
            weights.host[spec.name] = values
        else:
            weights.vectors[spec.name] = _upload(memory, values)
        return
    if len(group) == 1:
        rows, cols = spec.shape
        planes = repack(file.data(spec.name), info.type, rows, cols, layout)
        weights.matrices[spec.name] = _weight(spec.name, info, spec.shape, [_upload(memory, plane) for plane in planes])
        return
    packed = [repack(file.data(item.name), info.type, item.shape[0], item.shape[1], layout) for item in group]
    rows = sum(item.shape[0] for item in group)
    whole = [memory.allocate(sum(planes[i].nbytes for planes in packed), constant=True) for i in range(2)]
    combined = _weight("+".join(item.name for item in group), info, (rows, spec.shape[1]), whole)
    members, offsets = [], [0, 0]
    for item, planes in zip(group, packed, strict=True):
        parts = [whole[i].part(offsets[i], planes[i].nbytes) for i in range(2)]
        for i in range(2):
            memory.write(parts[i], planes[i])
            offsets[i] += planes[i].nbytes
        member = _weight(item.name, info, item.shape, parts)
        weights.matrices[item.name] = member
        members.append(member)
    weights.stacks[id(members[0])] = Stack(tuple(members), combined)


def _weight(name: str, info: TensorInfo, shape: tuple[int, ...], planes: list[Slice]) -> Weight:
    rows, cols = shape
    return Weight(name, info.type, rows, cols, planes[0], planes[1], planes[0].size + planes[1].size)


def _upload(memory: Memory, data: npt.NDArray[Any]) -> Slice:
    target = memory.allocate(data.nbytes, constant=True)
    memory.write(target, data)
    return target
