"""Files that only save time: in the user's cache folder, whole or not there, and never a reason to fail."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_file(*parts: str) -> Path:
    """A file's place below zincchat's cache folder."""
    return user_cache_path("zincchat").joinpath(*parts)


def load(path: Path) -> bytes | None:
    """What ``store`` put there; None where it cannot be read or was damaged: a driver would crash on it."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    data = stored[_DIGEST_BYTES:]
    return data if hashlib.sha256(data).digest() == stored[:_DIGEST_BYTES] else None


def store(path: Path, data: bytes) -> None:
    """Replace a file by a digest and ``data``."""
    _replace(path, hashlib.sha256(data).digest() + data)


def _replace(path: Path, data: bytes) -> None:
    """In one step for threads and processes that read the file meanwhile; a failure leaves it as it was."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        partial.replace(path)
    except OSError:  # the disk is full
        partial.unlink(missing_ok=True)


def load_json(path: Path) -> dict[str, Any]:
    """A file's JSON object; empty where there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def store_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by a JSON object."""
    _replace(path, json.dumps(content, indent=1).encode())
