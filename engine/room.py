"""Whether a model fits into the memory there is, asked before anything is allocated.

A software device takes what it is asked for and lets the system kill the process when it is used.
"""

from __future__ import annotations

from engine import host_memory
from engine.errors import EngineError
from engine.footprint import Footprint
from engine.vulkan.instance import DeviceInfo

SMALLEST_CONTEXT = 256  # tokens; what is too small for a short chat is no advice
_STEP = 64  # an advised context is a multiple of so many tokens

# Bits a weight of whole models, as llama.cpp's quantize names and states them for Llama 3.1 8B.
_GGUF_BITS = (("Q8_0", 8.50), ("Q6_K", 6.56), ("Q5_K_M", 5.70), ("Q4_K_M", 4.89), ("Q3_K_M", 4.01), ("Q2_K", 3.16))
# What a folder of safetensors can be quantised to while it is loaded: bits of a layer's weights, of the others.
_LOAD_BITS = (("q8_0", 8.5, 8.5), ("q5_0", 5.5, 8.5), ("q4_0", 4.5, 8.5), ("q4_0-all", 4.5, 4.5))


def free_bytes(device: DeviceInfo, budget_bytes: int | None) -> int:
    """What may be allocated on ``device``: by the driver's own account where it gives one, else its largest heap.

    Where the device shares the computer's memory, what is free there counts.
    """
    if device.is_software:
        return host_memory.available_bytes()
    if budget_bytes is not None:
        return budget_bytes
    if device.kind == "integrated":
        return max(device.memory_bytes, host_memory.available_bytes())
    return device.memory_bytes


def require_room(
    footprint: Footprint, device: DeviceInfo, have_bytes: int, context: int, can_quantise: bool = False
) -> None:
    """Raise EngineError if the model does not fit into ``have_bytes``, saying the context or quantisation that would.

    ``can_quantise``: the weights can be quantised when loaded.
    """
    needed_bytes = footprint.bytes_for(context)
    if needed_bytes <= have_bytes:
        return
    where = f"{device.name} has {_size(have_bytes)} free"
    largest = footprint.largest_context(have_bytes, context - 1)
    if largest >= SMALLEST_CONTEXT:
        raise EngineError(
            f"out of memory: {where}, and the weights take {_size(footprint.weight_bytes)} and a context of "
            f"{context:,} tokens {_size(needed_bytes - footprint.weight_bytes)} more: "
            f"take --context {largest // _STEP * _STEP} or less"
        )
    raise EngineError(
        f"out of memory: {where}, and the weights take {_size(footprint.weight_bytes)} with "
        f"{_size(needed_bytes - footprint.weight_bytes)} for a context of {context:,} tokens: "
        f"{_smaller(footprint, have_bytes, min(context, SMALLEST_CONTEXT), can_quantise)}"
    )


def _smaller(footprint: Footprint, have_bytes: int, context: int, can_quantise: bool) -> str:
    """The quantisation that would fit with ``context`` tokens, or that none does."""
    left_bytes = have_bytes - (footprint.bytes_for(context) - footprint.weight_bytes)
    layers, others = footprint.layer_parameters, footprint.parameters - footprint.layer_parameters
    bits = _LOAD_BITS if can_quantise else [(name, each, each) for name, each in _GGUF_BITS]
    sizes = [(name, int(layers * inside + others * outside) // 8) for name, inside, outside in bits]
    for name, size in sizes:
        if size <= left_bytes and size < footprint.weight_bytes:
            taken = f"--quantize {name}" if can_quantise else f"its {name} version"
            return f"take {taken} (about {_size(size)})"
    name, size = sizes[-1]
    return f"no quantisation of it fits ({name} is about {_size(size)}): take a smaller model or another --device"


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 100e6 else f"{count / 1e6:,.0f} MB"
