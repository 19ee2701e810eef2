"""How a model of the hub is named: ``ORG/REPO``, or ``ORG/REPO:PART``."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_REFERENCE = re.compile(rf"(?P<repo>{_WORD}/{_WORD})(?::(?P<part>[^:]+))?")


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository, and what of it: a file's path in it or the name of a quantisation; None leaves that open."""

    repo: str
    part: str | None = None

    def __str__(self) -> str:
        return self.repo if self.part is None else f"{self.repo}:{self.part}"


def parse_reference(text: str) -> Reference | None:
    """The reference that ``text`` spells; None where it spells none."""
    match = _REFERENCE.fullmatch(text)
    return None if match is None else Reference(match["repo"], match["part"])
