"""Whether HF_ENDPOINT is the address of a hub, which huggingface_hub takes for granted."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from zincchat.setup.errors import SetupError


def check_endpoint() -> None:
    """Raise SetupError where HF_ENDPOINT is set and is no http or https address with a host."""
    endpoint = os.environ.get("HF_ENDPOINT")
    if endpoint is not None and not _is_address(endpoint.strip()):
        raise SetupError(
            f"HF_ENDPOINT is {endpoint!r}, which is no hub's address: unset it, or set one like https://huggingface.co"
        )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises where it is no number of a port
    except ValueError:
        return False
    plain = text.isprintable() and " " not in text
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)
