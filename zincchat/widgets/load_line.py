"""How far the model has loaded."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from zincchat.engine_events import LoadProgress
from zincchat.panel.units import gauge

STAGES = {
    "device": "opening the device",
    "kernels": "preparing kernels",
    "tuning": "measuring kernels",
    "fusion": "measuring fusions",
    "weights": "loading weights",
    "warm-up": "trying the kernels",
}


class LoadLine(Widget):
    """One line above the prompt: the stage, a bar, and megabytes or counts."""

    def __init__(self) -> None:
        """Begin before the first stage."""
        super().__init__(id="load-line")
        self._progress = LoadProgress("device", 0, 0)

    def show(self, progress: LoadProgress) -> None:
        """Draw the newest progress."""
        self._progress = progress
        self.refresh()

    def render(self) -> Text:
        """The line."""
        stage, done, total = self._progress.stage, self._progress.done, self._progress.total
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{STAGES.get(stage, stage):<20}", "bold")
        if total:
            text.append(f" {gauge(done, total, 24)} ", "cyan")
            text.append(f"{done / 1e6:,.0f} / {total / 1e6:,.0f} MB" if stage == "weights" else f"{done} / {total}")
        text.append("   you can type already", "dim")
        return text
