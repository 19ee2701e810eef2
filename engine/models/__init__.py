"""Architectures, one file each: a shape, the tensors it needs, and its nodes."""

from __future__ import annotations

from types import ModuleType

from engine.errors import EngineError
from engine.models import llama

ARCHITECTURES: dict[str, ModuleType] = {module.ARCHITECTURE: module for module in (llama,)}


def architecture(file_name: str, name: object) -> ModuleType:
    """The module of an architecture. Raise EngineError that names those there are."""
    module = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if module is None:
        what = (
            "the header names no architecture" if name is None else f"architecture {str(name)[:40]!r} is not supported"
        )
        raise EngineError(f"{file_name}: {what}; there is {', '.join(ARCHITECTURES)}")
    return module
