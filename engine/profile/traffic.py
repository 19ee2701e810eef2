"""The bytes that one token must read from memory, by part and by tensor."""

from __future__ import annotations

from collections.abc import Sequence

from engine.models.config import Geometry
from engine.program.nodes import Node
from engine.program.operands import Weight
from engine.vulkan.memory import Slice

_KV_BYTES = 2  # float16


def bytes_by_tensor(nodes: Sequence[Node]) -> dict[str, int]:
    """Bytes of each weight that a token reads, by tensor name: a matrix once, of an embedding table one row.

    ``nodes`` are the model's own, before fusion, which moves no weights. Matrices count as they lie on the device.
    """
    found: dict[str, int] = {}
    for node in nodes:
        for item in node.args:
            if isinstance(item, Weight):
                name, size = item.name, item.bytes // item.rows if node.kind == "embed" else item.bytes
            elif isinstance(item, Slice) and item.constant:
                name, size = node.name if node.kind == "bias" else f"{node.name}.weight", item.size
            else:
                continue
            found[name] = found.get(name, 0) + size
    return found


def token_bytes(nodes: Sequence[Node], geometry: Geometry, position: int) -> dict[str, int]:
    """Bytes that the token fed at ``position`` must read: "weights", "head", "kv", "state" and their "total".

    ``kv`` are the keys and values up to ``position`` that each layer sees, whatever the bucket; ``state`` is the
    recurrent states', 0 for a model without them: read and written back, both count. Activations are left out: they
    never leave the caches.
    """
    head = [node for node in nodes if node.kind == "head"]
    others = [node for node in nodes if node.kind != "head"]
    seen = [min(position + 1, window or position + 1) for window in geometry.windows_tokens]
    parts = {
        "weights": sum(bytes_by_tensor(others).values()),
        "head": sum(bytes_by_tensor(head).values()),
        "kv": sum(seen) * 2 * geometry.kv_size * _KV_BYTES,
        "state": geometry.recurrent_traffic_bytes,
    }
    return {**parts, "total": sum(parts.values())}


def floor_tok_s(probe_gb_s: float, total_bytes: int) -> float:
    """The streaming floor: tokens a second of an engine that does nothing but read, at the probe's bandwidth."""
    return probe_gb_s * 1e9 / total_bytes


def floor_fraction(probe_gb_s: float, total_bytes: int, token_us: float) -> float:
    """How much of the probe's bandwidth a token of ``token_us`` used: its bytes over its time, over the probe."""
    return total_bytes / (token_us * 1e-6) / (probe_gb_s * 1e9)
