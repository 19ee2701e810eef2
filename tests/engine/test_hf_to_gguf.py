"""The tests' own converter: the reference's logits are transformers', and Qwen3.5's names are llama.cpp's."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.engine import llama_reference
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf, reference

SHARED = Path(__file__).parents[3] / "shared" / "reference"


@pytest.mark.parametrize("name", ["llama", "llama3", "mistral", "qwen2", "qwen3", "gemma3", "smollm3"])
def test_the_references_logits_are_the_folders(tmp_path: Path, name: str) -> None:
    path = hf_to_gguf(MODELS / name, tmp_path / "tiny.gguf")
    ids, expected = reference(MODELS / name)
    np.testing.assert_allclose(llama_reference.logits(path, ids), expected, atol=2e-4)


def test_qwen35_is_named_as_in_a_file_that_llama_cpp_loads(tmp_path: Path) -> None:
    given = SHARED / "qwen35_tiny_random_f32.gguf"
    if not given.is_file():
        pytest.skip(f"{given} is not there: 11 MB, kept outside the repository")
    made, expected = described(hf_to_gguf(MODELS / "qwen3_5", tmp_path / "tiny.gguf")), described(given)
    assert made - expected == {"general.name"}
    without_tokenizer = {key for key in expected - made if not key.startswith("tokenizer.ggml.")}
    assert without_tokenizer == {"output.weight 2"}, "the committed one is tied"


def described(path: Path) -> set[str]:
    """Metadata keys, and tensors' names and numbers of dimensions."""
    reader = gguf.GGUFReader(path)
    keys = {key for key in reader.fields if not key.startswith("GGUF.")}
    return keys | {f"{re.sub(r'blk.[0-9]+', 'blk.#', item.name)} {len(item.shape)}" for item in reader.tensors}
