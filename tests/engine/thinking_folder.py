"""Tiny Hugging Face folders made into thinking models: with a tokenizer, a template and end tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.engine.hf_to_gguf import MODELS
from tests.engine.text.tokenizer_files import added_token, byte_level_json
from tests.engine.tiny_model import THINK_TAGS, THINKING


def thinking_folder(name: str, folder: Path) -> Path:
    """A copy of tests/data/models/NAME with tags among its added tokens, the template in a file of its own, and end
    tokens in two configs.
    """
    shutil.copytree(MODELS / name, folder)
    tokenizer = byte_level_json()
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    for id, tag in zip((318, 319), THINK_TAGS, strict=True):
        del vocabulary[next(token for token, other in vocabulary.items() if other == id)]
        tokenizer["added_tokens"].append(added_token(id, tag, special=False))
    del tokenizer["model"]["merges"][-2:]
    for file, value in (
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", {"eos_token": {"content": "<|im_end|>"}}),
        ("generation_config.json", {"eos_token_id": [2, 70]}),
    ):
        (folder / file).write_text(json.dumps(value))
    (folder / "chat_template.jinja").write_text(THINKING)
    return folder
