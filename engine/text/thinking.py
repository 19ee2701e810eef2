"""Thoughts apart from the answer: what a model says between its think tags.

The tags are control tokens with some models, added tokens with others, plain text with a third kind; and where
the template's generation prompt ends in the opening tag, the reply begins inside the block.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.text.tokenizer import Tokenizer

# Qwen, SmolLM, DeepSeek and most others write the first pair, Mistral's reasoning models the second.
_PAIRS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """A model's tags; the ids are set where the tag is a control token, which cannot be mistaken for text."""

    open: str
    close: str
    open_id: int | None = None
    close_id: int | None = None


def find_tags(tokenizer: Tokenizer, template: str | None) -> ThinkTags | None:
    """The tags that the vocabulary has as tokens or the template writes; None for a model that does not think."""
    for pair in _PAIRS:
        ids = [tokenizer.token_id(tag) for tag in pair]
        if None not in ids or (template is not None and pair[1] in template):
            return ThinkTags(*pair, *(id if id is not None and tokenizer.is_special(id) else None for id in ids))
    return None


class ThinkSplitter:
    """Text as it comes, in two streams: the answer, and the thoughts between the tags. Only the tags are left out.

    A block opens only before the answer's first visible character, so that an answer may speak of the tags; the
    first closing tag ends it. What may be the beginning of a tag is held back.
    """

    def __init__(self, tags: ThinkTags, inside: bool = False) -> None:
        """``inside``: the prompt has opened a block."""
        self._tags = tags
        self._held = ""
        self._answering = False
        self.thinking = inside

    @property
    def pending(self) -> bool:
        """Whether text is held back."""
        return bool(self._held)

    def push(self, piece: str) -> tuple[str, str]:
        """The answer's text and the thoughts' text that ``piece`` completes."""
        text = thought = ""
        self._held += piece
        while self._held:
            if self.thinking:
                before, tag, after = self._held.partition(self._tags.close)
                if tag:
                    thought += before
                    self._held, self.thinking = after, False
                    continue
                kept = _overlap(self._held, self._tags.close)
                thought += self._held[: len(self._held) - kept]
                self._held = self._held[len(self._held) - kept :]
                break
            if not self._answering:
                visible = self._held.lstrip()
                text += self._held[: len(self._held) - len(visible)]
                self._held = visible
                if visible.startswith(self._tags.open):
                    self._held, self.thinking = visible.removeprefix(self._tags.open), True
                    continue
                if self._tags.open.startswith(visible):
                    break
                self._answering = True
            text += self._held
            self._held = ""
        return text, thought

    def push_tag(self, opening: bool) -> tuple[str, str]:
        """As ``push``, for a control token: it opens or closes a block wherever it stands."""
        rest = self.flush()
        self.thinking = opening
        return rest

    def flush(self) -> tuple[str, str]:
        """What was held back turned out to be no tag."""
        rest, self._held = self._held, ""
        if self.thinking:
            return "", rest
        self._answering = self._answering or bool(rest)
        return rest, ""


def split_thoughts(content: str, tags: ThinkTags) -> tuple[str, str]:
    """The answer and the thoughts of a whole reply; a block that never closes is all thoughts."""
    splitter = ThinkSplitter(tags)
    text, thought = splitter.push(content)
    rest, unfinished = splitter.flush()
    return text + rest, thought + unfinished


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of ``tag``."""
    return next(count for count in range(min(len(text), len(tag) - 1), -1, -1) if text.endswith(tag[:count]))
