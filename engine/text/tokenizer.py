"""Text to token ids and back, for every kind of tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.text.byte_level import BYTE_OF_CHAR
from engine.text.definition import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Definition,
    SpacePrefix,
    Spelling,
    ids_by_token,
)
from engine.text.folder_tokenizer import read_folder
from engine.text.gguf_tokenizer import read_gguf
from engine.text.spellings import any_of

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """Text to token ids and back. Immutable, so any thread may use it."""

    def __init__(self, definition: Definition, vocab: int | None = None) -> None:
        """``vocab``: how many ids the model has. Those beyond the tokenizer's own, of padding, are unused tokens; of
        the tokenizer's, control tokens beyond them are left out, such as that of images in a text-only Gemma 3.
        """
        count = len(definition.tokens)
        vocab = count if vocab is None else vocab
        while count > vocab and definition.types[count - 1] in (CONTROL, UNUSED):
            count -= 1
        padding = max(0, vocab - count)
        self._tokens = [*definition.tokens[:count], *[""] * padding]
        self._types = [*definition.types[:count], *[UNUSED] * padding]
        self._spelling = definition.spelling
        self._encoder = definition.encoder
        self._id_of = ids_by_token(self._tokens)
        self.bos_id, self.eos_id = (
            id if id is not None and id < count else None for id in (definition.bos_id, definition.eos_id)
        )
        self.add_bos = definition.add_bos and self.bos_id is not None
        self._space_prefix = definition.space_prefix
        # A single character cannot be told from text by ChatTemplate's marks, so it is never a control token.
        self._control = {
            token: id for token, id in self._id_of.items() if self._types[id] == CONTROL and len(token) > 1
        }
        self._added = {**definition.user_defined, **self._control}
        self.control_pattern = any_of(self._control)
        self._user_pattern = any_of(definition.user_defined)
        self._added_pattern = any_of(self._added)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], vocab: int | None = None) -> Tokenizer | None:
        """The tokenizer that a GGUF file's metadata describes, or None if it describes none (a synthetic model).

        Raise EngineError where it is of an unknown kind, incomplete or damaged.
        """
        definition = read_gguf(metadata)
        return None if definition is None else cls(definition, vocab)

    @classmethod
    def from_folder(cls, folder: Path, vocab: int | None = None) -> Tokenizer:
        """The tokenizer of a Hugging Face folder: tokenizer.json, and tokenizer_config.json where there is one.

        Raise EngineError where it is missing, of an unknown kind or damaged.
        """
        return cls(read_folder(folder), vocab)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._tokens)

    def encode(self, text: str, special: bool = False, first: bool = True) -> list[int]:
        """Token ids of ``text``; no BOS is added.

        ``special``: spellings of control tokens become their ids. Without it, "<|im_end|>" is text like any other.
        ``first``: the text is the prompt's beginning, where some SentencePiece models put a space.
        """
        try:
            text.encode()
        except UnicodeEncodeError:  # lone surrogates, from a terminal or file that was not UTF-8
            text = text.encode("utf-8", "replace").decode()
        ids: list[int] = []
        position = 0
        pattern = self._added_pattern if special else self._user_pattern
        for match in pattern.finditer(text) if pattern else ():
            ids += self._encode_plain(text[position : match.start()], first and position == 0)
            ids.append(self._added[match.group()])
            position = match.end()
        return ids + self._encode_plain(text[position:], first and position == 0)

    def _encode_plain(self, text: str, first: bool) -> list[int]:
        return self._encoder.encode(text, first) if text else []

    def control_id(self, token: str) -> int | None:
        """The id of the control token spelled ``token``."""
        return self._control.get(token)

    def token_id(self, token: str) -> int | None:
        """The id of the token that the vocabulary spells ``token``, whatever its type."""
        return self._id_of.get(token)

    def token_text(self, id: int) -> str:
        """The vocabulary's own spelling of a token: byte-level characters for a normal one, or U+2581 for a space."""
        if not 0 <= id < len(self._tokens):
            raise EngineError(f"token id {id} is outside the vocabulary of {len(self._tokens)}")
        return self._tokens[id]

    def token_bytes(self, id: int) -> bytes:
        """The bytes a token stands for; a control token stands for its spelling, an unused one for nothing."""
        token = self.token_text(id)
        kind = self._types[id]
        if kind == UNUSED:
            return b""
        if self._spelling is Spelling.SENTENCEPIECE:
            if kind == BYTE and (match := _BYTE_TOKEN.fullmatch(token)):
                return bytes.fromhex(match.group(1))
            return (token if kind == CONTROL else token.replace("\u2581", " ")).encode()
        if kind == NORMAL:
            try:
                return bytes([BYTE_OF_CHAR[char] for char in token])
            except KeyError:  # not written in byte-level characters: it stands for itself
                pass
        return token.encode()

    def piece(self, id: int, at_start: bool) -> bytes:
        """What a token adds to a text: its bytes, ``at_start`` without the space that the tokenizer puts there."""
        piece = self.token_bytes(id)
        strips = at_start and self._space_prefix is not SpacePrefix.NONE and self._types[id] in (NORMAL, BYTE)
        return piece.removeprefix(b" ") if strips else piece

    def starts_text(self, id: int) -> bool:
        """Whether what follows the token is ``at_start`` for ``piece``."""
        self.token_text(id)
        return self._space_prefix is SpacePrefix.EVERY and self._types[id] in (CONTROL, USER_DEFINED)

    def is_special(self, id: int) -> bool:
        """Whether the token stands for no text of a reply (control, unknown or unused)."""
        self.token_text(id)
        return self._types[id] in (CONTROL, UNKNOWN, UNUSED)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``, control tokens spelled out, bytes that are not UTF-8 replaced by U+FFFD."""
        text = bytearray()
        at_start = True
        for id in ids:
            text += self.piece(id, at_start)
            at_start = self.starts_text(id)
        return text.decode("utf-8", "replace")
