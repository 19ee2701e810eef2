"""Which fusion passes pay on this device for this model: measured once, then remembered on disk.

A fused kernel can lose, through register pressure or work done twice, so each pass is timed against its absence.
Passes do not change a bit, so the choice never changes a text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from engine import disk_cache
from engine.vulkan.shader_path import shader_root

_ROUNDS = 3  # of a pair in ABBA order
_CLEARLY = 0.97  # a difference below 3% is noise, and fewer dispatches are the better guess


def choose(passes: Sequence[str], gpu_us: Callable[[tuple[str, ...]], float]) -> tuple[str, ...]:
    """The passes worth having: from all of them, drop each whose absence makes a token clearly faster, twice.

    ``gpu_us`` runs a token's program with the given passes and returns its GPU time.
    """
    kept = tuple(passes)
    for name in passes:
        without = tuple(other for other in kept if other != name)
        if all(_clearly_faster(without, kept, gpu_us) for _ in range(2)):
            kept = without
    return kept


def _clearly_faster(one: tuple[str, ...], other: tuple[str, ...], gpu_us: Callable[[tuple[str, ...]], float]) -> bool:
    times = [[gpu_us(other), gpu_us(one), gpu_us(one), gpu_us(other)] for _ in range(_ROUNDS)]
    # the least of several: other work on the machine only ever adds time
    least_us = min(min(row[1:3]) for row in times)
    other_least_us = min(min(row[0], row[3]) for row in times)
    return least_us < other_least_us * _CLEARLY


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
