"""The reference forward pass and the tiny models are themselves held against something."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from engine.weights.gguf import GGUFFile
from tests.engine import llama_reference
from tests.engine.tiny_model import write_tiny_llama

DATA = Path(__file__).parent.parent / "data"


def test_agrees_with_the_recorded_logits_of_smollm2(smollm2_path: Path) -> None:
    """They were checked against transformers; float32 there, float64 here."""
    prompt = json.loads((DATA / "ref_smollm2.json").read_text())["prompts"][2]
    logits = llama_reference.logits(smollm2_path, prompt["ids"])[-1]
    np.testing.assert_allclose(logits, np.load(DATA / "ref_smollm2.npz")["logits2"], atol=2e-4)


@pytest.mark.parametrize(
    "tensor_type", [Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0]
)
def test_tiny_models_of_32_element_blocks(tmp_path: Path, tensor_type: Type) -> None:
    check_tiny(tmp_path, {"types": tensor_type})


@pytest.mark.parametrize("tensor_type", [Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_XS])
def test_tiny_models_of_256_element_blocks(tmp_path: Path, tensor_type: Type) -> None:
    check_tiny(tmp_path, {"types": tensor_type, "hidden": 256, "ffn": 256, "layers": 1, "tied": False})


def check_tiny(tmp_path: Path, options: dict[str, object]) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", **options)  # type: ignore[arg-type]
    with GGUFFile.open(path) as file:
        assert file.tensors["blk.0.attn_q.weight"].type is options["types"]
    ids = [5, 70, 200, 5, 5, 261]
    logits = llama_reference.logits(path, ids)
    assert logits.shape == (6, 320)
    assert 1 < logits.std() < 10
    # Causal: what comes later changes nothing before it; and the place of a token matters.
    np.testing.assert_allclose(llama_reference.logits(path, ids[:3]), logits[:3], atol=1e-9)
    assert np.abs(logits[3] - logits[4]).max() > 0.01


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    first = write_tiny_llama(tmp_path / "a.gguf", seed=3).read_bytes()
    assert write_tiny_llama(tmp_path / "b.gguf", seed=3).read_bytes() == first
    assert write_tiny_llama(tmp_path / "c.gguf", seed=4).read_bytes() != first
