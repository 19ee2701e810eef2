"""Memory that is addresses only."""

from __future__ import annotations

from engine.vulkan.unbacked import UnbackedMemory


def test_slices_lie_apart_and_cost_nothing() -> None:
    memory = UnbackedMemory(None)  # type: ignore[arg-type] - it asks nothing of the device
    first, second = memory.allocate(5 << 30, constant=True), memory.allocate(1)
    assert second.address >= first.range[1]
    assert first.constant
    assert not second.constant
    assert memory.allocated_bytes == 0
