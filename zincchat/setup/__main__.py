"""``python -m zincchat.setup``: the default model and a Vulkan driver, each brought only where it is missing."""

from __future__ import annotations

import argparse
import signal
import sys

from zincchat.catalogue import CATALOGUE, DEFAULT_MODEL
from zincchat.setup.console import say
from zincchat.setup.driver import ensure_driver, remove_driver
from zincchat.setup.errors import reported
from zincchat.setup.model import fetch_model
from zincchat.setup.rdna4 import ensure_faked_card, remove_faked_card


def main(arguments: list[str] | None = None) -> int:
    """Run the steps in order and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m zincchat.setup", description=__doc__)
    parser.add_argument("--debug", action="store_true", help="show the raw output of a step that fails")
    parser.add_argument("--remove-driver", action="store_true", help="remove the cached Vulkan driver and exit")
    parser.add_argument("--rdna4", action="store_true", help="bring the driver of the faked RDNA4 card and exit")
    parser.add_argument("--remove-rdna4", action="store_true", help="remove the driver of the faked card and exit")
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    step = _prepare
    if chosen.remove_driver:
        step = _remove_driver
    elif chosen.remove_rdna4:
        step = _remove_faked_card
    elif chosen.rdna4:
        step = ensure_faked_card
    return reported(step, debug=chosen.debug)


def _prepare() -> None:
    fetch_model(CATALOGUE[DEFAULT_MODEL])
    ensure_driver()


def _remove_driver() -> None:
    say("the cached Vulkan driver was removed" if remove_driver() else "there is no cached Vulkan driver")


def _remove_faked_card() -> None:
    removed = remove_faked_card()
    say("the driver of the faked card was removed" if removed else "there is no driver of a faked card")


if __name__ == "__main__":
    sys.exit(main())
