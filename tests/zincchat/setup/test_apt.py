"""apt-get as an ordinary user: private folders, the plan, and a line for each way it fails."""

from __future__ import annotations

import os

import pytest

from zincchat.setup.apt import Package, PrivateApt
from zincchat.setup.apt_sources import Source, main_archives
from zincchat.setup.errors import SetupError

SOURCE = Source("http://mirror.invalid/deb", ("bookworm",), ("main",), "/keys/archive.gpg")


def test_everything_apt_writes_is_in_the_folder_given(tmp_path, program):
    program("apt-get", f'echo "$@" >{tmp_path}/arguments; cat "{tmp_path}/apt/private.sources" >{tmp_path}/sources')
    PrivateApt(tmp_path / "apt", SOURCE, "forky").update()
    arguments = (tmp_path / "arguments").read_text()
    for setting in ("Dir::State=", "Dir::State::Lists=", "Dir::Cache=", "Dir::Etc::SourceList="):
        assert f"{setting}{tmp_path}/apt" in arguments
    assert "Dir::Etc::SourceParts=- " in arguments
    assert "--allow-unauthenticated" not in arguments
    assert "Signed-By: /keys/archive.gpg" in (tmp_path / "sources").read_text()


def test_the_plan_names_each_package_with_its_size(tmp_path, program):
    program(
        "apt-get",
        "echo \"'http://mirror.invalid/pool/llvm_amd64.deb' libllvm21_1%3a21.1.8-13_amd64.deb 28 S:0\"\n"
        "echo \"'http://mirror.invalid/deb/pool/d_2_all.deb' libdrm-common_2.4_all.deb 7 SHA256:00\"",
    )
    plan = PrivateApt(tmp_path / "apt", SOURCE, "forky").plan(["mesa"])
    assert plan == [Package("libllvm21", "1:21.1.8-13", 28), Package("libdrm-common", "2.4", 7)]


def test_an_empty_plan_is_an_error(tmp_path, program):
    program("apt-get", "true")
    with pytest.raises(SetupError, match="the Debian suite forky does not offer mesa"):
        PrivateApt(tmp_path / "apt", SOURCE, "forky").plan(["mesa"])


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "Err:1 http://mirror.invalid/deb forky InRelease\n  Could not resolve 'mirror.invalid'",
            "the mirror cannot be reached: check the network connection",
        ),
        (
            "E: The repository 'http://mirror.invalid/deb forky Release' does not have a Release file.",
            "the mirror does not carry it",
        ),
        (
            "W: GPG error: forky InRelease: The following signatures couldn't be verified: NO_PUBKEY 1234",
            "its signature cannot be verified: bring the package debian-archive-keyring up to date",
        ),
        ("E: You don't have enough free space in /x/cache/archives/.", "the disk is full"),
    ],
)
def test_a_failing_apt_is_one_line_with_the_output_kept_for_debug(tmp_path, program, output, line):
    (tmp_path / "output").write_text(output)
    program("apt-get", f"cat {tmp_path}/output >&2; exit 100")
    with pytest.raises(SetupError) as caught:
        PrivateApt(tmp_path / "apt", SOURCE, "forky").update()
    assert str(caught.value).startswith("Debian's suite forky was not fetched: " + line)
    assert "\n" not in str(caught.value)
    assert output in caught.value.detail


@pytest.mark.network
@pytest.mark.skipif(
    not (os.environ.get("CI") or os.environ.get("ZINCCHAT_NETWORK")), reason="needs the network: ZINCCHAT_NETWORK=1"
)
def test_the_machines_own_mirror_offers_a_recent_driver(tmp_path):
    sources = main_archives()
    if not sources:
        pytest.skip("not a Debian machine")
    apt = PrivateApt(tmp_path / "apt", sources[0], "forky")
    apt.update()
    versions = {package.name: package.version for package in apt.plan(["mesa-vulkan-drivers", "libvulkan1"])}
    assert int(versions["mesa-vulkan-drivers"].split(".")[0]) >= 26
    assert "libc6" in versions
