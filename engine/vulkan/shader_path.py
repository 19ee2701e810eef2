"""Where the GLSL sources are: inside an installed package, or beside the packages in a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_ENGINE = Path(__file__).resolve().parent.parent


@cache
def shader_root() -> Path:
    """The folder that holds the kernels and ``include/``. A wheel carries it as ``engine/_shaders``."""
    packaged = _ENGINE / "_shaders"
    return packaged if packaged.is_dir() else _ENGINE.parent / "shaders"
