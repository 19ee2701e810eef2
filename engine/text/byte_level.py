"""Byte-level BPE: every byte is a character of its own, so no text is unknown (Radford et al. 2019, GPT-2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers.models import BPE

from engine.errors import EngineError
from engine.text.definition import one_line
from engine.text.pretokenizers import PreTokenizerSpec


def _byte_of_char() -> dict[str, int]:
    """GPT-2's byte-to-character table, inverted: printable bytes stand for themselves, others for U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


BYTE_OF_CHAR = _byte_of_char()


class ByteLevelEncoder:
    """Byte-level BPE of a GGUF file. A byte that the vocabulary has no token for is dropped, as llama.cpp does."""

    def __init__(
        self, vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], spec: PreTokenizerSpec
    ) -> None:
        """Raise EngineError if a merge names a token that ``vocabulary``, spelling to id, lacks."""
        try:
            model = BPE(dict(vocabulary), list(merges), ignore_merges=spec.ignore_merges)
        except Exception as error:  # the library raises plain Exception
            raise EngineError(f"the model's tokenizer is damaged: {one_line(error)}") from error
        self._bpe = tokenizers.Tokenizer(model)
        self._bpe.pre_tokenizer = spec.build()

    def encode(self, text: str, first: bool) -> list[int]:
        """The ids of ``text``, wherever it stands."""
        return self._bpe.encode(text, add_special_tokens=False).ids
