"""Memory is asked for only where there is enough, and the refusal says what would fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from engine import DeviceInfo, Engine, EngineError, host_memory
from engine.footprint import _SPARE_BYTES, Footprint
from engine.models import architecture, llama
from engine.room import SMALLEST_CONTEXT, free_bytes, require_room
from engine.weights.gguf import GGUFFile
from engine.weights.open_model import open_model
from tests.engine.hf_to_gguf import MODELS
from tests.engine.tiny_model import write_tiny_llama

GB = 10**9


def device(kind: str = "discrete", memory_bytes: int = 8 * GB) -> DeviceInfo:
    return DeviceInfo(index=0, name="Card", kind=kind, driver="", api_version="1.3.0", memory_bytes=memory_bytes)


def footprint(path: Path, row_kernels: bool = False) -> Footprint:
    with GGUFFile.open(path) as file:
        geometry = llama.geometry(path.name, file.metadata, file.tensors)
        specs = llama.tensors(geometry, file.tensors)
        return Footprint(llama, geometry, file.metadata, file.tensors, specs, row_kernels)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Footprint:
    """About 73 million parameters in float16; 64 kB of KV cache a token."""
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    write_tiny_llama(
        path, layers=8, hidden=1024, heads=8, kv_heads=8, ffn=1024, context=1 << 20, types=Type.F16, vocab=1000
    )
    return footprint(path)


@pytest.mark.parametrize("row_kernels", [None, False], ids=["", "gpu-kernels"])
@pytest.mark.parametrize("context", [64, 9000])
def test_the_footprint_is_what_an_engine_allocates(tmp_path: Path, row_kernels: bool | None, context: int) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", layers=3, hidden=512, heads=8, kv_heads=8, ffn=512, context=9000)
    with Engine.open(path, context=context, row_kernels=row_kernels) as engine:
        allocated_bytes = engine.device_bytes
        counted_bytes = footprint(path, engine._runtime._device.row_kernels).bytes_for(context)
    assert allocated_bytes <= counted_bytes <= allocated_bytes + _SPARE_BYTES


@pytest.mark.parametrize("row_kernels", [None, False], ids=["", "gpu-kernels"])
def test_recurrent_state_counts(row_kernels: bool | None) -> None:
    """A hybrid model: few of its layers have a KV cache, the others a state that no context changes."""
    path = MODELS / "qwen3_5"
    with Engine.open(path, context=64, row_kernels=row_kernels) as engine:
        allocated_bytes, of_rows = engine.device_bytes, engine._runtime._device.row_kernels
    with open_model(path) as source:
        model = architecture(path.name, source.metadata["general.architecture"])
        geometry = model.geometry(path.name, source.metadata, source.tensors)
        specs = model.tensors(geometry, source.tensors)
        counted, without = (
            Footprint(model, shape, source.metadata, source.tensors, specs, of_rows)
            for shape in (geometry, replace(geometry, delta=None))
        )
    assert geometry.recurrent_bytes > 0
    # The measurements' copy, and snapshots of eight prompts and a reply with their logits; the state itself, and where
    # it is marked, may find room in the blocks that there are without them.
    wanted_bytes = (1 + 9) * geometry.recurrent_bytes + 9 * 4 * geometry.vocab
    more_bytes = counted.bytes_for(64) - without.bytes_for(64)
    assert wanted_bytes <= more_bytes <= wanted_bytes + 2 * geometry.recurrent_bytes + (1 << 16)
    counted_bytes = counted.bytes_for(64)
    assert allocated_bytes <= counted_bytes <= allocated_bytes + _SPARE_BYTES + geometry.recurrent_bytes


def test_the_footprint_of_the_weights(model: Footprint) -> None:
    assert model.parameters == 8 * (6 * 1024 * 1024 + 1024 * 1024 + 2 * 1024) + 1000 * 1024 + 1024
    assert 2 * model.parameters <= model.weight_bytes <= 2 * model.parameters + (64 << 20)


def test_the_last_byte_counts(model: Footprint) -> None:
    needed = model.bytes_for(20_000)
    require_room(model, device(), needed, 20_000)
    with pytest.raises(EngineError, match="out of memory"):
        require_room(model, device(), needed - 1, 20_000)


def test_a_context_that_is_too_large_names_the_largest(model: Footprint) -> None:
    have = model.bytes_for(10_000)
    with pytest.raises(EngineError) as caught:
        require_room(model, device(), have, 100_000)
    message = str(caught.value)
    match = re.fullmatch(
        r"out of memory: Card has \d\.\d GB free, and the weights take 0\.1 GB and a context of 100,000 tokens "
        r"\d\.\d GB more: take --context (\d+) or less",
        message,
    )
    assert match, message
    advised = int(match[1])
    assert advised > 10_000 - 64 and model.bytes_for(advised) <= have < model.bytes_for(advised + 2048)
    require_room(model, device(), have, advised)


@pytest.mark.parametrize(
    ("bytes_a_weight", "can_quantise", "expected"),
    [
        (1.2, False, r"take its Q8_0 version \(about \d+ MB\)"),
        (0.62, False, r"take its Q4_K_M version \(about \d+ MB\)"),
        (0.41, False, r"take its Q2_K version"),
        (0.1, False, r"no quantisation of it fits \(Q2_K is about \d+ MB\): take a smaller model or another --device"),
        (1.2, True, r"take --quantize q8_0 \(about \d+ MB\)"),
        (0.62, True, r"take --quantize q4_0"),
        (0.41, True, r"no quantisation of it fits \(q4_0-all is about"),
    ],
)
def test_weights_that_are_too_large_name_the_quantisation_that_fits(
    model: Footprint, bytes_a_weight: float, can_quantise: bool, expected: str
) -> None:
    rest = model.bytes_for(SMALLEST_CONTEXT) - model.weight_bytes
    have = rest + int(bytes_a_weight * model.parameters)
    with pytest.raises(EngineError, match=expected) as caught:
        require_room(model, device(), have, 2048, can_quantise)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "heap", "budget", "free", "expected"),
    [
        ("discrete", 8, None, 0, 8),
        ("discrete", 8, 5, 0, 5),
        ("integrated", 2, None, 6, 6),
        ("integrated", 8, None, 6, 8),
        ("integrated", 2, 5, 6, 5),
        ("cpu", 2, 1, 6, 6),
    ],
)
def test_what_is_free(
    kind: str, heap: int, budget: int | None, free: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_memory, "available_bytes", lambda: free)
    assert free_bytes(device(kind, heap), budget) == expected


def test_an_engine_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_llama(tmp_path / "model.gguf", context=2**24, layers=16, hidden=1024, heads=4, kv_heads=4, ffn=32)
    with pytest.raises(
        EngineError, match=r"a context of 16,777,216 tokens 1,\d\d\d\.\d GB more: take --context \d+ or"
    ):
        Engine.open(path, context=2**24)
    monkeypatch.setattr("engine.engine.free_bytes", lambda info, budget_bytes: 10_000_000)
    with pytest.raises(EngineError, match="no quantisation of it fits"):
        Engine.open(path, context=256)
