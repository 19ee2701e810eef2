"""Making a conversation fit into the context by dropping its oldest turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zincchat.chat.conversation import Prompt

MIN_REPLY_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Fitted:
    """The token ids to feed and how many of the oldest turns they leave out."""

    ids: list[int]
    dropped_turns: int


class PromptTooLongError(Exception):
    """The newest message does not fit even with every older turn dropped."""

    def __init__(self, prompt_tokens: int, context_tokens: int) -> None:
        """Keep both sizes for the message shown to the user."""
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens
        super().__init__(f"{prompt_tokens} tokens do not fit into a context of {context_tokens}")


def fit(prompt: Prompt, render: Callable[[list[dict[str, str]]], list[int]], context_tokens: int) -> Fitted:
    """Render ``prompt``, dropping oldest turns (never the system prompt) where there is no room for a reply.

    Nothing is dropped while at least 32 tokens (or an eighth of a small context) are left. Once
    something must go, a quarter of the context is freed, because each drop changes the prefix and so
    costs a whole prefill. Raises PromptTooLongError where the newest turn leaves no room for one token.
    """
    ids = render(prompt.messages())
    if len(ids) + min(MIN_REPLY_TOKENS, context_tokens // 8) <= context_tokens:
        return Fitted(ids, 0)
    dropped = 0
    while dropped + 1 < len(prompt.turns):
        dropped += 1
        ids = render(prompt.messages(dropped))
        if len(ids) <= context_tokens - context_tokens // 4:
            return Fitted(ids, dropped)
    if len(ids) < context_tokens:
        return Fitted(ids, dropped)
    raise PromptTooLongError(len(ids), context_tokens)
