"""Which fusion passes pay on this device for this model: measured once, then remembered on disk.

A fused kernel can lose, through register pressure or work done twice, so each pass is timed against its absence.
Passes do not change a bit, so the choice never changes a text.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from engine.atomic_file import AtomicFile
from engine.errors import EngineError
from engine.vulkan.shader_path import shader_root

_ROUNDS = 3  # of a pair in ABBA order
_CLEARLY = 0.98  # a difference below 2% is noise, and fewer dispatches are the better guess


def choose(passes: Sequence[str], gpu_us: Callable[[tuple[str, ...]], float]) -> tuple[str, ...]:
    """The passes worth having: from all of them, drop each whose absence makes a token clearly faster.

    ``gpu_us`` runs a token's program with the given passes and returns its GPU time.
    """
    kept = tuple(passes)
    for name in passes:
        without = tuple(other for other in kept if other != name)
        with_us, without_us = [], []
        for _ in range(_ROUNDS):
            with_us.append(gpu_us(kept))
            without_us += [gpu_us(without), gpu_us(without)]
            with_us.append(gpu_us(kept))
        if statistics.median(without_us) < statistics.median(with_us) * _CLEARLY:
            kept = without
    return kept


class Choices:
    """The remembered choices, a JSON file; one that cannot be read or written only costs the measurement again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str, passes: Sequence[str]) -> tuple[str, ...] | None:
        """The choice remembered for ``key``; None where there is none, or it names passes that are gone."""
        found = self._read().get(key)
        if not isinstance(found, list) or not set(found) <= set(passes):
            return None
        return tuple(name for name in passes if name in found)

    def put(self, key: str, chosen: Sequence[str]) -> None:
        """Remember a choice."""
        with suppress(OSError, EngineError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with AtomicFile(self._path) as file:
                file.write(json.dumps({**self._read(), key: list(chosen)}, indent=1))
                file.commit()

    def _read(self) -> dict[str, object]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def choice_key(*parts: object) -> str:
    """A key for a device, a model's shape and today's kernels: another shader or driver measures anew."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode())
    for path in sorted(shader_root().rglob("*.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
