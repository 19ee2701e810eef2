"""From what ``--model`` says to a model on disk."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zincchat.cli.errors import Failure

if TYPE_CHECKING:
    from zincchat.hub.reference import Reference


def resolve_model(name: str | None) -> Path:
    """The GGUF file or Hugging Face folder that ``name`` means: a catalogue name, a path, or the default for None.

    A hub's ORG/REPO[:FILE] means what was pulled, where no path is called so. A file that is called like a catalogue
    model needs a folder before it (``./smollm2-135m``).
    Raises Failure for a model that is not on disk or a file that is missing, and click.BadParameter, listing the
    catalogue, for a name that means nothing.
    """
    from zincchat.catalogue import CATALOGUE, DEFAULT_MODEL, HUB_MODELS, known_names
    from zincchat.hub.reference import parse_reference

    if name is None:
        name = DEFAULT_MODEL
    path = Path(name)
    if name not in CATALOGUE and name not in HUB_MODELS:
        with contextlib.suppress(RuntimeError):  # ~ of a user who does not exist
            path = path.expanduser()
        if name and path.is_dir() and not (path / "config.json").is_file():
            raise Failure(
                f"{name} is a folder without a config.json; give a GGUF file or a Hugging Face model's folder"
            )
        if name and path.exists():
            return path
        is_file_name = path.suffix.lower() == ".gguf" and ":" not in name
        if parse_reference(name) is None or is_file_name:
            if path.suffix or len(path.parts) > 1:
                raise Failure(f"model file {name} does not exist")
            raise click.BadParameter(
                f"unknown model {name!r}; the catalogue has {known_names()}; or give a GGUF file, a Hugging Face "
                "folder or a hub's ORG/REPO",
                param_hint="--model",
            )
    found = find_model(name)
    if found is None:
        raise Failure(f"model {name} is not on this machine; run 'zincchat models pull {name}'")
    return found


def find_model(name: str) -> Path | None:
    """Where the model of the catalogue or of the hub's cache lies; None where it is not on this machine.

    Raises click.BadParameter for a name that is neither, and Failure where several models fit.
    """
    from zincchat.catalogue import CATALOGUE
    from zincchat.hub.cache import find_cached
    from zincchat.setup.errors import SetupError

    if (packaged := CATALOGUE.get(name)) is not None:
        return packaged.path if packaged.is_present else None
    try:
        cached = find_cached(hub_reference(name))
    except SetupError as error:
        raise Failure(str(error)) from error
    return None if cached is None else cached.path


def hub_reference(name: str) -> Reference:
    """What ``name``, of the catalogue or as ORG/REPO[:FILE], is called on the hub; raises click.BadParameter."""
    from zincchat.catalogue import HUB_MODELS, known_names
    from zincchat.hub.reference import parse_reference

    listed = HUB_MODELS.get(name)
    reference = parse_reference(name if listed is None else listed.reference)
    if reference is None:
        raise click.BadParameter(
            f"unknown model {name!r}; the catalogue has {known_names()}; or give a hub's ORG/REPO", param_hint="NAME"
        )
    return reference
