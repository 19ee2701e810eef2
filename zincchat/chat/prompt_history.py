"""Earlier messages, to be had back with the up and down keys, kept in the data folder for the user alone."""

from __future__ import annotations

import json
from pathlib import Path

MAX_ENTRIES = 500


class PromptHistory:
    """Sent messages, oldest first, with a cursor that walks them; the unsent draft is kept below the newest."""

    def __init__(self, path: Path | None = None) -> None:
        """Read ``path`` (JSON, one string a line) where it exists; with None nothing is stored."""
        self._path = path
        self._entries: list[str] = []
        self._cursor = 0
        self._draft = ""
        self.problem: str | None = None
        if path is not None:
            self._load(path)
        self._cursor = len(self._entries)

    def _load(self, path: Path) -> None:
        try:
            if path.exists() and not path.is_file():  # reading a pipe or a device may never end
                raise OSError(0, "not a regular file")
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            self._give_up(f"the prompt history {path} cannot be read ({_reason(error)})")
            return
        for line in lines[-MAX_ENTRIES:]:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue  # a line cut off by a full disk or a killed process costs that line only
            if isinstance(entry, str):
                self._entries.append(entry)

    def _give_up(self, problem: str) -> None:
        self.problem = f"{problem}; it lasts for this session only"
        self._path = None

    def add(self, text: str) -> None:
        """Append a sent message and put the cursor below it; an unwritable folder sets ``problem`` once."""
        if not self._entries or self._entries[-1] != text:
            self._entries.append(text)
            self._store(text)
        self._cursor = len(self._entries)
        self._draft = ""

    def _store(self, text: str) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch(mode=0o600)  # what is said to a model is nobody else's to read
            if len(self._entries) > 2 * MAX_ENTRIES:
                self._entries = self._entries[-MAX_ENTRIES:]
                self._path.write_text("".join(json.dumps(entry) + "\n" for entry in self._entries), encoding="utf-8")
            else:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(text) + "\n")
        except OSError as error:
            self._give_up(f"the prompt history {self._path} cannot be written ({_reason(error)})")

    def older(self, current: str) -> str | None:
        """The message before the cursor, or None at the oldest; ``current`` is kept when leaving the draft."""
        if self._cursor == 0:
            return None
        if self._cursor == len(self._entries):
            self._draft = current
        self._cursor -= 1
        return self._entries[self._cursor]

    def newer(self) -> str | None:
        """The message after the cursor, then the draft, then None."""
        if self._cursor >= len(self._entries):
            return None
        self._cursor += 1
        return self._draft if self._cursor == len(self._entries) else self._entries[self._cursor]


def _reason(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "not UTF-8 text"
