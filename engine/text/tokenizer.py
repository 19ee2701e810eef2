"""Byte-level BPE tokenizers, built from a GGUF file's metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers.models import BPE

from engine.errors import EngineError
from engine.text.pretokenizers import PRE_TOKENIZERS, PreTokenizerSpec

# Token types of tokenizer.ggml.token_type (gguf.TokenType).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5


def _byte_of_char() -> dict[str, int]:
    """GPT-2's byte-to-character table, inverted: printable bytes stand for themselves, others for U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


BYTE_OF_CHAR = _byte_of_char()


class Tokenizer:
    """Text to token ids and back. Immutable, so any thread may use it."""

    def __init__(
        self,
        tokens: Sequence[str],
        types: Sequence[int],
        merges: Sequence[tuple[str, str]],
        spec: PreTokenizerSpec,
        *,
        bos_id: int | None,
        eos_id: int | None,
        add_bos: bool,
    ) -> None:
        """Raise EngineError if a merge names a token that the vocabulary lacks."""
        self._tokens = tokens
        self._types = types
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.add_bos = add_bos and bos_id is not None
        # Reversed, so that of two equal spellings the lower id stays.
        id_of = {token: index for index, token in reversed(tuple(enumerate(tokens)))}
        # A single character cannot be told from text by ChatTemplate's marks, so it is never a control token.
        self._control = {token: id for token, id in id_of.items() if types[id] == CONTROL and len(token) > 1}
        user_defined = {token: id for token, id in id_of.items() if types[id] == USER_DEFINED and token}
        # With ignore_merges a word that spells a control token would become it.
        vocabulary = {token: id for token, id in id_of.items() if types[id] != CONTROL}
        try:
            model = BPE(vocabulary, list(merges), ignore_merges=spec.ignore_merges)
        except Exception as error:  # the library raises plain Exception
            raise EngineError(f"the model's tokenizer is damaged: {_one_line(error)}") from error
        self._bpe = tokenizers.Tokenizer(model)
        self._bpe.pre_tokenizer = spec.build()
        self._added = user_defined | self._control
        self.control_pattern = _any_of(self._control)
        self._user_pattern = _any_of(user_defined)
        self._added_pattern = _any_of(self._added)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer | None:
        """The tokenizer that the metadata describes, or None if it describes none (a synthetic model).

        Raise EngineError where it is of another kind, incomplete or damaged.
        """
        kind = metadata.get("tokenizer.ggml.model")
        if kind is None or kind in ("none", "no_vocab"):
            return None
        if kind != "gpt2":
            raise EngineError(f"the model's tokenizer is of kind {kind!r}; only byte-level BPE ('gpt2') is supported")
        pre = metadata.get("tokenizer.ggml.pre")
        spec = PRE_TOKENIZERS.get(pre) if isinstance(pre, str) else None
        if spec is None:
            stated = "the model names no pre-tokenizer" if pre is None else f"the model's pre-tokenizer is {pre!r}"
            raise EngineError(f"{stated}; supported are {', '.join(PRE_TOKENIZERS)}")
        tokens = _strings(metadata, "tokens")
        if not tokens:
            raise EngineError("the model's tokenizer has no tokens")
        types = metadata.get("tokenizer.ggml.token_type")
        if types is None:
            types = np.full(len(tokens), NORMAL)
        if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu":
            raise EngineError("the model's tokenizer.ggml.token_type is not a list of numbers")
        if len(types) != len(tokens):
            raise EngineError(f"the model's tokenizer has {len(tokens)} tokens but {len(types)} token types")
        merges = []
        for merge in _strings(metadata, "merges"):
            left, _, right = merge.partition(" ")
            if not left or not right:
                raise EngineError(f"the model's tokenizer is damaged: merge {merge!r} is not two tokens")
            merges.append((left, right))
        return cls(
            tokens,
            types.tolist(),
            merges,
            spec,
            bos_id=_id(metadata, "bos", len(tokens)),
            eos_id=_id(metadata, "eos", len(tokens)),
            add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", spec.add_bos)),
        )

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._tokens)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of ``text``; no BOS is added.

        ``special``: spellings of control tokens become their ids. Without it, "<|im_end|>" is text like any other.
        A byte that the vocabulary has no token for is dropped, as the model's own tokenizer does.
        """
        try:
            text.encode()
        except UnicodeEncodeError:  # lone surrogates, from a terminal or file that was not UTF-8
            text = text.encode("utf-8", "replace").decode()
        pattern = self._added_pattern if special else self._user_pattern
        if pattern is None:
            return self._encode_plain(text)
        ids: list[int] = []
        position = 0
        for match in pattern.finditer(text):
            ids += self._encode_plain(text[position : match.start()])
            ids.append(self._added[match.group()])
            position = match.end()
        return ids + self._encode_plain(text[position:])

    def _encode_plain(self, text: str) -> list[int]:
        return self._bpe.encode(text, add_special_tokens=False).ids if text else []

    def control_id(self, token: str) -> int | None:
        """The id of the control token spelled ``token``."""
        return self._control.get(token)

    def token_text(self, id: int) -> str:
        """The vocabulary's own spelling of a token: byte-level characters for a normal one."""
        if not 0 <= id < len(self._tokens):
            raise EngineError(f"token id {id} is outside the vocabulary of {len(self._tokens)}")
        return self._tokens[id]

    def token_bytes(self, id: int) -> bytes:
        """The bytes a token stands for; a control token stands for its spelling, an unused one for nothing."""
        token = self.token_text(id)
        kind = self._types[id]
        if kind == UNUSED:
            return b""
        if kind == NORMAL:
            try:
                return bytes([BYTE_OF_CHAR[char] for char in token])
            except KeyError:  # not written in byte-level characters: it stands for itself
                pass
        return token.encode()

    def is_special(self, id: int) -> bool:
        """Whether the token stands for no text of a reply (control, unknown or unused)."""
        self.token_text(id)
        return self._types[id] in (CONTROL, UNKNOWN, UNUSED)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``, control tokens spelled out, bytes that are not UTF-8 replaced by U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")


def _any_of(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern that finds the longest of ``tokens`` at the leftmost place."""
    longest_first = sorted(tokens, key=lambda token: (-len(token), token))
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    values = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise EngineError(f"the model's tokenizer.ggml.{name} is missing or not a list of strings")
    return values


def _id(metadata: Mapping[str, Any], name: str, vocab_size: int) -> int | None:
    """A special token's id, if the file states one."""
    key = f"tokenizer.ggml.{name}_token_id"
    id = metadata.get(key)
    if id is None:
        return None
    if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < vocab_size:
        raise EngineError(f"the model's {key} is {id!r}, outside its vocabulary of {vocab_size}")
    return id
