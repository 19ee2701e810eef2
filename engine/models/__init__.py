"""Architectures, one file each: a shape, the tensors it needs, and its nodes."""

from __future__ import annotations

from engine.errors import EngineError
from engine.models import gemma3, llama, qwen2, qwen3, qwen35, smollm3
from engine.models.architecture import Architecture

_MODULES: tuple[Architecture, ...] = (llama, qwen2, qwen3, qwen35, gemma3, smollm3)
ARCHITECTURES = {module.ARCHITECTURE: module for module in _MODULES}


def architecture(file_name: str, name: object) -> Architecture:
    """The module of an architecture. Raise EngineError that names those there are."""
    module = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if module is None:
        what = (
            "the header names no architecture" if name is None else f"architecture {str(name)[:40]!r} is not supported"
        )
        raise EngineError(f"{file_name}: {what}; there is {', '.join(ARCHITECTURES)}")
    return module
