"""The first lines of the side panel: the live settings and the device."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from zincchat.panel.view import PanelView

SOFTWARE_NOTE = 'software device: its "GPU" is this CPU'


class PanelHeader(Widget):
    """Mode, fusion and barriers as set now, then model and device; says so where the device is software."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__()
        self.view = PanelView()

    def show(self, view: PanelView) -> None:
        """Draw ``view``; only a newly known device can change the number of lines."""
        layout = self.view.engine is not view.engine
        self.view = view
        self.refresh(layout=layout)

    def render(self) -> Text:
        """Three lines at most."""
        text = Text(no_wrap=True, overflow="ellipsis")
        view = self.view
        if view.engine is None or view.settings is None:
            return text.append("the model is loading", "dim")
        text.append(" · ".join(view.settings.words()), "bold cyan")
        if view.frozen:
            text.append("   FROZEN, F8 goes on", "bold black on yellow")
        text.append(f"\n{view.engine.model.name} {view.engine.model.quantisation}", "bold")
        text.append(f"\n{view.engine.device.name}")
        if view.engine.device.is_software:
            text.append(f"\n{SOFTWARE_NOTE}", "bold yellow")
        return text
