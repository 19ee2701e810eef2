"""What recording a token's commands would cost in C, so that nobody reads Python's overhead as Vulkan's."""

from __future__ import annotations

# Bind, push constants, dispatch and barrier from C on RADV for gfx1201 (Mesa 26, compile-and-record only): 480 of them
# in 0.10 ms, measured for this project. Other drivers differ; it is an estimate and is to be shown as one.
NATIVE_DISPATCH_US = 0.2


def native_record_us(dispatches: int) -> float:
    """Estimated CPU time to record a token of ``dispatches`` from C, us: to stand beside the measured ``record_us``."""
    return dispatches * NATIVE_DISPATCH_US
