"""What the compiler tells the driver of memory that kernels share while they wait for each other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine import FUSION_PASSES
from engine.decode.program import Settings
from engine.program.resident import ResidentKernels
from engine.program.tuning import group_invocations
from engine.vulkan.pipelines import Resident
from engine.vulkan.shaders import compile_glsl, expand
from tests.engine.spirv import (
    ACQUIRE_RELEASE,
    BUFFER,
    LOAD,
    MADE_AVAILABLE,
    MADE_VISIBLE,
    NON_PRIVATE,
    SHARED,
    STORE,
    SUBGROUP,
    WORKGROUP,
    accesses,
    control_barriers,
)


def private(code: bytes) -> Mapping[int, int]:
    """How many loads and stores do not count as seen by others."""
    found = {LOAD: 0, STORE: 0}
    for access in accesses(code):
        found[access.opcode] += not access.operands & NON_PRIVATE
    return found


def test_what_waiting_kernels_share_is_not_kept_in_caches() -> None:
    """Of a kernel by itself; tests/engine/waits.py asks it of all kernels of a token."""
    pairs = (("FLAGS", "1000"), ("LANES", "64"), ("SUBGROUP_SIZE", "32"))
    code = compile_glsl(expand("grid_check", pairs), "grid_check")
    found = [(access.opcode, access.block, access.reaches_device) for access in accesses(code)]
    shared, own = [(LOAD, "Before", True), (STORE, "After", True)], [(LOAD, "FlagControl"), (STORE, "FlagReport")]
    assert [item for item in found if item[:2] not in own] == shared
    assert private(code) == {LOAD: 1, STORE: 0}  # the report's address


def test_a_workgroup_meets_without_a_fence_only_where_barriers_order_memory() -> None:
    """Either way its loads and stores stay on their sides of the barrier."""
    pairs = (("FLAGS", "1000"), ("LANES", "64"), ("SUBGROUP_SIZE", "32"))
    ordered = ACQUIRE_RELEASE | BUFFER | SHARED
    for more, memory_scope, semantics in (
        ((), WORKGROUP, ordered | MADE_AVAILABLE | MADE_VISIBLE),
        ((("BARRIERS_ORDER_MEMORY", "1"),), SUBGROUP, ordered),
    ):
        code = compile_glsl(expand("grid_check", (*pairs, *more)), "grid_check")
        assert set(control_barriers(code)) == {(WORKGROUP, memory_scope, semantics)}


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
    assert private(code)[STORE] == 0
