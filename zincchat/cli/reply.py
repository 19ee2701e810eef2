"""One reply to one prompt, as ``run`` and ``trace`` generate and show it."""

from __future__ import annotations

import sys
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
        """The answer, without the blank lines that part it from thoughts."""
        text = "".join(token.text for token in self.tokens)
        return text.lstrip("\n") if self.thought_tokens else text

    @property
    def thoughts(self) -> str | None:
        """What the model thought before it; None where it did not think."""
        return "".join(token.thought for token in self.tokens).strip("\n") if self.thought_tokens else None

    @property
    def thought_tokens(self) -> int:
        """How many of the tokens are thoughts."""
        return sum(token.thinking for token in self.tokens)

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


class ReplyWriter:
    """Shows a reply as it comes: the answer on stdout, thoughts before it dimmed on stderr if that is a terminal."""

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self._thoughts = _Part(output.write_dimmed) if sys.stderr.isatty() else _Part(lambda text: None)
        self._answer = _Part(output.write_text)
        self._thought = False

    def show(self, token: Token) -> None:
        """Show what ``token`` adds."""
        self._thought = self._thought or token.thinking
        self._thoughts.add(token.thought, trimmed=True)
        if token.text.strip("\n") and not self._answer.begun:
            self._thoughts.end(lines=2)
        self._answer.add(token.text, trimmed=self._thought)

    def end(self) -> None:
        """Finish the last line."""
        (self._answer if self._answer.begun else self._thoughts).end(lines=1)


class _Part:
    """Text that is written piece by piece."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._line_ends = 0
        self.begun = False

    def add(self, text: str, trimmed: bool) -> None:
        """Write ``text``, without blank lines at the very beginning where ``trimmed``."""
        if trimmed and not self.begun:
            text = text.lstrip("\n")
        if text:
            self._write(text)
            self.begun = True
            ends = len(text) - len(text.rstrip("\n"))
            self._line_ends = ends + (self._line_ends if ends == len(text) else 0)

    def end(self, lines: int) -> None:
        """Write what is missing of ``lines`` line ends, if there is anything to end."""
        if self.begun:
            self._write("\n" * (lines - self._line_ends))


def generate_reply(
    session: Session,
    ids: list[int],
    sampling: Sampling,
    values: dict[str, Any],
    cancel: threading.Event,
    shown: bool = True,
) -> Reply:
    """Prefill and decode; where ``shown``, the reply is written as it comes, with a line's end behind it."""
    tokens: list[Token] = []
    writer = ReplyWriter()
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
                writer.show(token)
    finally:
        if shown and tokens:
            writer.end()
    return Reply(tokens, ttft_us)
