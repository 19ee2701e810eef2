"""The line of progress on a terminal."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

import pytest

from zincchat.cli.loading import StatusLine


@pytest.mark.parametrize(("columns", "shown"), [(40, 39), (120, 119), (0, 79)])
def test_progress_never_wraps(monkeypatch: pytest.MonkeyPatch, columns: int, shown: int) -> None:
    """What wraps stays on the screen when the line is cleared. A terminal of 0 columns does not know its size."""
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        StatusLine().show("x" * 200)
        assert os.read(reader, 1000).count(b"x") == shown
    os.close(reader)
