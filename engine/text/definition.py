"""What a file says of a tokenizer, whichever format it is in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

# Token types, numbered as in GGUF's tokenizer.ggml.token_type and SentencePiece's model files.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


class Spelling(Enum):
    """How the vocabulary writes a token's bytes: in GPT-2's characters, or as text with U+2581 for a space."""

    BYTE_LEVEL = auto()
    SENTENCEPIECE = auto()


class SpacePrefix(Enum):
    """Where the encoder puts a space, which decoding takes away: nowhere, before the prompt, or before every stretch
    of text, so also after each control or user-defined token."""

    NONE = auto()
    FIRST = auto()
    EVERY = auto()


class Encoder(Protocol):
    """Text that holds no control token, to ids."""

    def encode(self, text: str, first: bool) -> list[int]:
        """``first``: whether the text is the prompt's beginning."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A tokenizer's vocabulary, by id, and its encoder.

    ``user_defined``: tokens that the encoder leaves to be found in the text, by spelling.
    """

    tokens: Sequence[str]
    types: Sequence[int]
    spelling: Spelling
    encoder: Encoder
    user_defined: Mapping[str, int]
    space_prefix: SpacePrefix
    bos_id: int | None
    eos_id: int | None
    add_bos: bool


def ids_by_token(tokens: Sequence[str]) -> dict[str, int]:
    """Every spelling's id; of two equal spellings the lower, and none for an empty one."""
    id_of = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
    id_of.pop("", None)
    return id_of


def with_control(types: Iterable[int], ids: Iterable[int | None]) -> list[int]:
    """``types`` in which those of the user-defined tokens ``ids`` are control tokens.

    A token that a file names as the beginning or end of a turn would otherwise be taken from a message's text.
    """
    changed = list(types)
    for id in ids:
        if id is not None and changed[id] == USER_DEFINED:
            changed[id] = CONTROL
    return changed


def one_line(error: BaseException) -> str:
    """A library's error, for the end of a message."""
    return " ".join(str(error).split()) or type(error).__name__
