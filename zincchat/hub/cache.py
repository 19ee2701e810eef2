"""The hub's cache on this machine: which models lie in it, and taking them away.

Layout: ``models--ORG--REPO`` holds ``refs/main`` (a commit), ``snapshots/COMMIT/FILE`` (links) and ``blobs/HASH``,
as huggingface_hub's guide to its cache describes. It is shared with other programs.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from zincchat.hub.endpoint import check_endpoint
from zincchat.hub.reference import Reference
from zincchat.hub.variants import CONFIG, INDEX, Variant, choose_variant, fitting, gguf_variants, variant_name
from zincchat.setup.errors import SetupError

_PREFIX = "models--"
UNFINISHED = ".incomplete"  # huggingface_hub's own ending, so that its tools clear them away too


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A complete model in the cache. ``path`` is its GGUF file (the first part) or its folder of safetensors."""

    name: str  # as --model takes it
    path: Path
    files: tuple[Path, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes on the disk."""
        return sum(file.stat().st_size for file in self.files)


def cache_folder() -> Path:
    """Where the cache is: HF_HUB_CACHE, else in HF_HOME, else the user's own. It need not exist.

    Raises SetupError where HF_ENDPOINT keeps huggingface_hub from being imported.
    """
    try:
        from huggingface_hub import constants
    except ValueError:
        check_endpoint()
        raise

    return Path(constants.HF_HUB_CACHE)


def repo_folder(repo: str) -> Path:
    """Where the cache keeps a repository."""
    return cache_folder() / (_PREFIX + repo.replace("/", "--"))


def cached_models() -> list[CachedModel]:
    """Every complete model in the cache, by name. What cannot be read counts as absent."""
    found: list[CachedModel] = []
    for folder in sorted(cache_folder().glob(f"{_PREFIX}*--*")):
        repo = folder.name.removeprefix(_PREFIX).replace("--", "/", 1)
        snapshot = _snapshot(folder)
        if snapshot is not None:
            found += _models_of(repo, snapshot)
    return found


def find_cached(reference: Reference) -> CachedModel | None:
    """The model that ``reference`` means where it lies complete in the cache.

    One without a part means the only model of the repository there, else the one that pulling it would choose.
    Raises SetupError where several fit.
    """
    snapshot = _snapshot(repo_folder(reference.repo))
    models = [] if snapshot is None else _models_of(reference.repo, snapshot)
    if reference.part is None and len(models) == 1:
        return models[0]
    if snapshot is None:
        return None
    variants = _whole_variants(_files(snapshot))
    if not fitting(reference.part, variants):
        return None
    chosen = choose_variant(reference, variants)
    return next(model for model in models if model.path == snapshot / chosen.paths[0])


def remove_cached(model: CachedModel) -> int:
    """Delete a model's files from the cache and return the bytes freed; its repository's too with the last model.

    Files that other revisions share stay with those. Raises OSError.
    """
    folder = next(parent for parent in model.path.parents if parent.name.startswith(_PREFIX))
    before = _stored_bytes(folder)
    for file in model.files:
        blob = file.resolve() if file.is_symlink() else None
        file.unlink(missing_ok=True)
        if blob is not None and blob.parent == folder / "blobs" and blob not in _linked_blobs(folder):
            blob.unlink(missing_ok=True)
    snapshots = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
    if not any(_models_of("", snapshot) for snapshot in snapshots):
        shutil.rmtree(folder)
        return before
    return before - _stored_bytes(folder)


def remove_unfinished(repo: str) -> int:
    """Delete what an unfinished pull of ``repo`` left; returns its bytes. Raises OSError."""
    removed_bytes = 0
    for file in (repo_folder(repo) / "blobs").glob(f"*{UNFINISHED}"):
        removed_bytes += file.stat().st_size
        file.unlink()
    return removed_bytes


def _snapshot(folder: Path) -> Path | None:
    """The repository's files at its main branch, else those that came last."""
    try:
        path = folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
        if path.is_dir():
            return path
    except (OSError, ValueError):
        pass
    try:
        return max((folder / "snapshots").iterdir(), key=lambda path: path.stat().st_mtime)
    except (OSError, ValueError):
        return None


def _files(snapshot: Path) -> list[str]:
    """Paths of its files, those whose blob is gone left out."""
    found = []
    for parent, _folders, names in os.walk(snapshot):
        found += [Path(parent, name).relative_to(snapshot).as_posix() for name in names if Path(parent, name).exists()]
    return found


def _whole_variants(paths: list[str]) -> list[Variant]:
    return [variant for variant in gguf_variants(paths) if variant.is_complete]


def _models_of(repo: str, snapshot: Path) -> list[CachedModel]:
    paths = _files(snapshot)
    variants = _whole_variants(paths)
    found = [
        CachedModel(
            variant_name(repo, variant, variants),
            snapshot / variant.paths[0],
            tuple(snapshot / path for path in variant.paths),
        )
        for variant in variants
    ]
    if not found and CONFIG in paths:
        weights = _weights(snapshot, paths)
        if weights and all(name in paths for name in weights):
            found.append(CachedModel(repo, snapshot, tuple(snapshot / path for path in paths)))
    return found


def _weights(snapshot: Path, paths: list[str]) -> list[str]:
    """The safetensors files a folder needs; none where that cannot be told."""
    if INDEX not in paths:
        return [path for path in paths if path.endswith(".safetensors") and "/" not in path][:1]
    try:
        return index_files((snapshot / INDEX).read_text())
    except (OSError, SetupError):
        return []


def index_files(text: str) -> list[str]:
    """The safetensors files that an index names. Raises SetupError where it is none."""
    try:
        names = set(json.loads(text)["weight_map"].values())
        if not names or not all(isinstance(name, str) and name.endswith(".safetensors") for name in names):
            raise ValueError("no weights")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SetupError(f"{INDEX} is damaged: pull the model again", str(error)) from error
    return sorted(names)


def _linked_blobs(folder: Path) -> set[Path]:
    return {
        Path(parent, name).resolve()
        for parent, _folders, names in os.walk(folder / "snapshots")
        for name in names
        if Path(parent, name).is_symlink()
    }


def _stored_bytes(folder: Path) -> int:
    """Bytes of the files below ``folder``, links not followed."""
    return sum(os.lstat(Path(parent, name)).st_size for parent, _folders, names in os.walk(folder) for name in names)
