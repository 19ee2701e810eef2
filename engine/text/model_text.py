"""What a model brings for turning text into ids and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.text.stops import stop_ids
from engine.text.template import ChatTemplate
from engine.text.template_source import template_source
from engine.text.thinking import ThinkTags, find_tags
from engine.text.tokenizer import Tokenizer

TAKES = ("ids", "text", "messages")  # what a prompt is made of


@dataclass(frozen=True, slots=True)
class ModelText:
    """A model's tokenizer, template, stop ids and think tags; ``problem`` says why one of them cannot be used.

    A model without them, or with broken ones, still takes ids.
    """

    tokenizer: Tokenizer | None = None
    template: ChatTemplate | None = None
    stop_ids: frozenset[int] = frozenset()
    think_tags: ThinkTags | None = None
    problem: EngineError | None = None

    def need_tokenizer(self, name: str) -> Tokenizer:
        """The tokenizer. Raise EngineError where the model ``name`` has none that can be used."""
        if self.tokenizer is None:
            raise self.problem or EngineError(f"{name} has no tokenizer, so it takes ids but no text")
        return self.tokenizer

    def need_template(self, name: str) -> ChatTemplate:
        """The chat template. Raise EngineError where the model ``name`` has none that can be used."""
        self.need_tokenizer(name)
        if self.template is None:
            raise self.problem or EngineError(
                f"{name} has no chat template: use an instruct model, or zincchat run --raw"
            )
        return self.template

    def check(self, takes: str, name: str) -> None:
        """Raise EngineError where prompts of ``takes``, one of TAKES, cannot be made for the model ``name``."""
        if takes not in TAKES:
            raise EngineError(f"unknown kind of prompt {takes!r}; there is {', '.join(TAKES)}")
        if takes == "text":
            self.need_tokenizer(name)
        elif takes == "messages":
            self.need_template(name)


def open_text(path: Path, metadata: Mapping[str, Any], vocab: int) -> ModelText:
    """What the model at ``path``, whose embedding has ``vocab`` rows, has for text. ``metadata``: GGUF's keys."""
    folder = path if path.is_dir() else None
    try:
        tokenizer = Tokenizer.from_gguf(metadata, vocab) if folder is None else Tokenizer.from_folder(folder, vocab)
    except EngineError as error:
        return ModelText(problem=error)
    if tokenizer is None:
        return ModelText()
    if tokenizer.vocab_size > vocab:
        size = tokenizer.vocab_size
        return ModelText(
            problem=EngineError(f"{path.name}: the tokenizer has {size} tokens, the embedding {vocab} rows")
        )
    stops, tags = frozenset[int](), find_tags(tokenizer, None)
    try:
        stops = stop_ids(tokenizer, metadata, folder)
        source = template_source(metadata, folder)
        tags = find_tags(tokenizer, source)
        template = ChatTemplate(source, tokenizer, tags) if source is not None else None
    except EngineError as error:
        return ModelText(tokenizer, None, stops, tags, error)
    return ModelText(tokenizer, template, stops, tags)
