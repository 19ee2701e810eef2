"""The tiny tokenizer of tiny_model, and SmolLM2's where the model is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.text.tokenizer import Tokenizer
from engine.weights.gguf import GGUFFile
from tests.engine.text.tokenizer_files import VOCABULARY
from tests.engine.tiny_model import CHATML, tiny_vocabulary


def tiny_metadata(pre: str = "smollm", **changes: Any) -> dict[str, Any]:
    """The tokenizer entries of a tiny model's metadata; a change to None removes one."""
    tokens, types, merges = tiny_vocabulary(320)
    entries: dict[str, Any] = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": np.array(types, np.int32),
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | changes
    metadata = {f"tokenizer.ggml.{name}": value for name, value in entries.items() if value is not None}
    return metadata | {"tokenizer.chat_template": CHATML}


def sentencepiece_metadata(space_prefix: bool = True, **changes: Any) -> dict[str, Any]:
    """The tokenizer entries of a Llama 2 or Gemma file, with the vocabulary of tests/data/tokenizers; as above."""
    content = json.loads(VOCABULARY.read_text())
    entries: dict[str, Any] = {
        "model": "llama",
        "tokens": content["tokens"],
        "scores": np.array(content["scores"], np.float32),
        "token_type": np.array(content["types"], np.int32),
        "add_space_prefix": space_prefix,
    } | changes
    return {f"tokenizer.ggml.{name}": value for name, value in entries.items() if value is not None}


@pytest.fixture(scope="session")
def tiny() -> Tokenizer:
    tokenizer = Tokenizer.from_gguf(tiny_metadata())
    assert tokenizer is not None
    return tokenizer


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_path: Path) -> dict[str, Any]:
    with GGUFFile.open(smollm2_path) as file:
        return file.metadata


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: dict[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer.from_gguf(smollm2_metadata)
    assert tokenizer is not None
    return tokenizer


def tokenizer_with(*added: tuple[str, int], **changes: Any) -> Tokenizer:
    """The tiny tokenizer with more tokens behind its 320: (spelling, token type) each."""
    metadata = tiny_metadata(**changes)
    metadata["tokenizer.ggml.tokens"] += [token for token, _ in added]
    types = metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.token_type"] = np.append(types, [kind for _, kind in added]).astype(np.int32)
    tokenizer = Tokenizer.from_gguf(metadata)
    assert tokenizer is not None
    return tokenizer
