"""What a header may say, and what is refused: with one line that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import EngineError
from engine.models import architecture
from engine.models.config import Geometry
from engine.weights.gguf import GGUFFile
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf


def geometry(tmp_path: Path, name: str, changes: dict[str, Any], more_tensors: tuple[str, ...] = ()) -> Geometry:
    """Of a tiny model whose header is changed: keys without the architecture; None takes one out."""
    with GGUFFile.open(hf_to_gguf(MODELS / name, tmp_path / "tiny.gguf")) as file:
        kind = file.metadata["general.architecture"]
        values = {**file.metadata, **{f"{kind}.{key}": value for key, value in changes.items()}}
        values = {key: value for key, value in values.items() if value is not None}
        tensors = {**file.tensors, **dict.fromkeys(more_tensors, file.tensors["blk.0.attn_norm.weight"])}
        return architecture("tiny.gguf", kind).geometry("tiny.gguf", values, tensors)


@pytest.mark.parametrize(("changes", "local"), [
    ({}, [1, 1, 1, 1, 1, 0, 1]),
    ({"attention.sliding_window_pattern": 3}, [1, 1, 0, 1, 1, 0, 1]),
    ({"attention.sliding_window_pattern": [False, True] * 3 + [True]}, [0, 1, 0, 1, 0, 1, 1]),
    ({"attention.sliding_window_pattern": np.array([True] * 7)}, [1] * 7),
])  # fmt: skip
def test_gemma_s_local_layers(tmp_path: Path, changes: dict[str, Any], local: list[int]) -> None:
    assert geometry(tmp_path, "gemma3", changes).windows_tokens == tuple(12 * item for item in local)


def test_gemma_s_attention_scale(tmp_path: Path) -> None:
    def scale(**changes: Any) -> float:
        return geometry(tmp_path, "gemma3", {"attention.scale": None, **changes}).attention_scale

    assert scale() == 32**-0.5  # by the head size
    assert scale(block_count=62) == 16**-0.5  # the 27B's: by hidden / heads
    assert geometry(tmp_path, "gemma3", {}).attention_scale == pytest.approx(20**-0.5)  # as stated


def test_mistral_s_window(tmp_path: Path) -> None:
    assert geometry(tmp_path, "mistral", {}).windows_tokens == (13, 13)
    assert geometry(tmp_path, "mistral", {"attention.sliding_window": None}).windows_tokens == (0, 0)


def test_qwen_s_draft_layers_are_none_of_the_model_s(tmp_path: Path) -> None:
    changes = {"block_count": 5, "nextn_predict_layers": 1}
    found = geometry(tmp_path, "qwen3_5", changes, ("blk.4.nextn.eh_proj.weight", "blk.4.attn_norm.weight"))
    assert found.layers == 4 and found.attention_layers == 1
    assert found.delta is not None and found.delta.layers == 3


@pytest.mark.parametrize(("name", "changes", "problem"), [
    ("llama", {"rope.scaling.type": "yarn"}, "RoPE scaling 'yarn' is not supported; there is linear and Llama 3's"),
    ("llama", {"rope.scaling.type": np.array([1, 2])}, "RoPE scaling '[1 2]' is not supported"),
    ("llama", {"attention.value_length": 24}, "keys and values of different sizes are not supported"),
    ("llama", {"attention.head_count_kv": 3}, "4 heads, 3 KV heads, head size 16 (16 rotated) do not fit"),
    ("llama", {"attention.sliding_window": -1}, "llama.attention.sliding_window is -1; expected 0 to"),
    ("qwen2", {"attention.sliding_window": 64}, "a sliding window in a qwen2 model is not supported"),
    ("qwen3", {"attention.sliding_window": 64}, "a sliding window in a qwen3 model is not supported"),
    ("smollm3", {"attention.sliding_window": 64}, "a sliding window in a smollm3 model is not supported"),
    ("gemma3", {"attention.sliding_window": None}, "the header lacks gemma3.attention.sliding_window"),
    ("gemma3", {"attention.sliding_window_pattern": [True] * 6}, "is of 6 layers, the model has 7"),
    ("gemma3", {"final_logit_softcapping": 30.0}, "gemma3.final_logit_softcapping is set, which is not supported"),
])  # fmt: skip
def test_headers_that_are_refused(tmp_path: Path, name: str, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(EngineError) as caught:
        geometry(tmp_path, name, changes)
    assert str(caught.value).startswith("tiny.gguf: ") and problem in str(caught.value)


@pytest.mark.parametrize(("name", "tensor"), [
    ("llama", "blk.0.attn_q.bias"), ("llama", "blk.1.ffn_gate_inp.weight"), ("qwen2", "blk.2.attn_output.bias"),
    ("qwen3", "blk.0.attn_q.bias"), ("gemma3", "output.bias"), ("smollm3", "rope_freqs.weight"),
])  # fmt: skip
def test_a_tensor_that_the_model_has_no_place_for(tmp_path: Path, name: str, tensor: str) -> None:
    with pytest.raises(EngineError, match=rf"this {name} variant has {tensor}, which is not supported yet"):
        geometry(tmp_path, name, {}, (tensor,))


def test_a_vision_tower_in_the_same_file_is_passed_over(tmp_path: Path) -> None:
    vision = ("v.blk.0.attn_q.weight", "mm.mm_input_projection.weight")
    assert geometry(tmp_path, "gemma3", {}, vision) == geometry(tmp_path, "gemma3", {})


def test_linear_rope_scaling(tmp_path: Path) -> None:
    """Every kind of key that states it, and none where it is switched off."""
    with GGUFFile.open(hf_to_gguf(MODELS / "qwen2", tmp_path / "tiny.gguf")) as file:
        model, values = architecture("tiny.gguf", "qwen2"), dict(file.metadata)
        g = model.geometry("tiny.gguf", values, file.tensors)
    plain = model.rope_frequencies(g, values, {})[0]
    np.testing.assert_allclose(plain, 1e6 ** (-np.arange(0, 16, 2) / 16), rtol=1e-6)
    for keys in ({"type": "linear", "factor": 4.0}, {"factor": 4.0}):
        scaled = values | {f"qwen2.rope.scaling.{key}": value for key, value in keys.items()}
        np.testing.assert_allclose(model.rope_frequencies(g, scaled, {})[0], plain / 4)
    older = values | {"qwen2.rope.scale_linear": 4.0}
    np.testing.assert_allclose(model.rope_frequencies(g, older, {})[0], plain / 4)
    off = values | {"qwen2.rope.scaling.type": "none", "qwen2.rope.scaling.factor": 4.0}
    np.testing.assert_array_equal(model.rope_frequencies(g, off, {})[0], plain)
