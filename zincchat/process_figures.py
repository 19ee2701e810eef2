"""Memory and CPU use of this process."""

from __future__ import annotations

import time

import psutil


class ProcessFigures:
    """Samples psutil at most once a second: a busier reading of CPU time says nothing more."""

    def __init__(self) -> None:
        """Start the interval that the first CPU figure covers."""
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._sampled_s = time.monotonic()

    def sample(self) -> tuple[int, float] | None:
        """Resident bytes and CPU percent since the last sample; None within a second of it."""
        now_s = time.monotonic()
        if now_s - self._sampled_s < 1:
            return None
        self._sampled_s = now_s
        return self._process.memory_info().rss, self._process.cpu_percent()
