"""A reply that grows while it is generated."""

from __future__ import annotations

import asyncio

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Markdown, Static

from zincchat.chat.markdown_blocks import BlockSplitter
from zincchat.widgets.tail import Tail
from zincchat.widgets.thoughts import Thoughts


class Reply(Vertical):
    """Closed Markdown blocks, and below them the unfinished one as plain text.

    Parsing Markdown at every token costs up to 100 ms in a growing table, so a block is parsed when it is
    closed, and where a later block could have changed it, the whole text once more at the end.
    """

    def __init__(self, speaker: str, thoughts_open: bool = False) -> None:
        """Start empty under the name of ``speaker``."""
        super().__init__()
        self._thoughts = Thoughts(thoughts_open)
        self._blank = ""
        self._speaker = Static(speaker, classes="speaker", markup=False)
        self._splitter = BlockSplitter()
        self._tail = Tail()
        self._note = Static("", classes="note", markup=False)
        self._note.display = False
        self._changed = asyncio.Event()
        self._ended = False
        self.complete = asyncio.Event()

    def compose(self) -> ComposeResult:
        """Name, thoughts, closed blocks, tail and note."""
        yield self._speaker
        yield self._thoughts
        yield Markdown(classes="closed")
        yield self._tail
        yield self._note

    def on_mount(self) -> None:
        """Start following the text."""
        self.run_worker(self._follow(), exclusive=True)

    def name_speaker(self, speaker: str) -> None:
        """Show ``speaker`` as the name above."""
        self._speaker.update(speaker)

    @property
    def text(self) -> str:
        """All text of the answer so far."""
        return self._blank + self._splitter.text

    @property
    def thoughts(self) -> str:
        """All that was thought before it."""
        return self._thoughts.text

    def think(self, piece: str, since_send_s: float) -> None:
        """Take in a token of the thoughts."""
        self._thoughts.feed(piece, since_send_s)

    def feed(self, piece: str) -> None:
        """Append ``piece``; it appears as soon as an earlier block has been mounted."""
        if self._thoughts.tokens and not self._splitter.text:  # blank lines part the answer from the thoughts
            visible = piece.lstrip("\n")
            self._blank += piece[: len(piece) - len(visible)]
            piece = visible
        if not piece:
            return
        self._thoughts.end()
        self._splitter.feed(piece)
        self._changed.set()

    def end(self, note: str = "", error: bool = False) -> None:
        """No more text will come; ``note`` says why where that is not plain."""
        self._thoughts.end()
        if note:
            self.show_note(note, error)
        self._ended = True
        self._changed.set()

    def show_note(self, note: str, error: bool = False) -> None:
        """Put one line below the text; an empty one removes it."""
        self._note.set_class(error, "error")
        self._note.display = bool(note)
        self._note.update(note)

    def on_resize(self) -> None:
        """Wrap the unfinished block anew."""
        self._changed.set()

    async def _follow(self) -> None:
        markdown = self.query_one(Markdown)
        while not self._ended:
            await self._changed.wait()
            self._changed.clear()
            if closed := self._splitter.take_closed():
                await markdown.append(closed)
            width = self.content_size.width or self.app.size.width
            self._tail.show(self._splitter.tail.strip("\n"), width)
        if self._splitter.needs_whole_parse:
            await markdown.update(self._splitter.text)
        elif rest := self._splitter.take_rest():
            await markdown.append(rest)
        self._tail.display = False
        self.complete.set()
