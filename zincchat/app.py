"""The chat app: what the user does goes to the engine thread, what that reports goes on screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer, Static

from zincchat import engine_events as ev
from zincchat import garbage
from zincchat.chat.conversation import Conversation
from zincchat.chat.prompt_history import PromptHistory
from zincchat.chat.slash import COMMANDS, parse
from zincchat.commands import STILL_LOADING, Commands
from zincchat.engine_thread import EngineThread, MeasureRequest
from zincchat.options import ChatOptions
from zincchat.panel.segment import Settings
from zincchat.panel.units import model_label
from zincchat.panel_controller import PANEL_MIN_COLUMNS, PANEL_MIN_ROWS, PanelController
from zincchat.reply_controller import ReplyController
from zincchat.widgets.load_line import LoadLine
from zincchat.widgets.panel_line import PanelLine
from zincchat.widgets.prompt import Prompt
from zincchat.widgets.side_panel import SidePanel
from zincchat.widgets.timeline import Timeline
from zincchat.widgets.transcript import Transcript

if TYPE_CHECKING:
    from engine import Engine

DRAINS_PER_SECOND = 10
DRAINS_PER_PANEL = 2
LIVE = ("mode", "fusion", "barriers", "ab")


class ChatApp(App[None]):
    """A chat with one model. ``open_engine`` is called as ``open_engine(progress=...)`` in the engine thread.

    Where the model cannot be loaded, the app exits with return code 1 and prints the one line that says why.
    """

    TITLE = "zincchat"
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        "app.tcss",
        *(
            f"widgets/{name}.tcss"
            for name in (
                "article",
                "figures",
                "kernel_table",
                "load_line",
                "panel_header",
                "panel_line",
                "prompt",
                "reply",
                "side_panel",
                "timeline",
                "thoughts",
                "token_bars",
                "transcript",
            )
        ),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        # Priority: Esc must not wait behind other keys, and the text area has a use of its own for F6.
        Binding("f1", "do('help')", "Help", key_display="F1", priority=True),
        Binding("escape", "do('stop')", "Stop", key_display="Esc", priority=True),
        Binding("f2,ctrl+o", "do('mode')", "Mode", key_display="F2", priority=True),
        Binding("f3,ctrl+t", "do('fusion')", "Fusion", key_display="F3", priority=True),
        Binding("f4,ctrl+b", "do('barriers')", "Barriers", key_display="F4", priority=True),
        Binding("f5,ctrl+l", "do('panel')", "Panel", key_display="F5", priority=True),
        Binding("f6", "do('timeline')", "Timeline", key_display="F6", priority=True),
        Binding("f7", "do('ab')", "A/B", key_display="F7", priority=True),
        Binding("f10", "do('think')", "Think", key_display="F10", priority=True),
        Binding("ctrl+f", "do('thoughts')", "Thoughts", show=False, priority=True),
        Binding("f8,ctrl+s", "do('freeze')", "Freeze", show=False, priority=True),
        Binding("f9,ctrl+g", "do('scale')", "Scale", show=False, priority=True),
        Binding("ctrl+n", "do('new')", "New chat", show=False, priority=True),
        Binding("ctrl+r", "do('regen')", "Regenerate", show=False, priority=True),
    ]

    def __init__(self, open_engine: Callable[..., Engine], options: ChatOptions | None = None) -> None:
        """Prepare; the model starts to load when the app runs."""
        super().__init__()
        self.options = options or ChatOptions()
        self.conversation = Conversation(self.options.system)
        self.prompt_history = PromptHistory(self.options.history_path)
        self.engine_thread = EngineThread(open_engine)
        self.panel = PanelController(self, self.options.panel)
        self.commands = Commands(self)
        self.replies = ReplyController(self)
        self.thinking = self.options.thinking  # as chosen; None: the model's own way
        self.measuring = False
        self._said = ""
        self._drains = 0

    def compose(self) -> ComposeResult:
        """Chat on the left, panel on the right, timeline and keys below."""
        with Horizontal(id="body"):
            with Vertical(id="chat"):
                yield Transcript()
                yield LoadLine()
                yield PanelLine()
                yield Static("", id="status", markup=False)
                yield Prompt(self.prompt_history, self.submit)
            yield SidePanel()
        yield Timeline()
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Start loading and draining."""
        self.query_one(Prompt).focus()
        self.panel.lay_out()
        if self.prompt_history.problem:
            self.say(self.prompt_history.problem)
        self.engine_thread.start()
        self.set_interval(1 / DRAINS_PER_SECOND, self._drain)

    def on_unmount(self) -> None:
        """Close the engine before the process ends."""
        self.engine_thread.stop()

    def on_resize(self, event: Resize) -> None:
        """Choose between the panel and its one line."""
        self.panel.lay_out(event.size)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The slash commands, then Textual's own."""
        for command in COMMANDS:
            yield SystemCommand(f"/{command.name}", command.help, lambda name=command.name: self.action_do(name))
        yield from (entry for entry in super().get_system_commands(screen) if entry.title != "Quit")

    @property
    def replying(self) -> bool:
        """Whether a reply is being generated or waits for the model to load."""
        return self.replies.under_way is not None

    def say(self, line: str, error: bool = False) -> None:
        """Show one line above the prompt until the next message or command; an empty one removes it."""
        self._said = line
        status = self.query_one("#status", Static)
        status.set_class(error, "error")
        status.display = bool(line)
        status.update(line)

    def unsay(self, line: str) -> None:
        """Remove ``line`` if it is what is shown above the prompt."""
        if self._said == line:
            self.say("")

    def action_help_quit(self) -> None:
        """Ctrl+C, which copies where text is selected: say which keys do what it does elsewhere."""
        self.say("Esc stops the reply, Ctrl+Q leaves")

    def action_do(self, name: str) -> None:
        """Run a slash command without an argument, from a key or the palette."""
        problem = self.commands.run(name, "")
        self.say(problem or self.commands.message, error=bool(problem))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the keys to a dialogue that is open; grey out what would do nothing now."""
        if action != "do":
            return True
        if self.screen.is_modal:
            return False
        if parameters == ("stop",):
            return True if self.replying or self.measuring else None
        if parameters == ("think",):
            return self.panel.view.thinking is not None
        return True if self.panel.view.engine is not None or parameters[0] not in LIVE else None

    def submit(self, text: str) -> bool:
        """Run a command or send a message; False where the text cannot be taken and is to stay in the prompt."""
        self.say("")
        command = parse(text)
        if command is not None:
            if problem := self.commands.run(command.name, command.argument):
                self.say(problem, error=True)
                return False
            self.say(self.commands.message)
        elif not text.strip():
            return False
        elif self.replying:
            self.say("a reply is under way: Esc stops it, then Enter sends this")
            return False
        else:
            self.replies.ask(text.strip())
        self.prompt_history.add(text.strip())
        if self.prompt_history.problem:
            self.say(self.prompt_history.problem)
            self.prompt_history.problem = None
        return True

    def on_prompt_scroll_wanted(self, event: Prompt.ScrollWanted) -> None:
        """Scroll the chat by a page."""
        self.query_one(Transcript).scroll_page(event.pages)

    def measure(self) -> None:
        """Have every remedy measured, in view of the full panel where there is room for it: results come one by one."""
        self.measuring = True
        if self.panel.roomy:
            self.panel.set_preset("full")
        self.engine_thread.request(MeasureRequest(threading.Event()))
        self.refresh_bindings()

    def _drain(self) -> None:
        if not self.is_running:
            return  # the app is closing
        events = self.engine_thread.events
        while events:
            self._take(events.popleft())
        self._drains += 1
        if self._drains % DRAINS_PER_PANEL == 0:
            self.panel.refresh_if_changed()

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.LoadProgress():
                self.query_one(LoadLine).show(event)
            case ev.Loaded():
                self._loaded(event)
            case ev.LoadFailed():
                self.prompt_history.add(self.query_one(Prompt).text.strip())
                self.exit(return_code=1, message=f"zincchat: {event.problem}")
            case ev.DeviceMeasured():
                self.panel.device_measured(event)
            case ev.Measuring():
                self.say(f"measuring {event.what} ({event.done + 1} of {event.total}): Esc stops it")
            case ev.BubblesMeasured() | ev.SettingMeasured():
                self.panel.measured(event)
            case ev.MeasuringEnded():
                self.measuring = False
                self.refresh_bindings()
                self.say(event.problem or self._where_results_are())
                self.commands.leave_refused()
            case ev.ReplyFailed():
                self.replies.take(event)
                self.commands.leave_refused()
            case _:
                self.replies.take(event)

    def _where_results_are(self) -> str:
        if not self.panel.roomy:
            return f"measured: the results take a terminal of {PANEL_MIN_COLUMNS} columns and {PANEL_MIN_ROWS} rows"
        return "" if self.panel.preset == "full" else "measured: /panel full shows the results"

    def _loaded(self, event: ev.Loaded) -> None:
        self.query_one(LoadLine).display = False
        if self._said.startswith(STILL_LOADING):
            self.say("")
        if not event.model.can_chat:
            self.exit(
                return_code=1,
                message=f"zincchat: {event.model.name} has no tokenizer or chat template, so it cannot chat; "
                "choose another --model (zincchat bench needs neither)",
            )
            return
        garbage.settle()
        self.panel.loaded(event, Settings(event.mode, event.fusion, event.barriers))
        self.refresh_bindings()
        software = '\nThis is a software device: its "GPU" is this CPU.' if event.device.is_software else ""
        self.query_one(Transcript).show_device(f"{model_label(event.model)} on {event.device.name}{software}")
        self.replies.name_speaker(event.model.name)
        if event.model.thinking is not None:
            self.panel.set_thinking(event.model.thinking if self.thinking is None else self.thinking)
        elif self.thinking is not None:
            self.say(f"{event.model.name} has no switch for thinking: its template decides")
