"""The small JSON files of a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import EngineError

MAX_FILE_BYTES = 1 << 24


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str | None:
    """A file's text, or None if there is none. EngineError where it is too large, unreadable or not UTF-8."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > max_bytes:
            raise EngineError(f"{path.name} has {size_bytes:,} bytes; more than {max_bytes:,} make no sense")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EngineError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise EngineError(f"{path.name} is not UTF-8 text: download it again") from error


def read_json_object(path: Path) -> dict[str, Any] | None:
    """A file's JSON object, or None if there is no file. EngineError where it is anything else."""
    text = read_text(path)
    if text is None:
        return None
    return json_object(text, path.name)


def json_object(text: str, name: str) -> dict[str, Any]:
    """The JSON object that the file ``name`` holds. EngineError where ``text`` is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise EngineError(f"{name} is not JSON{where}: download it again") from error
    if not isinstance(value, dict):
        raise EngineError(f"{name} must hold a JSON object, not {type(value).__name__}")
    return value
