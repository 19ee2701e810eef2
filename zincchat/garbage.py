"""Keeping the garbage collector from stopping the screen.

A full collection walks every object of the process: 50 to 90 ms with Textual and the engine loaded,
in which neither the screen nor the engine thread moves. So what exists once the model is loaded is set
aside for good, and full collections wait for the end of a reply.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 20_000
NEVER = 1_000_000


def settle() -> None:
    """Set everything that is alive now aside, and leave full collections to collect_between_replies."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, NEVER)


def collect_between_replies() -> None:
    """A full collection of what came since settle."""
    gc.collect()
