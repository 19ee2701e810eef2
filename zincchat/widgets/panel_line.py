"""The measurements in one line above the prompt, for narrow terminals."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from zincchat.panel.bar import cells, parts
from zincchat.panel.cpu_time import host_work_us
from zincchat.panel.units import ms, rate
from zincchat.panel.view import PanelView
from zincchat.widgets.palette import coloured

BAR_WIDTH = 10
NARROW_BAR_WIDTH = 6
NARROW_COLUMNS = 90


class PanelLine(Widget):
    """Settings, the last token with its bar, rate and context; what does not fit is left out from the right."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__(id="panel-line")
        self.view = PanelView()

    def show(self, view: PanelView) -> None:
        """Draw ``view``."""
        self.view = view
        self.refresh()

    def render(self) -> Text:
        """The line, built from pieces in the order of their worth."""
        text = Text(no_wrap=True, overflow="crop")
        for piece in self._pieces():
            if text.cell_len + piece.cell_len + 2 * bool(text.plain) > self.content_size.width:
                break
            if text.plain:
                text.append("  ")
            text.append_text(piece)
        return text

    def _pieces(self) -> list[Text]:
        view = self.view
        if view.settings is None or view.engine is None:
            return [Text("the model is loading", "dim")]
        mode, fused, _ = view.settings.words()
        pieces = [Text(f"{mode}·{fused}·{view.settings.barriers}", "bold cyan")]
        if view.frozen:
            pieces.append(Text("FROZEN", "bold black on yellow"))
        is_software = view.engine.device.is_software
        if not view.history.tokens or view.scale_ms is None:
            label = "software device" if is_software else "device"
            return [*pieces, Text(f"{label} {view.engine.device.name}", "yellow" if is_software else "")]
        timing = view.history.tokens[-1].timing
        bar_width = NARROW_BAR_WIDTH if self.content_size.width < NARROW_COLUMNS else BAR_WIDTH
        token = Text(f"{ms(timing.period_us)} ms ")
        token.append_text(coloured(cells(parts(timing), timing.period_us, view.scale_ms * 1000, bar_width).rstrip()))
        pieces.append(token)
        if view.history.live_tok_s:
            pieces.append(Text(f"{rate(view.history.live_tok_s)} tok/s", "bold green"))
        if timing.gpu_total_us is not None:
            label = "software GPU" if is_software else "GPU"
            pieces.append(Text(f"{label} {ms(timing.gpu_total_us)}", "yellow" if is_software else ""))
        pieces.append(Text(f"{view.context_used_tokens}/{view.engine.context_tokens}"))
        pieces.append(Text(f"CPU {ms(host_work_us(timing))}"))
        segment = view.history.current
        if segment and segment.bubbles_us:
            pieces.append(Text(f"bubbles {ms(segment.bubbles_us[-1])}◇"))
        return pieces
