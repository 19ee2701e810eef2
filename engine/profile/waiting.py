"""What waits for what between a token's kernels, by mode and barrier policy: it decides what bubbles mean."""

from __future__ import annotations

from engine.program.schedule import FLAGS

_PERSISTENT = "persistent"


def waits_in_memory(mode: str, barriers: str) -> bool:
    """Whether dispatches wait in memory and no barrier is recorded: mode persistent has grid barriers regardless."""
    return barriers == FLAGS and mode != _PERSISTENT


def loads_ahead(mode: str, barriers: str) -> bool:
    """Whether a kernel's weights are on their way before it counts as started: in bubbles, and in the kernel before."""
    return mode == _PERSISTENT or barriers == FLAGS
