"""The newest stamped tokens, and what their kernels reach."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from engine import kernel_rates
from zincchat.panel.segment import Settings

if TYPE_CHECKING:
    from engine import KernelRate, TokenTrace

STAMPED_TOKENS = 8


class KernelHistory:
    """Takes in tokens in order; the figures are those of the newest stamped one's settings."""

    def __init__(self) -> None:
        """Begin empty."""
        self._traces: deque[TokenTrace] = deque(maxlen=STAMPED_TOKENS)
        self._rates: dict[float | None, list[KernelRate]] = {}  # by the probe's bandwidth, until the next token

    def add(self, trace: TokenTrace) -> None:
        """Take in one token."""
        if trace.stamped is not None:
            self._traces.append(trace)
            self._rates.clear()

    @property
    def settings(self) -> Settings | None:
        """What the newest stamped token ran under; None before there is one."""
        if not self._traces:
            return None
        newest = self._traces[-1].settings
        return Settings(newest.mode, bool(newest.passes), newest.barriers)

    @property
    def tokens(self) -> int:
        """How many of the newest stamped tokens ran under the same settings."""
        return len(self._of_newest_settings())

    def rates(self, probe_gb_s: float | None) -> list[KernelRate]:
        """Each kind of kernel of those, in the program's order."""
        if probe_gb_s not in self._rates:
            self._rates[probe_gb_s] = kernel_rates((trace.kernels for trace in self._of_newest_settings()), probe_gb_s)
        return self._rates[probe_gb_s]

    def _of_newest_settings(self) -> list[TokenTrace]:
        return [trace for trace in self._traces if trace.settings == self._traces[-1].settings]
