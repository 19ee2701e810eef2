"""What a model brings for turning text into ids and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.text.stops import stop_ids
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelText:
    """A model's tokenizer, template and stop ids; ``problem`` says why one of them cannot be used.

    A model without them, or with broken ones, still takes ids.
    """

    tokenizer: Tokenizer | None = None
    template: ChatTemplate | None = None
    stop_ids: frozenset[int] = frozenset()
    problem: EngineError | None = None


def open_text(path: Path, metadata: Mapping[str, Any], vocab: int) -> ModelText:
    """What the model at ``path``, whose embedding has ``vocab`` rows, has for text. ``metadata``: GGUF's keys."""
    folder = path if path.is_dir() else None
    try:
        tokenizer = Tokenizer.from_gguf(metadata)
    except EngineError as error:
        return ModelText(problem=error)
    if tokenizer is None:
        return ModelText()
    if tokenizer.vocab_size > vocab:
        size = tokenizer.vocab_size
        return ModelText(
            problem=EngineError(f"{path.name}: the tokenizer has {size} tokens, the embedding {vocab} rows")
        )
    stops = frozenset[int]()
    try:
        stops = stop_ids(tokenizer, metadata, folder)
        return ModelText(tokenizer, ChatTemplate.from_gguf(metadata, tokenizer), stops)
    except EngineError as error:
        return ModelText(tokenizer, None, stops, error)
