"""The reply under way: asking the engine thread for it, and putting what comes of it on screen."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from engine import waits_in_memory
from zincchat import engine_events as ev
from zincchat import garbage
from zincchat.engine_thread import ReplyRequest
from zincchat.widgets.prompt import Prompt
from zincchat.widgets.reply import Reply
from zincchat.widgets.transcript import Transcript

if TYPE_CHECKING:
    from engine import Token
    from zincchat.app import ChatApp

KEPT_TOKENS = 8192
_BUILDING = "testing and building kernels that wait in memory (barriers flags): some seconds, once"


class ReplyController:
    """``under_way`` is the reply that is being generated or waits for the model, ``newest`` the last one asked for.

    ``tokens`` are this chat's, for export.
    """

    def __init__(self, app: ChatApp) -> None:
        """Begin with none."""
        self.under_way: Reply | None = None
        self.newest: Reply | None = None
        self.tokens: deque[Token] = deque(maxlen=KEPT_TOKENS)
        self._app = app
        self._seed = app.options.seed if app.options.seed is not None else secrets.randbits(63)
        self._requests = 0
        self._waits_built = False  # as far as tokens have shown

    def ask(self, text: str) -> None:
        """Have ``text`` answered as the next turn."""
        self._transcript.add_question(text)
        self._app.conversation.ask(text)
        self.request()

    def request(self) -> None:
        """Have the newest turn answered."""
        app, engine = self._app, self._app.panel.view.engine
        self.under_way = self.newest = self._transcript.add_reply(engine.model.name if engine else "model")
        if engine is None:
            app.say("sent as soon as the model has loaded")
        app.refresh_bindings()
        self._requests += 1
        app.engine_thread.request(
            ReplyRequest(
                self._requests,
                app.conversation.prompt(),
                app.options.sampling,
                (self._seed + self._requests - 1) % 2**64,
                app.options.max_tokens,
                app.thinking,
                time.perf_counter(),
                threading.Event(),
            )
        )

    def stop(self) -> None:
        """Have the reply, or a measurement, stopped; a message still waiting for the model goes back to the prompt."""
        self._app.engine_thread.cancel()
        if self.under_way is not None and self._app.panel.view.engine is None:
            self._take_back()

    def forget(self) -> None:
        """Cancel the reply under way and ignore whatever of it still comes."""
        self._app.engine_thread.cancel()
        self._app.unsay(_BUILDING)
        self.under_way = None
        self._app.refresh_bindings()

    def regenerate(self) -> None:
        """Have the newest turn, which the conversation has reopened, answered anew."""
        self.forget()
        self._transcript.remove_last_reply()
        self.request()

    def replace(self, text: str) -> None:
        """Have ``text`` answered in place of the newest turn, of which there is one."""
        self.forget()
        self._transcript.remove_last_reply()
        self._transcript.remove_last_question()
        self._app.conversation.take_back()
        self.ask(text)

    def begin_chat(self) -> None:
        """Forget all replies and their tokens."""
        self.forget()
        self.newest = None
        self.tokens.clear()

    def name_speaker(self, name: str) -> None:
        """Say whose reply it is that waited for the model."""
        if self.under_way is not None:
            self.under_way.name_speaker(name)
            self._app.say("")

    def take(self, event: ev.ReplyEvent) -> None:
        """Put on screen what came of the reply under way; what comes of an earlier one is ignored."""
        reply = self.under_way
        if reply is None or event.request != self._requests:
            return
        match event:
            case ev.Trimmed():
                self._app.conversation.drop_oldest(event.dropped_turns)
                what = "turn, which" if event.dropped_turns == 1 else f"{event.dropped_turns} turns, which"
                self._transcript.add_note(
                    f"the context was full: dropped the oldest {what} the model no longer sees", before=reply
                )
            case ev.TooLong():
                where = "" if self._take_back() else " (Up brings it back)"
                self._app.say(
                    f"that message makes {event.prompt_tokens:,} tokens, the context holds {event.context_tokens:,}: "
                    f"shorten it{where}, or start with a larger --context",
                    error=True,
                )
            case ev.PrefillProgress():
                reply.show_note(f"reading the prompt: {event.done_tokens:,} of {event.total_tokens:,} tokens")
            case ev.Prefilled():
                reply.show_note("")
                self._app.panel.prefilled(event)
            case ev.TokenArrived():
                if event.token.thinking:
                    reply.think(event.token.thought, event.since_send_s)
                reply.feed(event.token.text)
                self.tokens.append(event.token)
                self._tell_building(event.token)
                self._app.panel.token(event)
            case ev.ReplyEnded():
                self._end(reply, self._ending(event.finish_reason, reply))
            case ev.ReplyFailed():
                self._end(reply, event.problem, error=True)

    @property
    def _transcript(self) -> Transcript:
        return self._app.query_one(Transcript)

    def _take_back(self) -> bool:
        """Undo sending the newest message; False where the prompt is in use and its text is in the history only."""
        if self.under_way is not None:
            self.under_way.remove()
        self.under_way = self.newest = None
        self._app.refresh_bindings()
        text = self._app.conversation.take_back()
        self._transcript.remove_last_question()
        prompt = self._app.query_one(Prompt)
        if prompt.text.strip():
            return False
        prompt.replace_text(text)
        return True

    def _end(self, reply: Reply, note: str, error: bool = False) -> None:
        self._app.conversation.answer(reply.text, reply.thoughts)
        self.under_way = None
        self._app.unsay(_BUILDING)
        self._app.refresh_bindings()
        reply.show_note("")
        reply.end(note, error)
        self._app.call_later(garbage.collect_between_replies)

    def _tell_building(self, token: Token) -> None:
        """Say why a software device's next token may take long: at the first flip to flags it builds in mid-reply."""
        view = self._app.panel.view
        if self._waits_built or view.engine is None or view.settings is None or not view.engine.device.is_software:
            return
        timing = token.timing
        if timing.index > 0 and waits_in_memory(timing.mode, timing.barriers):
            self._waits_built = True
            self._app.unsay(_BUILDING)
        elif waits_in_memory(view.settings.mode, view.settings.barriers):
            self._app.say(_BUILDING)
        else:
            self._app.unsay(_BUILDING)

    def _ending(self, finish_reason: str, reply: Reply) -> str:
        thought = bool(reply.thoughts)
        answered = bool(reply.text.strip() if thought else reply.text)
        if finish_reason == "cancelled":
            if answered:
                return "stopped"
            return "stopped while it was thinking" if thought else "stopped before the first token"
        if finish_reason == "context":
            return "the context is full: the reply stops here, and the next message drops the oldest turns"
        if finish_reason == "length":
            return f"stopped at the limit of {self._app.options.max_tokens} tokens"
        if answered:
            return ""
        return f"the model ended its reply {'after thinking' if thought else 'at once'}: /regen tries again"
