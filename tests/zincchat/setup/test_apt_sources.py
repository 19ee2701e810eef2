"""Finding the machine's own Debian mirror in both forms of apt's sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from zincchat.setup.apt_sources import main_archives


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    (tmp_path / "apt" / "sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME=bookworm\nVERSION_ID="12"\n')
    return tmp_path


def test_one_line_form(etc):
    (etc / "apt" / "sources.list").write_text(
        "# deb http://commented.invalid/deb bookworm main\n"
        "deb-src http://source.invalid/deb bookworm main\n"
        "deb http://security.invalid/deb bookworm-security main\n"
        "deb [arch=amd64 signed-by=/keys/archive.gpg] http://mirror.invalid/deb bookworm main contrib # the archive\n"
    )
    (source,) = main_archives(etc)
    assert source.uri == "http://mirror.invalid/deb"
    assert source.signed_by == "/keys/archive.gpg"


def test_stanza_form_with_a_key_in_the_text(etc):
    (etc / "apt" / "sources.list.d" / "debian.sources").write_text(
        "Types: deb deb-src\n# a comment\nURIs: http://mirror.invalid/deb\nSuites: bookworm bookworm-updates\n"
        "Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc=\n -----END\n\n"
        "Types: deb\nURIs: http://security.invalid/deb\nSuites: bookworm-security\nComponents: main\n\n"
        "Enabled: no\nTypes: deb\nURIs: http://off.invalid/deb\nSuites: bookworm\nComponents: main\n"
    )
    (source,) = main_archives(etc)
    assert source.uri == "http://mirror.invalid/deb"
    stanza = source.stanza("forky")
    assert "URIs: http://mirror.invalid/deb\nSuites: forky\nComponents: main\n" in stanza
    assert stanza.endswith("Signed-By: -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc=\n -----END\n")


def test_a_vendor_archive_for_another_suite_is_not_a_mirror(etc):
    (etc / "apt" / "sources.list.d" / "vendor.list").write_text("deb http://vendor.invalid/apt nodistro main\n")
    (etc / "apt" / "sources.list.d" / "readme.txt").write_text("deb http://ignored.invalid/deb bookworm main\n")
    assert main_archives(etc) == []


def test_no_sources_at_all(tmp_path):
    assert main_archives(tmp_path) == []
