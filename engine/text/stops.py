"""The ids that end a reply, from every place in which models state them.

Files often name one of several: an instruct model's ``eos_token`` is that of its base, while its turns end with
another token that only ``generation_config.json``, or only its spelling, tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import EngineError
from engine.text.json_file import read_json_object
from engine.text.tokenizer import Tokenizer

# Control tokens of these spellings end a turn whatever the files say (llama.cpp has the same list in llama-vocab.cpp).
END_OF_TURN = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<|end_of_turn|>",
    "<end_of_turn>", "<end_of_utterance>", "<|return|>", "<|call|>", "</s>", "<eos>", "<EOT>", "[EOS]", "[EOT]",
)  # fmt: skip

_METADATA_KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))


def stop_ids(tokenizer: Tokenizer, metadata: Mapping[str, Any], folder: Path | None = None) -> frozenset[int]:
    """Every id that ends a reply.

    ``metadata``: GGUF's keys. ``folder``: the model's, where it is a Hugging Face one: generation_config.json and
    config.json state ids, tokenizer_config.json a spelling. Raise EngineError where one of them is no token.
    """
    ids = {id for token in END_OF_TURN if (id := tokenizer.control_id(token)) is not None}
    if tokenizer.eos_id is not None:
        ids.add(tokenizer.eos_id)
    stated = [(key, metadata.get(key)) for key in _METADATA_KEYS]
    if folder is not None:
        for name in ("generation_config.json", "config.json"):
            config = read_json_object(folder / name) or {}
            parts = (config, config.get("text_config"))  # with a vision tower beside it
            stated += [
                (f"eos_token_id in {name}", part.get("eos_token_id")) for part in parts if isinstance(part, dict)
            ]
        ids.update(_eos_token(tokenizer, read_json_object(folder / "tokenizer_config.json") or {}))
    for where, value in stated:
        ids.update(_ids(where, value, tokenizer.vocab_size))
    return frozenset(ids)


def _ids(where: str, value: Any, vocab_size: int) -> Iterator[int]:
    """The ids of an entry: one, a list or none."""
    if value is None:
        return
    for id in value if isinstance(value, list | np.ndarray) else [value]:
        if isinstance(id, bool) or not isinstance(id, int | np.integer) or not 0 <= id < vocab_size:
            raise EngineError(f"the model's {where} is {value!r}, outside its vocabulary of {vocab_size}")
        yield int(id)


def _eos_token(tokenizer: Tokenizer, config: Mapping[str, Any]) -> Iterator[int]:
    token = config.get("eos_token")
    if isinstance(token, dict):  # an AddedToken
        token = token.get("content")
    if token is None:
        return
    id = tokenizer.token_id(token) if isinstance(token, str) else None
    if id is None:
        raise EngineError(f"the model's eos_token in tokenizer_config.json is {token!r}, which is no token of it")
    yield id
