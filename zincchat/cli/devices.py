"""``zincchat devices``: what Vulkan offers here."""

from __future__ import annotations

from typing import Any

import click

from zincchat.cli import options, output


@click.command(short_help="List the Vulkan devices.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@options.debug_option
def devices(as_json: bool) -> None:
    """List the Vulkan devices; --device takes an index or part of a name."""
    from engine import list_devices

    found = list_devices()
    if as_json:
        output.print_json([_to_json(device) for device in found])
        return
    rows = [
        (
            str(device.index),
            device.name,
            "software (this CPU)" if device.is_software else device.kind,
            device.driver,
            device.api_version,
            output.bytes_text(device.memory_bytes),
        )
        for device in found
    ]
    click.echo(output.table(("index", "name", "kind", "driver", "Vulkan", "memory"), rows, numeric=(0, 5)))


def _to_json(device: Any) -> dict[str, Any]:
    names = ("index", "name", "kind", "driver", "api_version", "memory_bytes", "is_software")
    return {name: getattr(device, name) for name in names}
