"""pip as a program: where it runs and what its failures mean."""

from __future__ import annotations

import os
import re

_REASONS = (
    (r"No space left on device|Disk quota exceeded", "the disk is full: free some space"),
    (r"HASHES|do not match the hashes|Hashes are required", "a download does not match its hash in requirements.lock"),
    (
        r"(NewConnection|NameResolution|Proxy|SSL)Error|Temporary fail|Connection refused|[Tt]imed? ?out|Max retries",
        "the package index cannot be reached: check the network connection",
    ),
    (r"No matching distribution|Could not find a version", "the package index does not have it: check pip's settings"),
    (r"No module named pip\b", "this Python has no pip: run its 'python -m ensurepip'"),
    (r"Permission denied", "a folder cannot be written: check its permissions"),
)


def reason(output: str) -> str:
    """Why pip failed and what to do, from its raw ``output``, as part of a line."""
    for pattern, text in _REASONS:
        if re.search(pattern, output):
            return text
    return "pip says why under --debug"


def environment(**more: str) -> dict[str, str]:
    """This process's environment without the settings that would make pip install elsewhere, and with ``more``."""
    unwanted = {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONPATH", "PYTHONHOME"}
    return {name: value for name, value in os.environ.items() if name not in unwanted} | more
