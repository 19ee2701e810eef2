"""What a model on disk is and how much of it a device has room for: from its headers, without loading it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError
from engine.footprint import Footprint
from engine.models import architecture
from engine.room import SMALLEST_CONTEXT, free_bytes
from engine.vulkan import budget
from engine.vulkan.instance import Instance, extensions_of
from engine.weights.load import check_tensors
from engine.weights.open_model import open_model
from engine.weights.source import ModelSource


@dataclass(frozen=True, slots=True)
class DeviceRoom:
    """What a device has left: ``free_bytes`` for a model."""

    name: str
    free_bytes: int
    row_kernels: bool  # it takes the kernels of software devices


@dataclass(frozen=True, slots=True)
class ModelOnDisk:
    """A model's headers. ``problem`` says why it cannot be run, and is None where it can."""

    architecture: str
    quantisation: str  # the type that holds most of the weights
    parameters: int
    file_bytes: int
    trained_context: int | None
    problem: str | None
    needed_bytes: int | None  # on the device, with the smallest context that makes sense
    largest_context: int | None  # tokens that the device has room for; 0: not even the weights. None: not asked


def device_room(device: str | int | None = None) -> DeviceRoom:
    """The room on the device that ``Engine.open`` would take. Raise EngineError where there is none."""
    instance = Instance()
    try:
        info, physical = instance.choose(device)
        left_bytes = free_bytes(info, budget.available_bytes(physical, extensions_of(physical)))
        return DeviceRoom(info.name, left_bytes, info.is_software)
    finally:
        instance.close()


def inspect_model(path: str | Path, room: DeviceRoom | None = None) -> ModelOnDisk:
    """What lies at ``path``, and how much context fits into ``room`` with it.

    Raise EngineError for a file or folder that cannot be read; a model that is sound but cannot be run has a
    ``problem``.
    """
    with open_model(Path(path)) as source:
        sizes: Counter[str] = Counter()
        for info in source.tensors.values():
            sizes[info.type.name] += info.size_bytes
        problem, trained, needed, largest = None, None, None, None
        try:
            footprint, trained = _footprint(source, room is not None and room.row_kernels)
            if room is not None:
                smallest = min(SMALLEST_CONTEXT, trained)
                needed = footprint.bytes_for(smallest)
                fitting = footprint.largest_context(room.free_bytes, trained)
                largest = fitting if fitting >= smallest else 0
        except EngineError as error:
            problem = str(error)
        return ModelOnDisk(
            architecture=str(source.metadata.get("general.architecture")),
            quantisation=max(sizes, key=lambda kind: sizes[kind], default="none"),
            parameters=sum(math.prod(info.shape) for info in source.tensors.values()),
            file_bytes=source.file_bytes,
            trained_context=trained,
            problem=problem,
            needed_bytes=needed,
            largest_context=largest,
        )


def _footprint(source: ModelSource, row_kernels: bool) -> tuple[Footprint, int]:
    """With the context that the model was trained for."""
    model = architecture(source.path.name, source.metadata.get("general.architecture"))
    geometry = model.geometry(source.path.name, source.metadata, source.tensors)
    specs = model.tensors(geometry, source.tensors)
    check_tensors(source, specs)
    footprint = Footprint(model, geometry, source.metadata, source.tensors, specs, row_kernels)
    return footprint, geometry.trained_context
