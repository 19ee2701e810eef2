"""The ops that choose the next id from the logits, on the device."""

from __future__ import annotations

import struct

from engine.program.attend_division import attend_lanes
from engine.program.matrix import head_keys
from engine.program.nodes import Node
from engine.program.op import Op
from engine.program.tuning import MOST_PARTS
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, KernelSet

_GROUP_IDS = 1024  # GROUP_IDS of shaders/include/sample.glsl
_ONE_GROUP = (1, 1, 1)
_PARTS = struct.Struct("<II")  # the end of sample_pick's push constants: parts, advance


def scratch_bytes(vocab: int) -> int:
    """The size of ``sample``'s scratch: a key for each logit, and the largest of each part."""
    padded = _padded(vocab)
    return padded * 4 + max(padded // 32, MOST_PARTS) * 8 + 8


def required_kernels(kernels: KernelSet) -> list[tuple[str, Defines, bool]]:
    """What ``Kernels.prepare`` must build for ``sample``."""
    return [("sample_scan", _scan_defines(kernels), False), ("sample_pick", _pick_defines(kernels), False)]


def sample(
    kernels: KernelSet,
    logits: Slice,
    vocab: int,
    step: Slice,
    state: Slice,
    readback: Slice,
    scratch: Slice,
    advance: int,
    head: Node | None = None,
) -> list[Op]:
    """Choose an id from ``logits``, float32 (vocab,), as ``step`` (a StepParams slot) says.

    ``state``'s position first grows by ``advance``: 1 in a decode step, where the fed token has just entered the
    KV cache, 0 for a prefill's logits. The id goes to ``readback`` (its first uint), to the state's token, and into
    the history at the new position, which is also the position that the random draw is made for. The order of the
    filters is that of ``engine.decode.sampling``; top-p and min-p weigh the logits before temperature, top-p within
    what top-k left, as llama.cpp does. The draw u takes the first candidate, in ascending id order, at which the
    cumulative probability exceeds u. NaN logits are never chosen (id 0 is, if all are NaN).
    ``scratch`` has ``scratch_bytes(vocab)``. ``head`` is a "head_keys" node that computes the logits first, in one op
    with the first step of sampling.
    """
    padded = _padded(vocab)
    if head is not None:
        weight, x, y, *norm = head.args
        scan = (step, state, scratch, padded)
        first, parts = head_keys(kernels, weight, x, y, scan, norm=norm[0] if norm else None, name=head.name)
    else:
        buffers = (logits, step, state, scratch)
        groups = (padded // _GROUP_IDS, 1, 1)
        first = Op(
            "sample_scan",
            kernels.get("sample_scan", _scan_defines(kernels)),
            buffers,
            (vocab, padded),
            groups,
            "head",
            (vocab + padded) * 4,
        )
        parts = padded // _part_ids(kernels)
    return [
        first,
        Op(
            "sample_pick",
            kernels.get("sample_pick", _pick_defines(kernels)),
            (scratch, step, state, readback),
            (padded, parts, advance),
            _ONE_GROUP,
            "head",
            parts * 8,
        ),
    ]


def pick_of_parts(pick: Op, parts: int) -> Op:
    """``sample``'s last op behind an LM head that is divided into so many parts."""
    end = len(pick.push) - _PARTS.size
    _, advance = _PARTS.unpack_from(pick.push, end)
    return pick.with_kernel(pick.kernel, pick.push[:end] + _PARTS.pack(parts, advance))


def _part_ids(kernels: KernelSet) -> int:
    """PART_IDS of shaders/include/sample.glsl."""
    if "CPU_DEVICE" in kernels.base:
        return 32
    return _GROUP_IDS // int(_scan_defines(kernels)["SCAN_LANES"]) * kernels.device.subgroup_size


def _scan_defines(kernels: KernelSet) -> Defines:
    if "CPU_DEVICE" in kernels.base:
        return {}
    return {"SCAN_LANES": 128 if kernels.resident is None else kernels.resident.group}


def _pick_defines(kernels: KernelSet) -> Defines:
    if "CPU_DEVICE" in kernels.base:
        return {}
    return {"PICK_LANES": attend_lanes(kernels.device.subgroup_size)}  # as many as attention; part of the arithmetic


def _padded(vocab: int) -> int:
    return -(-vocab // _GROUP_IDS) * _GROUP_IDS
