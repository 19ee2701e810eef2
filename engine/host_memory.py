"""How much of the computer's memory a process may still take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

_ROOT = Path("/")


def available_bytes(root: Path = _ROOT) -> int:
    """What the system has available, or less where a control group limits this process (a container, a slice).

    ``root`` holds /proc and /sys. Formats: the kernel's cgroup-v2.rst (memory.max, memory.current, memory.stat) and
    cgroup-v1/memory.rst (memory.limit_in_bytes, memory.usage_in_bytes).
    """
    return min([int(psutil.virtual_memory().available), *_left_in_groups(root)])


def _left_in_groups(root: Path) -> Iterator[int]:
    """What is left under the limit of each control group that this process is in, itself or by its parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            base, names = mount, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(base):
                break
            limit_bytes, used_bytes = (_number(folder / name) for name in names)
            if limit_bytes is not None and used_bytes is not None:
                yield max(0, limit_bytes - max(0, used_bytes - _file_cache(folder)))


def _number(path: Path) -> int | None:
    """The file's number; None where there is none, or "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _file_cache(folder: Path) -> int:
    """Bytes of cached files, which count as used but are given up when memory is needed."""
    try:
        words = dict(line.split(maxsplit=1) for line in (folder / "memory.stat").read_text().splitlines())
        return sum(int(words.get(f"{state}_file", "0")) for state in ("active", "inactive"))
    except (OSError, ValueError):
        return 0
