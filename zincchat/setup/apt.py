"""apt as an ordinary user: another suite's packages into a folder, the machine's own package state untouched.

The archive's signatures are checked with the machine's own keyrings, and each package against the signed index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from zincchat.setup import child
from zincchat.setup.apt_sources import Source
from zincchat.setup.console import progress
from zincchat.setup.errors import SetupError
from zincchat.setup.folders import size_bytes

# Hooks that belong to the machine's package state have no business with a private folder.
_CONFIGURATION = """\
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Update::Pre-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear DPkg::Post-Invoke;
#clear Acquire::IndexTargets::deb;
Acquire::IndexTargets::deb::Packages {
  MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages";
  flatMetaKey "Packages";
  ShortDescription "Packages";
  Description "$(RELEASE)/$(COMPONENT) $(ARCHITECTURE) Packages";
  flatDescription "$(RELEASE) Packages";
  Optional "false";
};
"""

_UNREACHABLE = r"Could not (resolve|connect)|failure resolving|Connection (refused|failed)|nable to connect|timed out"
_REASONS = (
    (r"No space left on device|enough free space", "the disk is full: free some space"),
    (_UNREACHABLE, "the mirror cannot be reached: check the network connection"),
    (
        r"NO_PUBKEY|not signed|EXPKEYSIG|BADSIG|Missing key|invalid signature|couldn't be verified",
        "its signature cannot be verified: bring the package debian-archive-keyring up to date",
    ),
    (r"does not have a Release file|404 ", "the mirror does not carry it"),
)


class Unreachable(SetupError):
    """The mirror does not answer, so that asking it for something else is of no use."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package file that a download would bring."""

    name: str
    version: str
    size_bytes: int


class PrivateApt:
    """apt-get with its sources, lists and downloads below ``folder`` and an empty package state."""

    def __init__(self, folder: Path, source: Source, suite: str) -> None:
        """Lay out ``folder`` for ``suite`` of the archive ``source``. Raises OSError."""
        self.suite = suite
        self._archives = folder / "cache" / "archives"
        for needed in (folder / "lists" / "partial", self._archives / "partial"):
            needed.mkdir(parents=True)
        (folder / "apt.conf").write_text(_CONFIGURATION)
        (folder / "private.sources").write_text(source.stanza(suite))
        settings = {
            "Dir::Etc::SourceList": folder / "private.sources",
            "Dir::Etc::SourceParts": "-",
            "Dir::Etc::Preferences": "-",
            "Dir::Etc::PreferencesParts": "-",
            "Dir::State": folder,
            "Dir::State::Lists": folder / "lists",
            "Dir::State::Status": "/dev/null",
            "Dir::Cache": folder / "cache",
            "Dir::Log": folder,
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",  # no other account could write here; it changes nothing for an ordinary user
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            "Debug::NoLocking": "1",
            "Dpkg::Use-Pty": "0",
        }
        self._command = ["apt-get", "-qq", f"-c={folder / 'apt.conf'}"]
        for name, value in settings.items():
            self._command += ["-o", f"{name}={value}"]

    def update(self) -> None:
        """Fetch the suite's index. Raises SetupError."""
        self._run("update")

    def plan(self, packages: Sequence[str]) -> list[Package]:
        """``packages`` and all they depend on, nothing downloaded. Raises SetupError."""
        listing = self._run("install", "--print-uris", "--yes", "--no-install-recommends", *packages)
        found = re.findall(r"^'[^']+' ([^_\s]+)_([^_\s]+)_\w+\.deb (\d+) ", listing, re.MULTILINE)
        if not found:
            raise SetupError(f"the Debian suite {self.suite} does not offer {', '.join(packages)}", listing)
        return [Package(name, version.replace("%3a", ":"), int(size)) for name, version, size in found]

    def download(self, packages: Sequence[str], total_bytes: int) -> list[Path]:
        """The files of ``packages`` and all they depend on, with a progress bar. Raises SetupError."""
        with progress("vulkan driver", total_bytes) as show:
            self._run(
                "install",
                "--download-only",
                "--yes",
                "--no-install-recommends",
                *packages,
                watch=lambda: show(size_bytes(self._archives)),
            )
            show(total_bytes)
        return sorted(self._archives.glob("*.deb"))

    def _run(self, *arguments: str, watch: Callable[[], None] | None = None) -> str:
        # In the C locale, since the reasons are read out of the messages.
        done = child.run([*self._command, *arguments], environment=os.environ | {"LC_ALL": "C.UTF-8"}, watch=watch)
        if done.status != 0:
            reasons = (text for pattern, text in _REASONS if re.search(pattern, done.output))
            reason = next(reasons, "apt-get says why under --debug")
            kind = Unreachable if re.search(_UNREACHABLE, done.output) else SetupError
            raise kind(f"Debian's suite {self.suite} was not fetched: {reason}", done.output)
        return done.stdout
