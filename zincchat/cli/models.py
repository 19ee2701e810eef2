"""``zincchat models``: the catalogue and what of it is on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zincchat.cli import options, output
from zincchat.cli.errors import Failure, Invocation

if TYPE_CHECKING:
    from zincchat.catalogue import CatalogueModel


@click.group(short_help="List, fetch, find and remove models.")
@options.debug_option
def models() -> None:
    """List, fetch, find and remove the models that --model takes by name."""


def _catalogue_model(name: str) -> CatalogueModel:
    """The catalogue's entry; raises click.BadParameter, listing the names, for an unknown one."""
    from zincchat.catalogue import CATALOGUE

    model = CATALOGUE.get(name)
    if model is None:
        known = ", ".join(CATALOGUE)
        raise click.BadParameter(f"unknown model {name!r}; the catalogue has {known}", param_hint="NAME")
    return model


@models.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@options.debug_option
def list_models(as_json: bool) -> None:
    """List the catalogue."""
    from zincchat.catalogue import CATALOGUE

    if as_json:
        output.print_json([_to_json(model) for model in CATALOGUE.values()])
        return
    rows = [
        (
            model.name,
            model.description,
            output.bytes_text(model.file_bytes),
            model.licence,
            str(model.path) if model.is_present else f"not here: zincchat models pull {model.name}",
        )
        for model in CATALOGUE.values()
    ]
    click.echo(output.table(("name", "model", "size", "licence", "file"), rows, numeric=(2,)))


def _to_json(model: CatalogueModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "description": model.description,
        "size_bytes": model.file_bytes,
        "download_bytes": model.download_bytes,
        "licence": model.licence,
        "on_disk": model.is_present,
        "path": str(model.path),
    }


@models.command(name="path")
@click.argument("name")
@options.debug_option
def model_path(name: str) -> None:
    """Print the path of NAME's file."""
    model = _catalogue_model(name)
    if not model.is_present:
        raise Failure(f"model {name} is not on this machine; run 'zincchat models pull {name}'")
    click.echo(str(model.path))


@models.command()
@click.argument("name")
@options.debug_option
@click.pass_obj
def pull(invocation: Invocation, /, name: str) -> None:
    """Fetch NAME, checked by its SHA-256, into the data folder."""
    model = _catalogue_model(name)
    from zincchat.setup.errors import SetupError
    from zincchat.setup.model import fetch_model, is_intact, remove_model

    try:
        if model.is_present:
            if is_intact(model):
                click.echo(f"{name} is already here: {model.path}", err=True)
                return
            click.echo(f"{model.path} is damaged: it is fetched again", err=True)
            remove_model(model)
        path = fetch_model(model)
    except SetupError as error:
        if invocation.debug and error.detail:
            click.echo(error.detail.rstrip(), err=True)
        raise Failure(str(error)) from error
    click.echo(f"{name} is at {path}", err=True)


@models.command()
@click.argument("name")
@options.debug_option
def remove(name: str) -> None:
    """Delete NAME's file from the data folder."""
    model = _catalogue_model(name)
    from zincchat.setup.model import remove_model

    try:
        removed = remove_model(model)
    except OSError as error:
        raise Failure(f"{model.path} could not be removed: {error.strerror}") from error
    if not removed:
        raise Failure(f"model {name} is not on this machine; there is nothing to remove")
    click.echo(f"removed {model.path} ({output.bytes_text(model.file_bytes)})", err=True)
