"""Memory is asked for only where there is enough."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engine import DeviceInfo, Engine, EngineError
from engine.models.config import Geometry
from engine.room import require_room
from tests.engine.tiny_model import write_tiny_llama

GEOMETRY = Geometry(
    layers=2, hidden=64, heads=4, kv_heads=2, head_size=16, rotated=16, rope_halves=False, ffn=96, vocab=320,
    eps=1e-5, trained_context=2048, windows_tokens=(0, 0), attention_scale=0.25,
)  # fmt: skip
TOKEN_BYTES = 2 * 2 * 32 * 2 + 16 * 4  # layers, K and V, elements, float16; and a row of the RoPE table


def device(kind: str, memory_bytes: int) -> DeviceInfo:
    return DeviceInfo(index=0, name="Card", kind=kind, driver="", api_version="1.3.0", memory_bytes=memory_bytes)


@pytest.mark.parametrize(
    ("kind", "heap_bytes", "free_bytes"),
    [("discrete", 1000 + 10 * TOKEN_BYTES, 0), ("cpu", 10**12, 1000 + 10 * TOKEN_BYTES),
     ("integrated", 0, 1000 + 10 * TOKEN_BYTES), ("integrated", 1000 + 10 * TOKEN_BYTES, 0)],
)  # fmt: skip
def test_the_last_byte_counts(kind: str, heap_bytes: int, free_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free_bytes))
    require_room(device(kind, heap_bytes), GEOMETRY, 1000, 10)
    with pytest.raises(EngineError, match=r"out of memory: a context of 10 tokens .* smaller --context"):
        require_room(device(kind, heap_bytes), GEOMETRY, 1001, 10)


def test_a_context_that_no_machine_holds_is_refused_at_once(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "model.gguf", context=2**24, layers=16, hidden=1024, heads=4, kv_heads=4, ffn=32)
    with pytest.raises(EngineError, match="out of memory: a context of 16,777,216 tokens takes 1,"):
        Engine.open(path, context=2**24)
