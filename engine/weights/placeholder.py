"""Weights of the right types and sizes with nothing in them."""

from __future__ import annotations

from collections.abc import Mapping

from engine.program.matrix import Weight
from engine.program.nodes import Stack
from engine.vulkan.memory import Memory
from engine.weights.gguf import TensorInfo
from engine.weights.load import TensorSpec, Weights, stack_groups
from engine.weights.repack import Layout, plane_bytes


def placeholder_weights(
    tensors: Mapping[str, TensorInfo], specs: list[TensorSpec], memory: Memory, layout: Layout
) -> Weights:
    """What ``engine.weights.load.load`` makes of a file with these ``tensors``, nothing read and nothing written.

    Raise EngineError for a type or shape the kernels do not take.
    """
    weights = Weights()
    for group in stack_groups(tensors, specs):
        if len(group[0].shape) == 1:
            if not group[0].host:
                weights.vectors[group[0].name] = memory.allocate(group[0].shape[0] * 4, constant=True)
            continue
        kind = tensors[group[0].name].type
        sizes = [plane_bytes(kind, spec.shape[0], spec.shape[1], layout) for spec in group]
        planes = [memory.allocate(sum(size[plane] for size in sizes), constant=True) for plane in range(2)]
        members, offsets = [], [0, 0]
        for spec, size in zip(group, sizes, strict=True):
            parts = [planes[plane].part(offsets[plane], size[plane]) for plane in range(2)]
            offsets = [offsets[plane] + size[plane] for plane in range(2)]
            members.append(Weight(spec.name, kind, spec.shape[0], spec.shape[1], parts[0], parts[1], sum(size)))
            weights.matrices[spec.name] = members[-1]
        if len(group) > 1:
            rows, name = sum(spec.shape[0] for spec in group), "+".join(spec.name for spec in group)
            size_bytes = planes[0].size + planes[1].size
            combined = Weight(name, kind, rows, group[0].shape[1], planes[0], planes[1], size_bytes)
            weights.stacks[id(members[0])] = Stack(tuple(members), combined)
    return weights
