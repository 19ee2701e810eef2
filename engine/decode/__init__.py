"""Decoding: one file a mode, and the sampling parameters. Adding a mode is a file and an entry here."""

from __future__ import annotations

from collections.abc import Callable

from engine.decode.overlap import Overlap
from engine.decode.persistent import Persistent
from engine.decode.pipelined import Pipelined
from engine.decode.rerecord import Rerecord
from engine.decode.reuse import Reuse
from engine.decode.step import Mode, Resources

MODE_CLASSES: dict[str, Callable[[Resources], Mode]] = {
    "rerecord": Rerecord,
    "overlap": Overlap,
    "reuse": Reuse,
    "pipelined": Pipelined,
    "persistent": Persistent,
}
MODES = tuple(MODE_CLASSES)
