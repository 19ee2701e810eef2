"""Helpers that drive the app as a user would and read what the user would see."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest import mock

from textual.pilot import Pilot
from textual.widgets import Static

from tests.zincchat.fake_engine import FakeEngine, opener
from tests.zincchat.fake_session import FakeSession
from zincchat.app import ChatApp
from zincchat.options import ChatOptions
from zincchat.widgets.figures import Figures
from zincchat.widgets.panel_header import PanelHeader
from zincchat.widgets.prompt import Prompt
from zincchat.widgets.token_bars import TokenBars
from zincchat.widgets.transcript import Transcript

WIDE = (140, 42)
NARROW = (80, 24)
MESSAGES_DEEP = 4  # of messages, each sent by the handler of the one before; a key press waits twice


class Chat:
    """A running app with its pilot and its engine."""

    def __init__(self, app: ChatApp, pilot: Pilot[None], open_engine: Any) -> None:
        self.app, self.pilot = app, pilot
        self._open_engine = open_engine

    @property
    def engine(self) -> FakeEngine:
        return self._open_engine.made

    @property
    def session(self) -> FakeSession:
        session = self.engine.newest_session
        assert session is not None
        return session

    async def until(self, condition: Callable[[], Any], seconds: float = 60) -> None:
        end = time.perf_counter() + seconds
        while not condition():
            assert time.perf_counter() < end, f"waited {seconds} s in vain; the chat shows:\n{self.transcript}"
            await self.pilot.pause(0.01)

    def go_on(self) -> None:
        """Let a model that is held while it loads, or an engine that is held, go on."""
        self._open_engine.go_on.set()
        if made := getattr(self._open_engine, "made", None):
            made.go_on.set()

    async def loaded(self) -> None:
        await self.until(lambda: self.app.panel.view.engine is not None)

    async def drained(self) -> None:
        """Wait until everything that the engine thread has said is on screen, the device's figures included."""
        app = self.app
        await self.until(
            lambda: app.panel.view.device is not None and not app.engine_thread.events and not app.panel._changed
        )
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        self.app.query_one(Prompt).insert(text)
        await self.pilot.pause()

    async def enter(self, text: str) -> None:
        await self.type(text)
        await self.pilot.press("enter")

    async def ask(self, text: str) -> str:
        """Send a message and wait for the whole reply."""
        await self.enter(text)
        await self.until(lambda: self.app.replies.newest is not None and self.app.replies.newest.complete.is_set())
        await self.drained()
        return self.reply

    @property
    def reply(self) -> str:
        return self.app.replies.newest.text if self.app.replies.newest else ""

    @property
    def prompt(self) -> str:
        return self.app.query_one(Prompt).text

    @property
    def status(self) -> str:
        line = self.app.query_one("#status", Static)
        return str(line.content) if line.display else ""

    @property
    def transcript(self) -> str:
        """Every visible line of plain text in the chat; replies by their source."""
        lines = self.app.query_one(Transcript).walk_children(Static)
        return "\n".join(str(line.content) for line in lines if line.display and not line.has_class("tail"))

    @property
    def header(self) -> str:
        return self.app.query_one(PanelHeader).plain

    @property
    def figures(self) -> str:
        return self.app.query_one(Figures).plain

    @property
    def bars(self) -> list[str]:
        return self.app.query_one(TokenBars).plain.split("\n")


@contextlib.asynccontextmanager
async def chatting(
    size: tuple[int, int] = WIDE,
    options: ChatOptions | None = None,
    wait: bool = True,
    **engine: Any,
) -> AsyncIterator[Chat]:
    """An app on a fake engine; by default once the model has loaded."""
    open_engine = opener(**engine)
    patience = mock.patch("zincchat.engine_thread.SLOWEST_STOP_S", 60)  # a busy machine's engine is closed all the same
    app = ChatApp(open_engine, options)  # type: ignore[arg-type]
    with patience:
        async with app.run_test(size=size) as pilot:

            async def handled(*_: float) -> None:
                for _ in range(MESSAGES_DEEP):
                    await pilot.pause(0)

            # Textual's own wait looks for an idle process: too early where it gets no processor, and a second where a
            # reply streams
            with mock.patch("textual.app.wait_for_idle", handled), mock.patch("textual.pilot.wait_for_idle", handled):
                chat = Chat(app, pilot, open_engine)
                if wait:
                    await chat.loaded()
                yield chat
