"""A reply's token ids to text, the answer apart from the thoughts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.text.stream import TextStream
from engine.text.thinking import ThinkSplitter, ThinkTags
from engine.text.tokenizer import Tokenizer

_TAIL_TOKENS = 16  # an opening tag spelled out in bytes, and the line's end behind it


class Piece(NamedTuple):
    """What a token adds to the answer and to the thoughts; ``thinking``: it is part of a think block, tags included."""

    text: str
    thought: str
    thinking: bool


class ReplyText:
    """The pieces of one reply, a token at a time. Their texts, joined, leave out nothing but the think tags."""

    def __init__(self, tokenizer: Tokenizer, tags: ThinkTags | None, prompt_ids: Sequence[int]) -> None:
        """``tags`` None: all is answer. A prompt that ends in the opening tag and white space has opened the block;
        that white space is the beginning of the thoughts, as it is where a model writes the tag itself.
        """
        self._tags = tags
        self._stream = TextStream(tokenizer)
        self._splitter: ThinkSplitter | None = None
        self._start = ""
        if tags is not None:
            tail = tokenizer.decode(prompt_ids[-_TAIL_TOKENS:])
            inside = tail.rstrip().endswith(tags.open)
            if inside:
                self._start = tail[len(tail.rstrip()) :]
            self._splitter = ThinkSplitter(tags, inside)

    @property
    def pending(self) -> bool:
        """Whether text waits for the next token: an incomplete character, or what may be a tag."""
        return self._stream.pending or (self._splitter is not None and self._splitter.pending)

    def push(self, id: int) -> Piece:
        """What token ``id`` adds."""
        splitter, tags = self._splitter, self._tags
        if splitter is None or tags is None:
            return Piece(self._stream.push(id), "", False)
        before = splitter.thinking
        if id in (tags.open_id, tags.close_id):
            late = splitter.push(self._stream.flush())
            rest = splitter.push_tag(id == tags.open_id)
            text, thought = late[0] + rest[0], late[1] + rest[1]
        else:
            text, thought = splitter.push(self._stream.push(id))
        thought, self._start = self._start + thought, ""
        return Piece(text, thought, before or splitter.thinking)

    def flush(self) -> Piece:
        """What is still held back when the reply ends."""
        text = self._stream.flush()
        if self._splitter is None:
            return Piece(text, "", False)
        texts, thoughts = zip(self._splitter.push(text), self._splitter.flush(), strict=True)
        return Piece("".join(texts), "".join(thoughts), self._splitter.thinking)
