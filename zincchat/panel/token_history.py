"""The tokens that the panel shows, cut into segments wherever a setting changed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zincchat.panel.comparison import Comparison
from zincchat.panel.runs import Runs
from zincchat.panel.segment import Segment, Settings
from zincchat.panel.statistics import RATIO_TOKENS, median

if TYPE_CHECKING:
    from engine import TokenTiming

SHOWN_TOKENS = 256


@dataclass(frozen=True, slots=True)
class ShownToken:
    """One bar: the token's position in the context, the reply it belongs to and its record.

    ``side`` is "a" or "b" where the token is one of an A/B.
    """

    reply: int
    position: int
    timing: TokenTiming
    side: str = ""


class TokenHistory:
    """Decode tokens in order of arrival; a reply's token 0 comes from the prefill and is not one of them."""

    def __init__(self) -> None:
        """Begin empty."""
        self.tokens: deque[ShownToken] = deque(maxlen=SHOWN_TOKENS)
        self.previous: Segment | None = None
        self.current: Segment | None = None
        self.comparison: Comparison | None = None  # its result stays when it has ended
        self.comparing = False
        self.runs = Runs()
        self.replies = 0
        self._reply_us: deque[float] = deque(maxlen=16)
        self._reply_sum_us = 0.0
        self._reply_tokens = 0

    def begin_reply(self) -> None:
        """Start counting the rates of a new reply."""
        self.replies += 1
        if self.comparison is not None:
            self.comparison.interrupted()
        self._reply_us.clear()
        self._reply_sum_us = 0.0
        self._reply_tokens = 0

    def add(self, position: int, timing: TokenTiming) -> None:
        """Take in one token."""
        if timing.index == 0:
            return
        self.runs.add(timing)
        settings = Settings.of(timing)
        side = self._compare(settings, timing)
        if not side:
            self._add_to_segment(settings, timing)
        self.tokens.append(ShownToken(self.replies, position, timing, side))
        if timing.measured_by == "clean":
            self._reply_us.append(timing.period_us)
            self._reply_sum_us += timing.period_us
            self._reply_tokens += 1

    def begin_comparison(self, a: Settings, b: Settings) -> None:
        """Let tokens of ``a`` and ``b`` count for an A/B from now on; the figures shown are those of ``b``."""
        self.comparison, self.comparing = Comparison(a, b), True

    def end_comparison(self) -> None:
        """Let tokens of ``b`` count for themselves again; those of ``a`` that still come were of the A/B."""
        self.comparing = False

    def setting_changed(self) -> None:
        """Forget an A/B: the user chose other settings, perhaps ``a``."""
        self.comparison = None

    @property
    def shown_comparison(self) -> Comparison | None:
        """The A/B that runs, or the last one where it found anything before it ended."""
        if self.comparison is None or not (self.comparing or self.comparison.result()):
            return None
        return self.comparison

    def _compare(self, settings: Settings, timing: TokenTiming) -> str:
        """The side for which the token counted; empty where it is none of an A/B's."""
        comparison = self.comparison
        if comparison is None or comparison.side(settings) is None:
            return ""
        if not self.comparing and settings != comparison.a.settings:
            return ""
        comparison.add(timing)
        self.previous, self.current = comparison.a, comparison.b
        return comparison.letter(settings)

    def _add_to_segment(self, settings: Settings, timing: TokenTiming) -> None:
        if self.current is None or self.current.settings != settings:
            if self.current is not None:
                self.previous = self.current
            self.current = Segment(settings)
        self.current.add(timing)

    @property
    def live_tok_s(self) -> float | None:
        """Rate over the last 16 clean tokens of this reply."""
        return len(self._reply_us) * 1e6 / sum(self._reply_us) if self._reply_us else None

    @property
    def average_tok_s(self) -> float | None:
        """Rate over all clean tokens of this reply."""
        return self._reply_tokens * 1e6 / self._reply_sum_us if self._reply_tokens else None

    def change(self) -> Change | None:
        """The last change of a setting with the medians on both sides; None before there is one.

        Clean tokens count, without the first under a setting, which pay for the switch.
        """
        if self.previous is None or self.current is None:
            return None
        before_us, after_us = self.previous.settled_us, self.current.settled_us
        return Change(
            self.previous.settings.change_to(self.current.settings),
            median(before_us) if before_us else None,
            median(after_us) if after_us else None,
            len(before_us),
            len(after_us),
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A changed setting and the median token time on both sides of it, in microseconds; None without a token."""

    words: str
    before_us: float | None
    after_us: float | None
    before_n: int
    after_n: int

    @property
    def ratio(self) -> float | None:
        """How many times faster the token became, below 1 slower; None with fewer than 8 tokens on a side."""
        if self.before_us is None or self.after_us is None or min(self.before_n, self.after_n) < RATIO_TOKENS:
            return None
        return self.before_us / self.after_us
