"""The first lines of the side panel: the live settings, the model and the device."""

from __future__ import annotations

from zincchat.panel.units import model_label
from zincchat.panel.view import PanelView
from zincchat.widgets.line_view import Line, LineView

SOFTWARE_NOTE = 'software device: its "GPU" is this CPU'


class PanelHeader(LineView):
    """Mode, fusion and barriers as set now, then model and device; says so where the device is software."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__()
        self._shown: list[Line] = []

    def show(self, view: PanelView) -> None:
        """Draw ``view`` where it says something new; only a newly known device changes the number of lines."""
        self.view = view
        lines = self.lines()
        if lines != self._shown:
            super().show(view)
            if len(lines) != len(self._shown):
                self.refresh(layout=True)
            self._shown = lines

    def lines(self) -> list[Line]:
        """Two to four lines."""
        view = self.view
        if view.engine is None or view.settings is None:
            return [[("the model is loading", "dim")]]
        first = [(" · ".join(view.settings.words()), "bold cyan")]
        if view.history.comparing:
            first += [("  ", ""), ("A/B: F7 ends it", "bold black on cyan")]
        if view.frozen:
            first += [("  ", ""), ("FROZEN: F8 goes on", "bold black on yellow")]
        model: Line = [(model_label(view.engine.model), "bold")]
        if view.thinking is not None:
            model.append((f" · thinking {'on' if view.thinking else 'off'}", "cyan"))
        lines = [first, model]
        lines.append([(view.engine.device.name, "")])
        if view.engine.device.is_software:
            lines.append([(SOFTWARE_NOTE, "bold yellow")])
        return lines
