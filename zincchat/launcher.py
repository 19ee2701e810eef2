"""Starts zincchat, or any Python program of the project, on the Vulkan driver that the setup chose.

Where that is the cached one, the process replaces itself once by the same command under the driver's dynamic loader.
The driver is then chosen inside the process (``driver_environment``), so programs it starts are untouched: they run on
the machine's own libraries and see no variable. ``ZINCCHAT_DRIVER=system`` keeps the machine's own drivers.

    zincchat ...                                            the command itself
    python -m zincchat.launcher --exec -m MODULE ...        a module, such as pytest
    python -m zincchat.launcher --exec SCRIPT.py ...        a script
    python -m zincchat.launcher --rdna4 ...                 either of them, on the driver of a card that is not there
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_INTERRUPTED = 130
try:
    import runpy

    from zincchat import cached_driver, faked_card
except KeyboardInterrupt:
    sys.stderr.write("zincchat: interrupted\n")
    sys.exit(_INTERRUPTED)


def driver_environment() -> dict[str, str]:
    """The variables that the Vulkan loader of this process needs; empty on the machine's own drivers."""
    driver = cached_driver.chosen()
    return driver.environment() if driver is not None and driver.runs_here else {}


def select_driver() -> None:
    """Make this process run on the chosen driver, replacing it where that takes another dynamic loader.

    Raises SystemExit, with one line, where the cached driver cannot be started.
    """
    driver = cached_driver.chosen()
    if driver is not None and not driver.runs_here:
        _relaunch(driver)
    if variables := driver_environment():
        from engine import set_loader_environment

        set_loader_environment(variables)


def select_faked_card() -> None:
    """Make this process run on the driver of the faked card.

    Programs it starts run on the machine's own libraries and drivers, to which the variables left mean nothing.
    Raises SystemExit, with one line, where that driver is not there or cannot be started.
    """
    card = faked_card.load()
    if card is None:
        sys.exit("zincchat: the driver of the faked RDNA4 card is not here: run 'python -m zincchat.setup --rdna4'")
    if not card.runs_here:
        os.environ.update(card.start_environment())
        _relaunch(card)
    from engine import set_loader_environment

    set_loader_environment(card.environment())


def _relaunch(driver: cached_driver.CachedDriver) -> None:
    # sys.executable is not resolved: .venv/bin/python is what makes Python find the virtual environment.
    command = [*driver.prefix(), sys.executable, *sys.orig_argv[1:]]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the caller
            stream.flush()
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(
            f"zincchat: the cached Vulkan driver cannot be started ({error.strerror}): "
            "run 'make setup' again, or set ZINCCHAT_DRIVER=system to use the machine's own drivers"
        )


def main() -> int:
    """The ``zincchat`` command."""
    try:
        select_driver()
        from zincchat.cli import main as command

        return command() or 0
    except KeyboardInterrupt:  # while modules are imported, before the command line can take it
        sys.stderr.write("zincchat: interrupted\n")
        return _INTERRUPTED


def _execute(arguments: list[str]) -> None:
    """Run a module or script as the main program, with the rest of ``arguments`` as its own."""
    if arguments[:1] == ["-m"] and len(arguments) > 1:
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments and not arguments[0].startswith("-"):
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        sys.exit("usage: python -m zincchat.launcher --exec | --rdna4 (-m MODULE | SCRIPT) [ARGUMENT ...]")


if __name__ == "__main__":
    if sys.argv[1:2] in (["--exec"], ["--rdna4"]):
        (select_driver if sys.argv[1] == "--exec" else select_faked_card)()
        _execute(sys.argv[2:])
    else:
        sys.exit(main())
