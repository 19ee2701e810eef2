"""Pulling a model into the hub's cache: what was cut off goes on where it stopped, and every byte is checked.

huggingface_hub 2.4 throws away what an ended process had of a file, and its Xet transfers keep nothing either. So the
large files come over plain HTTP, by its own ``http_get``, into a file under their final name that outlives the process;
it is hashed and handed over to the cache, where ``hf_hub_download`` finds it and makes the links.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Self

from zincchat.hub.cache import UNFINISHED, cache_folder, find_cached, index_files, repo_folder
from zincchat.hub.errors import hub_errors, is_unreachable
from zincchat.hub.reference import Reference
from zincchat.hub.variants import choose_variant, folder_files, gguf_variants
from zincchat.setup.console import megabytes, progress, say
from zincchat.setup.errors import SetupError

_SPARE_BYTES = 16_000_000
_TRIES = 5  # without a byte in between
# What a cut connection loses at most, and how often the progress moves; huggingface_hub's own is 10 MiB.
_CHUNK_BYTES = 256 << 10
_HTTP_LIMIT_BYTES = 50_000_000_000
_HASHED_BYTES = 4 << 20  # at a time
_SHOWN_BYTES = 1_000_000_000
_SHA256 = re.compile("[0-9a-f]{64}").fullmatch


@dataclass(frozen=True, slots=True)
class _File:
    """A file as the hub lists it; ``sha256`` is None for small ones, which git keeps."""

    path: str
    size_bytes: int
    sha256: str | None


def pull(reference: Reference) -> Path:
    """Bring the model that ``reference`` means; returns the path of its GGUF file or its folder of safetensors.

    Files that are here and whole are not fetched again; without a connection a model that is here is taken as it is.
    Raises SetupError with one line for anything that is wrong; what came of a file until then stays for the next pull.
    """
    with hub_errors(reference):
        try:
            files = _listing(reference.repo)
        except Exception as error:
            model = find_cached(reference) if is_unreachable(error) else None
            if model is None:
                raise
            say("the hub cannot be asked; the model on this machine is taken")
            return model.path
        variants = gguf_variants(files)
        if variants:
            chosen = choose_variant(reference, variants)
            paths = [_fetch(reference, files[path]) for path in chosen.paths]
            return paths[0]
        return _pull_folder(reference, files)


def _pull_folder(reference: Reference, files: dict[str, _File]) -> Path:
    names, is_indexed = folder_files(reference, files)
    paths = [_fetch(reference, files[name]) for name in names]
    if is_indexed:
        weights = index_files(paths[-1].read_text())
        absent = [name for name in weights if name not in files]
        if absent:
            raise SetupError(f"{reference.repo} lacks {absent[0]}, which its index names: take another conversion")
        for name in weights:
            _fetch(reference, files[name])
    return paths[0].parent


def _listing(repo: str) -> dict[str, _File]:
    from huggingface_hub import HfApi, constants

    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK_BYTES
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a retry is no news for the user
    info = HfApi(endpoint=constants.ENDPOINT).model_info(
        repo, files_metadata=True, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
    )
    files = {
        item.rfilename: _File(item.rfilename, item.size or 0, item.lfs.sha256 if item.lfs else None)
        for item in info.siblings or ()
    }
    for file in files.values():
        if not _stays_in_cache(file):
            raise ValueError(f"the hub lists {file}")
    return files


def _stays_in_cache(file: _File) -> bool:
    """Whether a file can be stored by its path and its checksum, as the cache does."""
    path = PurePosixPath(file.path)
    return not path.is_absolute() and ".." not in path.parts and (file.sha256 is None or bool(_SHA256(file.sha256)))


def _fetch(reference: Reference, file: _File) -> Path:
    """The file's place in the cache's snapshot, its bytes there and checked."""
    from huggingface_hub import constants, hf_hub_download

    if file.sha256 is not None:
        _fetch_blob(reference, file, repo_folder(reference.repo) / "blobs" / file.sha256)
    silent: Any = partial(_Bar, lambda _done_bytes: None)
    path = hf_hub_download(
        reference.repo, file.path, cache_dir=cache_folder(), endpoint=constants.ENDPOINT, tqdm_class=silent
    )
    return Path(path)


def _fetch_blob(reference: Reference, file: _File, blob: Path) -> None:
    if blob.is_file():
        if _has_hash(blob, file):
            return
        say(f"{file.path} is damaged: it is fetched again")
        blob.unlink()
    if file.size_bytes > _HTTP_LIMIT_BYTES:
        raise SetupError(f"{file.path} is larger than a hub hands out in one piece: take a model in parts")
    blob.parent.mkdir(parents=True, exist_ok=True)
    unfinished = blob.with_name(blob.name + UNFINISHED)
    with unfinished.open("ab") as sink:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(f"{file.path} is being pulled by another process: let that one finish") from error
        if not unfinished.exists():  # another process has finished it meanwhile
            return
        _require_space(file, sink.tell())
        _download(reference, file, sink)
        sink.flush()
        if not _has_hash(unfinished, file):
            unfinished.unlink()
            raise SetupError(f"{file.path} does not match its checksum and was deleted: pull it again")
        unfinished.replace(blob)


def _download(reference: Reference, file: _File, sink: Any) -> None:
    import httpx2
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(reference.repo, file.path, endpoint=constants.ENDPOINT)
    if sink.tell() > file.size_bytes:
        sink.truncate(0)
    if sink.tell():
        say(f"{file.path}: going on after {megabytes(sink.tell())}")
    with progress(Path(file.path).name, file.size_bytes) as show:
        bar: Any = partial(_Bar, show)
        tries = _TRIES
        while True:
            start = sink.seek(0, 2)
            try:
                http_get(
                    url,
                    sink,
                    resume_size=start,
                    headers=build_hf_headers(),
                    expected_size=file.size_bytes,
                    tqdm_class=bar,
                )
                return
            except httpx2.ReadError:  # a connection reset, which http_get does not take up again itself
                tries = _TRIES if sink.seek(0, 2) > start else tries - 1
                if tries == 0:
                    raise


class _Bar:
    """What ``http_get`` takes for a tqdm: it passes the bytes so far on to ``show``."""

    def __init__(self, show: Callable[[int], None], initial: int = 0, **_ignored: Any) -> None:
        self._show, self._done = show, initial
        show(initial)

    def update(self, count: int) -> None:
        """``count`` more bytes have come (fewer, where they have to come again)."""
        self._done += count
        self._show(self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return


def _has_hash(path: Path, file: _File) -> bool:
    """Whether the file is what the hub lists; a large one takes seconds, so it shows how far it is."""
    if path.stat().st_size != file.size_bytes:
        return False
    digest, done_bytes = hashlib.sha256(), 0
    shown = (
        progress(f"checking {Path(file.path).name}", file.size_bytes)
        if file.size_bytes > _SHOWN_BYTES
        else nullcontext()
    )
    with path.open("rb") as stored, shown as show:
        while piece := stored.read(_HASHED_BYTES):
            digest.update(piece)
            done_bytes += len(piece)
            if show is not None:
                show(done_bytes)
    return digest.hexdigest() == file.sha256


def _require_space(file: _File, have_bytes: int) -> None:
    needed_bytes = max(0, file.size_bytes - have_bytes) + _SPARE_BYTES
    folder = cache_folder()
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise SetupError(
            f"{file.path} needs {megabytes(needed_bytes)} more on the disk of {folder}, which has "
            f"{megabytes(free_bytes)} free: free some space, or set HF_HUB_CACHE to a folder on another disk"
        )
