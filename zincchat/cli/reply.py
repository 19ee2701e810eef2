"""One reply to one prompt, as ``run`` and ``trace`` generate and show it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from zincchat.cli import options, output

if TYPE_CHECKING:
    from engine import Sampling, Session, Token, TokenTiming


@dataclass(frozen=True)
class Reply:
    """What came; ``ttft_us`` is from the start of the prefill to the first token in hand."""

    tokens: list[Token]
    ttft_us: float | None

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(token.text for token in self.tokens)

    @property
    def timings(self) -> list[TokenTiming]:
        """A record a token."""
        return [token.timing for token in self.tokens]


def reply_options(max_tokens: int) -> Callable[[options.Command], options.Command]:
    """The options that ``generate_reply`` reads; ``max_tokens`` is the default."""
    return options.compose(
        click.option("--max-tokens", type=click.IntRange(min=1), default=max_tokens, show_default=True, metavar="N"),
        click.option("--ignore-eos", is_flag=True, help="Do not stop at the model's end token."),
    )


def generate_reply(
    session: Session,
    ids: list[int],
    sampling: Sampling,
    values: dict[str, Any],
    cancel: threading.Event,
    shown: bool = True,
) -> Reply:
    """Prefill and decode; where ``shown``, the text goes to stdout as it comes, with a line's end behind it."""
    tokens: list[Token] = []
    ttft_us = None
    started = time.perf_counter()
    session.prefill(ids, cancel=cancel)
    try:
        for token in session.generate(
            sampling, max_tokens=values["max_tokens"], ignore_eos=values["ignore_eos"], cancel=cancel
        ):
            if ttft_us is None:
                ttft_us = (time.perf_counter() - started) * 1e6
            tokens.append(token)
            if shown:
                output.write_text(token.text)
    finally:
        reply = Reply(tokens, ttft_us)
        if shown and tokens and not reply.text.endswith("\n"):
            output.write_text("\n")
    return reply
