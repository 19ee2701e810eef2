"""From what ``--model`` says to a model on disk."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from zincchat.cli.errors import Failure


def resolve_model(name: str | None) -> Path:
    """The GGUF file or Hugging Face folder that ``name`` means: a catalogue name, a path, or the default for None.

    A file that is called like a catalogue model needs a folder before it (``./smollm2-135m``).
    Raises Failure for a catalogue model that is not on disk or a file that is missing, and
    click.BadParameter, listing the catalogue, for a name that means nothing.
    """
    from zincchat.catalogue import CATALOGUE, DEFAULT_MODEL

    if name is None:
        name = DEFAULT_MODEL
    if (model := CATALOGUE.get(name)) is not None:
        if not model.is_present:
            raise Failure(f"model {name} is not on this machine; run 'zincchat models pull {name}'")
        return model.path
    path = Path(name)
    with contextlib.suppress(RuntimeError):  # ~ of a user who does not exist
        path = path.expanduser()
    if name and path.is_dir() and not (path / "config.json").is_file():
        raise Failure(f"{name} is a folder without a config.json; give a GGUF file or a Hugging Face model's folder")
    if name and path.exists():
        return path
    if path.suffix or len(path.parts) > 1:
        raise Failure(f"model file {name} does not exist")
    known = ", ".join(CATALOGUE)
    raise click.BadParameter(
        f"unknown model {name!r}; the catalogue has {known}; or give a GGUF file or a Hugging Face folder",
        param_hint="--model",
    )
