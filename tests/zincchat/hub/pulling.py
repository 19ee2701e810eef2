"""What tests of pulling share."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from zincchat.hub.pull import pull
from zincchat.hub.reference import parse_reference
from zincchat.setup.errors import SetupError

REPO = "org/Model-GGUF"
REPOSITORY = Path(__file__).parents[3]


def content(size_bytes: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


MODEL = content(3_000_000)


def refusal(text: str) -> str:
    reference = parse_reference(text)
    assert reference is not None
    with pytest.raises(SetupError) as caught:
        pull(reference)
    message = str(caught.value)
    assert "\n" not in message
    return message
