"""Two settings that take turns while a reply is generated, so that both see the same machine and the same context."""

from __future__ import annotations

from zincchat.panel.segment import Settings

TURN_TOKENS = 12


class Alternation:
    """Turns of 12 tokens in the order a, b, b, a: what drifts steadily weighs on both alike."""

    def __init__(self, a: Settings, b: Settings) -> None:
        """``a`` begins."""
        self._order = (a, b, b, a)
        self._tokens = 0

    def next(self) -> Settings:
        """What the next token is to run under; call it once a token."""
        turn = self._tokens // TURN_TOKENS
        self._tokens += 1
        return self._order[turn % len(self._order)]
