"""What the compiler tells the driver of memory that kernels share while they wait for each other."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import pytest

from engine import FUSION_PASSES
from engine.decode.program import Settings
from engine.program.resident import ResidentKernels
from engine.program.tuning import group_invocations
from engine.vulkan.pipelines import Resident
from engine.vulkan.shaders import compile_glsl, expand

_LOAD, _STORE = 61, 62
_ALIGNED, _AVAILABLE, _VISIBLE, _NON_PRIVATE = 0x2, 0x8, 0x10, 0x20  # memory operands; all behind addresses are aligned
_CONSTANT, _DEVICE = 43, 1


def memory_operands(code: bytes) -> Iterator[tuple[int, int, int | None]]:
    """The opcode, memory operands and scope of each load and store through an address."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    place, constants = 5, {}
    while place < len(words):
        length, opcode = words[place] >> 16, words[place] & 0xFFFF
        if opcode == _CONSTANT:
            constants[words[place + 2]] = words[place + 3]
        operands = {_LOAD: 4, _STORE: 3}.get(opcode)
        if operands is not None and length > operands and words[place + operands] & _ALIGNED:
            found = words[place + operands]
            scoped = found & (_AVAILABLE | _VISIBLE)
            yield opcode, found, constants[words[place + operands + 2]] if scoped else None
        place += length


def private(code: bytes) -> Mapping[int, int]:
    """How many loads and stores do not count as seen by others."""
    found = {_LOAD: 0, _STORE: 0}
    for opcode, operands, _ in memory_operands(code):
        found[opcode] += not operands & _NON_PRIVATE
    return found


def passing_caches(code: bytes) -> Mapping[int, int]:
    """How many loads and stores reach what all of the device sees."""
    found = {_LOAD: 0, _STORE: 0}
    for opcode, operands, scope in memory_operands(code):
        found[opcode] += bool(operands & {_LOAD: _VISIBLE, _STORE: _AVAILABLE}[opcode]) and scope == _DEVICE
    return found


@pytest.mark.parametrize(("name", "defines", "own_loads"), [
    ("grid_check", {"LANES": 64}, 1),  # the report's address
    ("silu_mul", {}, 1),
    ("add", {}, 1),
])  # fmt: skip
def test_what_waiting_kernels_share_is_not_kept_in_caches(name: str, defines: dict[str, int], own_loads: int) -> None:
    pairs = (*((key, str(value)) for key, value in defines.items()), ("FLAGS", "1000"), ("SUBGROUP_SIZE", "32"))
    code = compile_glsl(expand(name, pairs), name)
    opcodes = [opcode for opcode, *_ in memory_operands(code)]
    shared = {_LOAD: opcodes.count(_LOAD) - own_loads, _STORE: opcodes.count(_STORE) - 1}  # the report is the host's
    assert min(shared.values()) > 0
    assert private(code) == {_LOAD: own_loads, _STORE: 0}
    assert passing_caches(code) == shared


def test_what_resident_kernels_share_is_not_private(engine) -> None:
    if "persistent" not in engine.modes:
        pytest.skip(engine.refused_modes["persistent"])
    runtime = engine._runtime
    device = runtime._device
    group = group_invocations(device.subgroup_size, device.most_invocations)
    kernels = ResidentKernels(runtime._kernels, Resident(group, 1))
    builder = runtime._resources.resident_builder(kernels)
    settings = Settings("persistent", FUSION_PASSES, "needed")
    ops = builder.build(builder.bucket(0), settings, runtime._slot).ops
    code = compile_glsl(kernels.joined(ops, stamped=False).source(), "resident")
    assert private(code)[_STORE] == 0
