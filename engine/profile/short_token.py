"""A token with some of a model's layers, for timing where a whole one takes long."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from engine.decode.program import DecodeProgram
from engine.program.op import Op

_LAYER = re.compile(r"blk\.(\d+)\.")  # as all architectures name what is of a layer
_Parts = frozenset[Any]  # the distinct dispatches of a layer


def shortened(program: DecodeProgram, share: float, position: int) -> DecodeProgram:
    """``program`` with as many layers as leave about ``share`` of the bytes that its token at ``position`` touches.

    All that stands before and behind the layers stays, and at least so many layers that no distinct dispatch is lost:
    kernel, workgroups and sizes of buffers, and so every matrix by type and shape. What it computes means nothing, but
    it is recorded and runs like the whole: a barrier stands between two ops where one or more stood before.
    """
    layers = defaultdict[int, list[Op]](list)
    for op in program.ops:
        if (layer := layer_of(op)) is not None:
            layers[layer].append(op)
    if not layers:
        return program
    all_bytes, in_layers = _bytes(program.ops, position), sum(_bytes(ops, position) for ops in layers.values())
    count = (share * all_bytes - (all_bytes - in_layers)) * len(layers) / max(in_layers, 1)
    kept = choose_layers({layer: frozenset(map(_dispatch, ops)) for layer, ops in layers.items()}, int(count))
    if len(kept) == len(layers):
        return program
    ops, barriers, pending = list[Op](), list[bool](), False
    for op, barrier in zip(program.ops, program.barriers, strict=True):
        pending |= barrier
        if (layer := layer_of(op)) is None or layer in kept:
            ops.append(op)
            barriers.append(pending)
            pending = False
    return program._replace(ops=ops, barriers=barriers, barrier_count=sum(barriers))


def choose_layers(parts: Mapping[int, _Parts], count: int) -> set[int]:
    """``count`` layers, or more if it takes more to have each part that any of them has.

    First the parts are covered, each time by the layer that adds the most. Then kinds of layers, which are those of the
    same parts, get their shares of the ``count`` (by Sainte-Lague's method). Among equals it is the layer furthest from
    those taken.
    """
    members = Counter(parts.values())
    taken, kinds, missing = set[int](), Counter[_Parts](), frozenset[Any]().union(*parts.values())

    def rank(layer: int) -> tuple[int, float, int]:
        kind = parts[layer]
        distance = min((abs(layer - other) for other in taken), default=0)
        return len(kind & missing), members[kind] / (2 * kinds[kind] + 1), distance

    while len(taken) < len(parts) and (missing or len(taken) < count):
        layer = max((layer for layer in parts if layer not in taken), key=rank)
        taken.add(layer)
        kinds[parts[layer]] += 1
        missing -= parts[layer]
    return taken


def layer_of(op: Op) -> int | None:
    """The number of its layer, from 0; None where it is of none."""
    found = _LAYER.match(op.name)
    return None if found is None else int(found[1])


def _dispatch(op: Op) -> Any:
    return op.kernel, op.groups, tuple(item.size for item in op.buffers)


def _bytes(ops: Iterable[Op], position: int) -> int:
    return sum(op.bytes_at(position) for op in ops)
