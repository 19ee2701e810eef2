"""What the model thought before it answered: one line that unfolds."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from zincchat.chat.markdown_blocks import BlockSplitter
from zincchat.widgets.tail import Tail


class Thoughts(Vertical):
    """Counts tokens and seconds while the model thinks; a click on that line shows the text below it, or hides it.

    Takes no room before the first token. The text is drawn once for all tokens that arrived together, and only
    while it is unfolded.
    """

    def __init__(self, is_open: bool = False) -> None:
        """Start without any thought."""
        super().__init__()
        self.is_open = is_open
        self.tokens = 0
        self._seconds = 0.0
        self._started_s = 0.0
        self._ended = False
        self._splitter = BlockSplitter()
        self._title = Static("", classes="title", markup=False)
        self._tail = Tail()
        self._text = Vertical(self._tail, classes="text")
        self._drawing = False
        self.display = False

    def compose(self) -> ComposeResult:
        """The line, and the text below it."""
        yield self._title
        yield self._text

    def on_mount(self) -> None:
        """Show what came before there was a place for it."""
        self._draw_soon()

    @property
    def text(self) -> str:
        """All thoughts so far."""
        return self._splitter.text

    def feed(self, piece: str, since_send_s: float) -> None:
        """Take in a token, which arrived ``since_send_s`` after the question was sent; its text may be empty."""
        if not self.tokens:
            self._started_s = since_send_s
            self.display = True
        self.tokens += 1
        self._seconds = since_send_s - self._started_s
        self._splitter.feed(piece)
        self._draw_soon()

    def end(self) -> None:
        """The answer has begun, or no more will come."""
        if not self._ended:
            self._ended = True
            self._draw_soon()

    def set_open(self, is_open: bool) -> None:
        """Unfold the text or fold it."""
        self.is_open = is_open
        self._draw_soon()

    def on_click(self) -> None:
        """Unfold or fold."""
        self.set_open(not self.is_open)

    def on_resize(self) -> None:
        """Wrap the unfinished paragraph anew."""
        self._draw_soon()

    def _draw_soon(self) -> None:
        if not self._drawing:
            self._drawing = True
            self.call_later(self._draw)

    def _draw(self) -> None:
        self._drawing = False
        if not self.tokens or not self._text.is_mounted:
            return
        count = "1 token" if self.tokens == 1 else f"{self.tokens:,} tokens"
        state = "thought for" if self._ended else "thinking:"
        line = f"{'▾' if self.is_open else '▸'} {state} {count} / {self._seconds:.1f} s · Ctrl+F"
        self._title.update(line, layout=False)
        self._text.display = self.is_open
        if not self.is_open:
            return
        if closed := self._splitter.take_closed().strip("\n"):
            self._text.mount(Static(closed, classes="closed", markup=False), before=self._tail)
        self._tail.show(self._splitter.tail.strip("\n"), self._text.content_size.width or self.app.size.width)
