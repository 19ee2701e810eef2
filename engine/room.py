"""Whether a model and its KV cache can fit, asked before anything is allocated.

A software device takes what it is asked for and lets the system kill the process when it is used.
"""

from __future__ import annotations

import psutil

from engine.errors import EngineError
from engine.models.config import Geometry
from engine.vulkan.instance import DeviceInfo


def require_room(device: DeviceInfo, geometry: Geometry, weight_bytes: int, context: int) -> None:
    """Raise EngineError if weights, KV cache and RoPE table for ``context`` tokens are more than the memory there is.

    What is free counts where the device shares the computer's memory; a discrete GPU's heap as a whole.
    """
    context_bytes = context * (geometry.kv_bytes_a_token + geometry.rotated * 4) + geometry.recurrent_bytes
    have_bytes = device.memory_bytes
    if device.is_software:
        have_bytes = psutil.virtual_memory().available
    elif device.kind == "integrated":
        have_bytes = max(have_bytes, psutil.virtual_memory().available)
    if weight_bytes + context_bytes > have_bytes:
        raise EngineError(
            f"out of memory: a context of {context:,} tokens takes {context_bytes / 1e9:,.1f} GB and the weights "
            f"{weight_bytes / 1e9:,.1f} GB, but {device.name} has {have_bytes / 1e9:,.1f} GB: "
            "take a smaller --context, a smaller model or another --device"
        )
