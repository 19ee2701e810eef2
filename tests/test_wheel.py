"""What a user installs: a wheel that starts in an empty environment and finds its shaders."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=CHECKOUT)
    (built,) = folder.glob("zincchat-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel in it; the dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", wheel]
    _run(sys.executable, "-m", "pip", "--python", python, *install)
    packages = Path(_run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _run(*command: object, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"ZINCCHAT_DATA": str(tmp_path), "ZINCCHAT_DRIVER": "system"}


def test_the_command_starts(python, tmp_path):
    printed = _run(python.parent / "zincchat", "--version", cwd=tmp_path, env=_environment(tmp_path))
    assert printed == "zincchat 0.1.0\n"


def test_the_installed_engine_finds_its_own_shaders(python, tmp_path):
    script = (
        "import zincchat, engine; from engine.vulkan.shader_path import shader_root; "
        "print(zincchat.__file__, engine.__file__, shader_root(), sep='\\n')"
    )
    lines = _run(python, "-c", script, cwd=tmp_path, env=_environment(tmp_path)).splitlines()
    root = python.parents[1]
    assert all(Path(line).is_relative_to(root) for line in lines)
    shaders = Path(lines[2])
    for source in (CHECKOUT / "shaders").rglob("*.*"):
        assert (shaders / source.relative_to(CHECKOUT / "shaders")).read_bytes() == source.read_bytes()
    assert list(shaders.glob("*.comp"))


def test_a_checkout_finds_the_shaders_beside_its_packages():
    from engine.vulkan.shader_path import shader_root

    assert shader_root() == CHECKOUT / "shaders"


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"zincchat", "engine", "zincchat-0.1.0.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_lock_names_no_host_and_a_hash_for_every_dependency():
    text = (CHECKOUT / "requirements.lock").read_text()
    assert "://" not in text
    assert "index-url" not in text
    lines = text.splitlines()
    packages = [line for line in lines if line and line[0].isalnum()]
    assert len(packages) > 40
    assert all(line.endswith("\\") for line in packages)
