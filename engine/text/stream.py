"""Token ids to text, one at a time."""

from __future__ import annotations

import codecs

from engine.text.tokenizer import Tokenizer


class TextStream:
    """An incremental detokeniser: a character that spans tokens is held back until it is whole.

    Special tokens give no text, nor does the space that some tokenizers put before a text. The cost of a token does
    not grow with the text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True

    @property
    def pending(self) -> bool:
        """Whether an incomplete character is held back."""
        return bool(self._decoder.getstate()[0])

    def push(self, id: int) -> str:
        """The text that token ``id`` completes; may be empty."""
        at_start, self._at_start = self._at_start, self._tokenizer.starts_text(id)
        if self._tokenizer.is_special(id):
            return ""
        return self._decoder.decode(self._tokenizer.piece(id, at_start))

    def flush(self) -> str:
        """What is still held back, U+FFFD for a character that never became whole; the stream starts anew."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._at_start = True
        return rest
