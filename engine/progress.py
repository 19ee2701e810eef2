"""How loading reports itself."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # (stage, done, total)


def no_progress(stage: str, done: int, total: int) -> None:
    """Says nothing."""


class Bar:
    """A stage's progress in percent, of parts whose steps are known only when they begin.

    It never runs backwards, and comes to its end at ``end``, once.
    """

    PERCENT = 100

    def __init__(self, progress: Progress, stage: str) -> None:
        """Show the beginning."""
        self._progress, self._stage = progress, stage
        self._begin = self._share = 0.0
        self._steps = self._done = 0
        self._shown = 0
        progress(stage, 0, self.PERCENT)

    def part(self, share: float, steps: int) -> None:
        """End the part before, if there is one, and begin another; the ``share`` of all parts together is 1."""
        self._begin, self._share = self._begin + self._share, share
        self._steps, self._done = steps, 0
        self._show(self._begin)

    def step(self) -> None:
        """One of the part's steps is done; more than it has count for nothing."""
        self._done = min(self._done + 1, self._steps)
        self._show(self._begin + self._share * self._done / max(self._steps, 1))

    def end(self) -> None:
        """All is done."""
        if self._shown < self.PERCENT:
            self._shown = self.PERCENT
            self._progress(self._stage, self.PERCENT, self.PERCENT)

    def _show(self, done: float) -> None:
        percent = min(int(done * self.PERCENT + 1e-6), self.PERCENT - 1)
        if percent > self._shown:
            self._shown = percent
            self._progress(self._stage, percent, self.PERCENT)
