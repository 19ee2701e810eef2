"""The Debian mirrors that the machine's own apt uses, from both forms of its sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_GENERIC_SUITES = {"stable", "testing", "unstable", "sid"}


@dataclass(frozen=True, slots=True)
class Source:
    """A package archive; ``signed_by`` is the keyring or the key text apt trusts it by, empty for its default."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str

    def stanza(self, suite: str) -> str:
        """The same archive, signed by the same keys, with another ``suite``, as text of a .sources file."""
        lines = ["Types: deb", f"URIs: {self.uri}", f"Suites: {suite}", "Components: main", "Architectures: amd64"]
        if self.signed_by:
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"


def main_archives(etc: Path = Path("/etc")) -> list[Source]:
    """Archives that serve the machine's own release (security and update suites alone do not count), in apt's order."""
    release = re.search(r'^VERSION_CODENAME="?([\w-]+)', _read(etc / "os-release"), re.MULTILINE)
    wanted = _GENERIC_SUITES | ({release[1]} if release else set())
    return [source for source in _all(etc / "apt") if wanted & set(source.suites) and "main" in source.components]


def _all(apt: Path) -> list[Source]:
    found: list[Source] = []
    parts = sorted((apt / "sources.list.d").glob("*"))
    for path in [apt / "sources.list", *parts]:
        if path.suffix == ".list":
            found += _one_line_form(_read(path))
        elif path.suffix == ".sources":
            found += _stanza_form(_read(path))
    return found


def _one_line_form(text: str) -> list[Source]:
    found = []
    for line in text.splitlines():
        entry = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)((?:\s+[^\s#]+)*)", line)
        if entry:
            options = dict(part.split("=", 1) for part in (entry[1] or "").split() if "=" in part)
            found.append(Source(entry[2], (entry[3],), tuple(entry[4].split()), options.get("signed-by", "")))
    return found


def _stanza_form(text: str) -> list[Source]:
    found = []
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", without_comments):
        fields = {
            name.lower(): value.strip()
            for name, value in re.findall(r"^([\w-]+):((?:[^\n]*)(?:\n[ \t][^\n]*)*)", stanza, re.MULTILINE)
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in {"no", "false"}:
            continue
        suites, components = (tuple(fields.get(name, "").split()) for name in ("suites", "components"))
        signed_by = fields.get("signed-by", "")
        found += [Source(uri, suites, components, signed_by) for uri in fields.get("uris", "").split()]
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
