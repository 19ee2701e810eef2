"""Which fusion passes pay on this device for this model: measured once, then remembered on disk.

A fused kernel can lose, through register pressure or work done twice, so each pass is timed against its absence.
Passes do not change a bit, so the choice never changes a text.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from engine import disk_cache
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


def remembered(key: str, passes: Sequence[str]) -> tuple[str, ...] | None:
    """The choice remembered for ``key``; None where there is none, or it names passes that are gone."""
    found = disk_cache.load_json(_file()).get(key)
    if not isinstance(found, list) or not all(name in passes for name in found):
        return None
    return tuple(name for name in passes if name in found)


def remember(key: str, chosen: Sequence[str]) -> None:
    """Keep a choice for the next start."""
    disk_cache.store_json(_file(), {**disk_cache.load_json(_file()), key: list(chosen)})


def _file() -> Path:
    return disk_cache.cache_file("fusion.json")


def choice_key(*parts: object) -> str:
    """A key for a device, a model's shape and today's kernels: another shader or driver measures anew."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode())
    for path in sorted(shader_root().rglob("*.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
