"""Architectures, one file each: a shape, the tensors it needs, and its nodes.

Each is a module that meets Architecture, or an object in one.
"""

from __future__ import annotations

from engine.errors import EngineError
from engine.models import gemma3, llama, qwen35, smollm3
from engine.models.architecture import Architecture
from engine.models.qwen2 import QWEN2
from engine.models.qwen3 import QWEN3

_ALL: tuple[Architecture, ...] = (llama, QWEN2, QWEN3, qwen35, gemma3, smollm3)
ARCHITECTURES = {one.ARCHITECTURE: one for one in _ALL}


def architecture(file_name: str, name: object) -> Architecture:
    """The architecture of that name. Raise EngineError that names those there are."""
    found = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if found is None:
        what = (
            "the header names no architecture" if name is None else f"architecture {str(name)[:40]!r} is not supported"
        )
        raise EngineError(f"{file_name}: {what}; there is {', '.join(ARCHITECTURES)}")
    return found
