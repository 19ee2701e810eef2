"""The checkout's own Python environment, ``.venv``: made once, brought up to date when the lock file changes.

``make setup`` runs this with the machine's Python before anything is installed, so it needs the standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from zincchat.setup import child, pip
from zincchat.setup.console import say
from zincchat.setup.errors import SetupError, file_error, reported
from zincchat.setup.folders import write_atomically

_STAMP = "zincchat-stamp"


def prepare(checkout: Path) -> None:
    """Make ``checkout/.venv`` hold the locked dependencies and the checkout itself, editable.

    Quick where nothing changed. One that was made for another folder or Python version is made anew, since its scripts
    name their interpreter. One that could not be finished is removed if this call made it, and else keeps only half
    of its stamp, so that the next call mends it. Raises SetupError.
    """
    folder, python = checkout / ".venv", checkout / ".venv" / "bin" / "python"
    place, contents = f"{checkout} {sys.version_info[:2]}\n", _fingerprint(checkout)
    stamp = _read(folder / _STAMP)
    if python.exists() and stamp == place + contents:
        return
    made_here = not python.exists() or (stamp != "" and not stamp.startswith(place))
    try:
        if made_here:
            _make(folder)
        write_atomically(folder / _STAMP, place)
        _install(checkout, python)
        write_atomically(folder / _STAMP, place + contents)
    except OSError as error:
        _discard(folder, made_here)
        doing = "making the Python environment .venv"
        raise file_error(error, checkout, doing, "use a checkout in another folder") from error
    except BaseException:
        _discard(folder, made_here)
        raise


def _discard(folder: Path, made_here: bool) -> None:
    if made_here:
        shutil.rmtree(folder, ignore_errors=True)


def _fingerprint(checkout: Path) -> str:
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "requirements.lock"):
        digest.update((checkout / name).read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _make(folder: Path) -> None:
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SetupError(
            f"Python {version} here cannot make virtual environments: install its package "
            f"(Debian and Ubuntu: sudo apt-get install python{version}-venv) and try again"
        )
    say("preparing the Python environment .venv (once)")
    if folder.is_symlink() or folder.is_file():
        raise SetupError(f"{folder} is in the way: remove it and try again")
    made = child.run([sys.executable, "-m", "venv", "--clear", folder], environment=pip.environment())
    if made.status != 0:
        raise SetupError("the Python environment .venv cannot be made: see why with --debug", made.output)


def _install(checkout: Path, python: Path) -> None:
    say("installing the locked dependencies into .venv (about 300 MB on the disk; a minute or so)")
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--no-input", "--no-deps"]
    steps: tuple[list[str], ...] = (
        ["--require-hashes", "--retries", "2", "-r", "requirements.lock"],
        ["--no-build-isolation", "--editable", "."],
    )
    # An interrupted pip leaves its temporary files, so they get a folder that goes with this block.
    with tempfile.TemporaryDirectory(prefix="pip-", dir=checkout / ".venv") as scratch:
        environment = pip.environment(TMPDIR=scratch)
        for arguments in steps:
            done = child.run([*install, *arguments], environment=environment, folder=checkout)
            if done.status != 0:
                raise SetupError(f"the dependencies were not installed: {pip.reason(done.output)}", done.output)


def main() -> int:
    """Prepare the environment of the checkout in the current folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debug", action="store_true", help="show the raw output of a step that fails")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return reported(lambda: prepare(Path.cwd()), debug=arguments.debug)


if __name__ == "__main__":
    sys.exit(main())
