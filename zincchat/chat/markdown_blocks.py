"""Where growing Markdown text can be cut so that what lies before the cut will not change again."""

from __future__ import annotations

import re

_REFERENCE_OR_TABLE = re.compile(r"^ {0,3}\[[^\]]+\]:|^[ |:-]*-[ :]*\|[ |:-]*$", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class BlockSplitter:
    """Follows text as it grows and finds the end of its closed blocks, reading each line once.

    A block is closed by a blank line outside a code fence, or by the line that ends a fence.
    """

    def __init__(self) -> None:
        """Start at the beginning of an empty text."""
        self._text = ""
        self._scanned = 0
        self._closed = 0
        self._taken = 0
        self._fence = ""

    @property
    def text(self) -> str:
        """All text so far."""
        return self._text

    def feed(self, piece: str) -> None:
        """Append ``piece`` and look at the lines that it completed."""
        self._text += piece
        while (end := self._text.find("\n", self._scanned)) >= 0:
            line = self._text[self._scanned : end]
            self._scanned = end + 1
            fence = _FENCE.match(line)
            if self._fence:
                if fence and fence[1].startswith(self._fence) and not line.strip(" `~"):
                    self._fence = ""
                    self._closed = self._scanned
            elif fence:
                self._fence = fence[1]
            elif not line.strip():
                self._closed = self._scanned

    def take_closed(self) -> str:
        """The text of blocks closed since the last call."""
        closed = self._text[self._taken : self._closed]
        self._taken = self._closed
        return closed

    @property
    def needs_whole_parse(self) -> bool:
        """Whether adding block after block may differ from parsing the whole text at once.

        A link reference reaches back to earlier blocks, and Textual's Markdown makes cells that do not
        respond to links where it extends a table.
        """
        return _REFERENCE_OR_TABLE.search(self._text) is not None

    def take_rest(self) -> str:
        """All text not handed out yet, closed or not."""
        rest = self.tail
        self._taken = len(self._text)
        return rest

    @property
    def tail(self) -> str:
        """The text that take_closed has not handed out yet."""
        return self._text[self._taken :]
