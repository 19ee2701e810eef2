"""What models there are: the catalogue's and those in the hub's cache, each with what is known of it here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zincchat.catalogue import CATALOGUE, HUB_MODELS
from zincchat.hub.cache import CachedModel, cached_models

if TYPE_CHECKING:
    from engine import DeviceRoom, ModelOnDisk


@dataclass(frozen=True, slots=True)
class Entry:
    """A model by the name that --model takes. What its headers say is there only with a ``path``."""

    name: str
    description: str | None  # None outside the catalogue
    licence: str | None
    source: str  # what pulling it asks for: ORG/REPO:FILE, or a Python package
    size_bytes: int
    download_bytes: int
    path: Path | None
    headers: ModelOnDisk | None
    problem: str | None  # why it cannot be run

    @property
    def title(self) -> str:
        """What the model is, in a few words."""
        if self.description is not None or self.headers is None:
            return self.description or "?"
        count = self.headers.parameters
        size = f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"
        return f"{self.headers.architecture} {size}, {self.headers.quantisation}"


def inventory(room: DeviceRoom | None) -> list[Entry]:
    """The catalogue, then what else lies in the hub's cache; ``room`` is the device's that must hold them."""
    entries = [
        _entry(
            (model.name, model.description, model.licence, model.requirement),
            (model.file_bytes, model.download_bytes),
            model.path if model.is_present else None,
            room,
        )
        for model in CATALOGUE.values()
    ]
    for hub_model in HUB_MODELS.values():
        sizes = hub_model.file_bytes, hub_model.file_bytes
        naming = hub_model.name, hub_model.description, hub_model.licence, hub_model.reference
        entries.append(_entry(naming, sizes, hub_model.path, room))
    listed = {entry.path for entry in entries}
    return entries + [_cached(model, room) for model in cached_models() if model.path not in listed]


def _cached(model: CachedModel, room: DeviceRoom | None) -> Entry:
    size = model.size_bytes
    return _entry((model.name, None, None, model.name), (size, size), model.path, room)


def _entry(
    naming: tuple[str, str | None, str | None, str],
    sizes: tuple[int, int],
    path: Path | None,
    room: DeviceRoom | None,
) -> Entry:
    from engine import EngineError, inspect_model

    headers, problem = None, None
    if path is not None:
        try:
            headers = inspect_model(path, room)
            problem = headers.problem
        except EngineError as error:
            problem = str(error)
    return Entry(*naming, *sizes, path, headers, problem)
