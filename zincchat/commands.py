"""What each slash command, key and palette entry does."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine import BARRIERS, MODES, EngineError
from zincchat.alternation import TURN_TOKENS, Alternation
from zincchat.chat.conversation import Conversation
from zincchat.chat.slash import NAMES, WITHOUT_ARGUMENT, parse
from zincchat.export import export_records, export_trace
from zincchat.options import PANEL_PRESETS, SIDE_PRESETS
from zincchat.panel.bar import SCALES_MS
from zincchat.panel_controller import PANEL_MIN_COLUMNS, PANEL_MIN_ROWS
from zincchat.screens.help import HelpScreen
from zincchat.screens.system_prompt import SystemPromptScreen
from zincchat.widgets.prompt import Prompt
from zincchat.widgets.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine import Token
    from zincchat.app import ChatApp

ON_OFF = ("off", "on")
STILL_LOADING = "the model is still loading"
_NO_SETTINGS_YET = f"{STILL_LOADING}: settings can be changed when it is there"


class Commands:
    """One method a command; ``message`` is a line to show after one that succeeded."""

    def __init__(self, app: ChatApp) -> None:
        """Act on ``app``."""
        self._app = app
        self.message = ""

    def run(self, name: str, argument: str) -> str:
        """Run command ``name``; returns one line where it could not be done, else an empty string."""
        self.message = ""
        if name not in NAMES:
            return f"there is no command /{name}: /help lists them; to send this as a message, put a space before it"
        if argument and name in WITHOUT_ARGUMENT:
            return f"/{name} takes nothing, not {argument}"
        return getattr(self, f"_{name}")(argument) or ""

    def _new(self, argument: str) -> None:
        app = self._app
        app.replies.begin_chat()
        app.conversation = Conversation(app.conversation.system)
        app.panel.view.context_used_tokens = 0
        app.query_one(Transcript).clear()
        app.panel.refresh()

    def _regen(self, argument: str) -> str:
        app = self._app
        if not app.conversation.reopen():
            return "there is no reply to generate again"
        app.replies.regenerate()
        return ""

    def _edit(self, argument: str) -> str:
        """Replace the newest message by ``argument``; without one, put it into the prompt as the command to do so."""
        app = self._app
        if not app.conversation.turns:
            return "there is no message to edit yet"
        if argument:
            app.replies.replace(argument)
            return ""
        prompt = app.query_one(Prompt)
        typed = parse(prompt.text.strip())
        if prompt.text.strip() and (typed is None or typed.name != "edit"):  # from the palette
            return "the prompt is in use: send what is there or clear it, then /edit"
        prompt.replace_text(f"/edit {app.conversation.turns[-1].question}")
        self.message = "Enter sends this in place of your last message and its reply"
        return ""

    def _copy(self, argument: str) -> str:
        reply = self._app.conversation.last_reply
        if not reply:
            return "there is no reply to copy yet"
        reply = reply.lstrip("\n")
        self._app.copy_to_clipboard(reply)
        self.message = f"copied the last reply, {len(reply):,} characters (through the terminal, if it allows that)"
        return ""

    def _system(self, argument: str) -> None:
        if argument:
            self._set_system(argument)
        else:
            self._app.push_screen(SystemPromptScreen(self._app.conversation.system), self._set_system)

    def _set_system(self, text: str | None) -> None:
        if text is None:
            return
        self._app.conversation.system = text
        self.message = "the system prompt " + ("holds from the next message on" if text else "is empty now")
        self._app.say(self.message)

    def _think(self, argument: str) -> str:
        app = self._app
        thinking = app.panel.view.thinking
        if app.panel.view.engine is None:
            return f"{STILL_LOADING}: thinking can be switched when it is there"
        if thinking is None:
            return "this model's chat template has no switch for thinking"
        if argument and argument.lower() not in ON_OFF:
            return f"/think takes on or off, not {argument}"
        app.thinking = argument.lower() == "on" if argument else not thinking
        app.panel.set_thinking(app.thinking)
        self.message = f"thinking is {'on' if app.thinking else 'off'}" + (" from the next message on" * app.replying)
        return ""

    def _thoughts(self, argument: str) -> str:
        if self._app.query_one(Transcript).toggle_thoughts():
            return ""
        return "there are no thoughts in this chat"

    def _mode(self, argument: str) -> str:
        loaded = self._app.panel.view.engine
        refused = loaded.refused_modes if loaded is not None else {}
        return self._set_offered("mode", argument, MODES, refused)

    def _fusion(self, argument: str) -> str:
        return self._set_live("fusion", argument, ON_OFF, (False, True))

    def _barriers(self, argument: str) -> str:
        loaded = self._app.panel.view.engine
        refused = loaded.refused_barriers if loaded is not None else {}
        return self._set_offered("barriers", argument, BARRIERS, refused)

    def _set_offered(self, name: str, argument: str, known: Sequence[str], refused: Mapping[str, str]) -> str:
        """Set a live switch, of whose ``known`` values this device has some not."""
        if (word := argument.lower()) in refused:
            are = "are" if name == "barriers" else "is"
            return f"{name} {word} {are} not offered here: {refused[word]}"
        offered = tuple(value for value in known if value not in refused)
        return self._set_live(name, argument, offered, offered)

    def _set_live(self, name: str, argument: str, words: Sequence[str], values: Sequence[Any]) -> str:
        """Set a live switch to the value called ``argument``, or to the one after the present value."""
        settings = self._app.panel.view.settings
        if settings is None:
            return _NO_SETTINGS_YET
        if argument and argument.lower() not in words:
            return f"/{name} takes {_either(words)}, not {argument}"
        if argument:
            value = values[words.index(argument.lower())]
        else:  # the present one may have come to be refused
            present = getattr(settings, name)
            value = values[(values.index(present) + 1) % len(values)] if present in values else values[0]
        self._end_comparison()
        self._app.engine_thread.set_live(name, value)
        self._app.panel.set_settings(replace(settings, **{name: value}))
        return ""

    def _ab(self, argument: str) -> str:
        """Begin an A/B of the settings in use with those before them, or end it."""
        if self._end_comparison():
            return ""
        panel, b = self._app.panel, self._app.panel.view.settings
        if b is None:
            return _NO_SETTINGS_YET
        history = panel.view.history
        ran = [segment.settings for segment in (history.current, history.previous) if segment is not None]
        otherwise = replace(b, mode="reuse" if b.mode == "rerecord" else "rerecord")
        a = next((settings for settings in ran if settings != b), otherwise)
        panel.begin_comparison(a, b)
        self._app.engine_thread.alternate(Alternation(a, b))
        self.message = f"A/B: {a.change_to(b)}, {TURN_TOKENS} tokens each in turn, until F7 or a change of a setting"
        return ""

    def _end_comparison(self) -> bool:
        """End an A/B that runs, and go on with the settings it was of; whether there was one."""
        panel = self._app.panel
        if not panel.view.history.comparing or panel.view.settings is None:
            return False
        panel.end_comparison()
        self._app.engine_thread.alternate(None)
        for name in ("mode", "fusion", "barriers"):
            self._app.engine_thread.set_live(name, getattr(panel.view.settings, name))
        return True

    def leave_refused(self) -> None:
        """Go on with barriers needed, as the engine does by itself, where the policy chosen has come to be refused."""
        panel, view = self._app.panel, self._app.panel.view
        if view.engine is None or view.settings is None:
            return
        refused, comparison = view.engine.refused_barriers, view.history.comparison
        used = {view.settings.barriers}
        if view.history.comparing and comparison is not None:
            used |= {comparison.a.settings.barriers, comparison.b.settings.barriers}
        if not used & refused.keys():
            return
        if view.settings.barriers in refused:
            view.settings = replace(view.settings, barriers="needed")
        self._end_comparison()
        self._app.engine_thread.set_live("barriers", view.settings.barriers)
        panel.set_settings(view.settings)

    def _panel(self, argument: str) -> str:
        if argument and argument.lower() not in PANEL_PRESETS:
            return f"/panel takes {', '.join(PANEL_PRESETS)}, not {argument}"
        following = PANEL_PRESETS[(PANEL_PRESETS.index(self._app.panel.preset) + 1) % len(PANEL_PRESETS)]
        panel = self._app.panel
        panel.set_preset(argument.lower() or following)
        if panel.preset in SIDE_PRESETS and not panel.roomy:
            self.message = (
                f"this takes {PANEL_MIN_COLUMNS} columns and {PANEL_MIN_ROWS} rows: one line is shown instead"
            )
        return ""

    def _measure(self, argument: str) -> str:
        app = self._app
        if app.panel.view.engine is None:
            return STILL_LOADING
        if app.replying or app.measuring:
            return f"a {'reply' if app.replying else 'measurement'} is under way: Esc stops it"
        app.measure()
        return ""

    def _export(self, argument: str) -> str:
        return self._write("export", "FILE.jsonl or FILE.csv", argument, export_records)

    def _trace(self, argument: str) -> str:
        def write(name: str, tokens: Sequence[Token]) -> str:
            engine = self._app.panel.view.engine
            assert engine is not None  # there are tokens
            return export_trace(name, tokens, engine)

        return self._write("trace", "FILE.json", argument, write)

    def _write(self, name: str, file: str, argument: str, write: Callable[[str, Sequence[Token]], str]) -> str:
        """Have ``write`` do its work in a thread of its own: thousands of tokens take a while."""
        app, tokens = self._app, list(self._app.replies.tokens)
        if not argument:
            return f"/{name} takes a file name: /{name} {file}"
        if not tokens:
            return "there are no tokens in this chat yet"

        def work() -> None:
            try:
                line, error = write(argument, tokens), False
            except EngineError as failure:
                line, error = str(failure), True
            app.call_from_thread(app.say, line, error)

        app.run_worker(work, thread=True)
        return ""

    def _timeline(self, argument: str) -> None:
        self._app.panel.toggle_timeline()

    def _freeze(self, argument: str) -> None:
        frozen = self._app.panel.toggle_freeze()
        self.message = "the panel is frozen: F8 or /freeze lets it go on" if frozen else ""

    def _scale(self, argument: str) -> str:
        if not argument:
            self._app.panel.set_scale()
            return ""
        try:
            scale_ms = float(argument.lower().removesuffix("ms"))
        except ValueError:
            scale_ms = math.nan
        if not SCALES_MS[0] / 10 <= scale_ms <= SCALES_MS[-1] * 10:
            return f"/scale takes milliseconds, such as 2 or 100, not {argument}"
        self._app.panel.set_scale(scale_ms)
        return ""

    def _stop(self, argument: str) -> str:
        if self._app.replying or self._app.measuring:
            self._app.replies.stop()
        return ""

    def _help(self, argument: str) -> None:
        self._app.push_screen(HelpScreen())

    def _quit(self, argument: str) -> None:
        self._app.exit()


def _either(words: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
