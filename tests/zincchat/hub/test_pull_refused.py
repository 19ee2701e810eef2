"""Pulls that cannot be: each is one line that says what to do."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from tests.zincchat.hub.fake_hub import TOKEN, FakeHub, sha256
from tests.zincchat.hub.pulling import MODEL, REPO, REPOSITORY, refusal
from zincchat.hub.cache import repo_folder
from zincchat.hub.pull import pull
from zincchat.hub.reference import Reference


def test_a_repository_that_does_not_exist(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal("org/absent")
    assert message.startswith(f"{hub.endpoint} has no model org/absent: check the name")
    assert "HF_TOKEN" in message
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert "your token may not see it" in refusal("org/absent")


def test_a_file_that_does_not_exist(hub: FakeHub) -> None:
    hub.repos[REPO] = {"m-Q8_0.gguf": MODEL, "m-Q6_K.gguf": MODEL}
    assert refusal(f"{REPO}:m-Q3_K.gguf") == f"{REPO} has no m-Q3_K.gguf; there is Q6_K, Q8_0"


def test_a_file_that_vanishes_between_listing_and_fetching(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    monkeypatch.setattr("zincchat.hub.pull._has_hash", lambda path, file: bool(hub.repos[REPO].clear()) or True)
    assert refusal(REPO) == f"{REPO} no longer has a file that it listed: pull it again"


def test_a_gated_repository(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    hub.gated.add(REPO)
    message = refusal(REPO)
    assert f"{REPO} is gated: accept its terms at {hub.endpoint}/{REPO} and set HF_TOKEN" in message
    monkeypatch.setenv("HF_TOKEN", "hf_not_granted")
    assert f"{REPO} is gated and your token's account has no access" in refusal(REPO)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert pull(Reference(REPO)).read_bytes() == MODEL
    assert {request.token for request in hub.content_requests()} == {None}  # the token stays with the hub


def test_a_token_from_the_users_file(hub: FakeHub) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    hub.gated.add(REPO)
    Path(constants.HF_TOKEN_PATH).write_text(TOKEN)
    assert pull(Reference(REPO)).read_bytes() == MODEL


@pytest.mark.parametrize(
    ("status", "expected"),
    [(503, "answered with status 503 for org/Model-GGUF"), (429, "asks for fewer requests"), (403, "permissions")],
)
def test_a_hub_that_refuses(hub: FakeHub, status: int, expected: str) -> None:
    hub.status = status
    assert expected in refusal(REPO)


def test_no_connection(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    path = pull(Reference(REPO))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the discard port: nothing listens
    assert "the connection to http://127.0.0.1:9 failed: check the network (and HF_ENDPOINT)" in refusal("org/other")
    capsys.readouterr()
    assert pull(Reference(REPO)) == path
    assert "the hub cannot be asked" in capsys.readouterr().err


def test_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    path = pull(Reference(REPO))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert pull(Reference(REPO)) == path
    assert "org/other:Q8_0 is not on this machine and HF_HUB_OFFLINE forbids" in refusal("org/other:Q8_0")
    assert hub.requests == []


def test_something_else_than_a_hub(hub: FakeHub) -> None:
    hub.status = 200
    assert refusal(REPO).startswith(f"{hub.endpoint} gave an answer that makes no sense for {REPO}")


def test_a_full_disk(hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_000_000))
        message = refusal(REPO)
        assert message.startswith(f"m.gguf needs 19 MB more on the disk of {cache}, which has 1 MB free")
    with monkeypatch.context() as patched:
        patched.setattr("zincchat.hub.pull._Bar.update", _no_space)
        assert refusal(REPO).startswith(f"the disk of {cache} is full: free some space, or set HF_HUB_CACHE")


def _no_space(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_cache_that_may_not_be_written(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file"))
    assert "Not a directory: make it writable, or set HF_HUB_CACHE" in refusal(REPO)


def test_two_pulls_of_one_file(hub: FakeHub) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    partial = repo_folder(REPO) / "blobs" / f"{sha256(MODEL)}.incomplete"
    partial.parent.mkdir(parents=True)
    with partial.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert refusal(REPO) == "m.gguf is being pulled by another process: let that one finish"


@pytest.mark.parametrize(
    "endpoint", ["", "  ", "huggingface.co", "ftp://hub", "https://", "http://[::1", "http://hub:port", "http://a hub"]
)
def test_an_endpoint_that_is_no_address(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert refusal(REPO) == (
        f"HF_ENDPOINT is {endpoint!r}, which is no hub's address: unset it, or set one like https://huggingface.co"
    )


@pytest.mark.parametrize("arguments", [("models", "list"), ("models", "pull", REPO), ("run", "--model", REPO, "Hi")])
def test_an_endpoint_that_huggingface_hub_cannot_be_imported_with(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program = "import sys; from zincchat.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "HF_ENDPOINT": "http://[::1", "HF_HOME": str(tmp_path), "ZINCCHAT_DATA": str(tmp_path)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("zincchat: HF_ENDPOINT is 'http://[::1', which is no hub's address")
