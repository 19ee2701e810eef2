"""Pulling from a hub, against a local server: what arrives, what is fetched again, and what stays out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zincchat.hub.fake_hub import COMMIT, FakeHub, running, sha256
from tests.zincchat.hub.pulling import MODEL, REPO, REPOSITORY, content, refusal
from zincchat.hub.cache import find_cached, repo_folder
from zincchat.hub.pull import _Bar, pull
from zincchat.hub.reference import Reference


def unfinished(repo: str = REPO) -> list[Path]:
    return list((repo_folder(repo) / "blobs").glob("*.incomplete"))


def test_a_file_arrives_where_other_programs_find_it_too(hub: FakeHub, cache: Path) -> None:
    hub.repos[REPO] = {"m-Q4_K_M.gguf": MODEL, "m-Q8_0.gguf": content(1000), "README.md": b"#"}
    path = pull(Reference(REPO))
    assert path == cache / "models--org--Model-GGUF" / "snapshots" / COMMIT / "m-Q4_K_M.gguf"
    assert path.read_bytes() == MODEL
    assert (repo_folder(REPO) / "refs" / "main").read_text() == COMMIT
    assert path.resolve().name == sha256(MODEL)
    assert not unfinished()
    found = find_cached(Reference(REPO))
    assert found is not None and found.path == path and found.size_bytes == len(MODEL)


def test_what_is_here_and_whole_is_not_fetched_again(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    path = pull(Reference(REPO))
    hub.requests.clear()
    assert pull(Reference(REPO)) == path
    assert hub.content_requests() == []
    blob = path.resolve()
    blob.write_bytes(bytes(len(MODEL)))  # the right size, other bytes
    capsys.readouterr()
    assert pull(Reference(REPO)).read_bytes() == MODEL
    assert "is damaged" in capsys.readouterr().err


def test_a_cut_connection_is_taken_up_where_it_broke(hub: FakeHub) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    hub.cuts = [1_500_000]
    assert pull(Reference(REPO)).read_bytes() == MODEL
    first, second = hub.content_requests()
    assert first.range is None
    assert second.range is not None
    assert 0 < int(second.range.removeprefix("bytes=").rstrip("-")) <= 1_500_000


def test_a_connection_that_is_reset_is_taken_up_too(hub: FakeHub) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    hub.cuts, hub.resets = [2_000_000, 500_000], True
    assert pull(Reference(REPO)).read_bytes() == MODEL
    assert len(hub.content_requests()) == 3  # from which byte on depends on what the reset threw away


def test_an_interrupted_pull_goes_on(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}

    def interrupt(bar: _Bar, count: int) -> None:
        bar._done += count
        if bar._done > 1_500_000:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(_Bar, "update", interrupt)
        pull(Reference(REPO))
    (partial,) = unfinished()
    kept_bytes = partial.stat().st_size
    assert 1_000_000 < kept_bytes < 1_500_000
    hub.requests.clear()
    assert pull(Reference(REPO)).read_bytes() == MODEL
    (request,) = hub.content_requests()
    assert request.range == f"bytes={kept_bytes}-"
    assert "m.gguf: going on after 1 MB" in capsys.readouterr().err


def test_an_unfinished_file_that_is_too_long_starts_anew(hub: FakeHub) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    partial = repo_folder(REPO) / "blobs" / f"{sha256(MODEL)}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(MODEL + b"more")
    assert pull(Reference(REPO)).read_bytes() == MODEL


def test_a_file_of_another_content_does_not_stay(hub: FakeHub) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    hub.spoil = True
    assert refusal(REPO) == "m.gguf does not match its checksum and was deleted: pull it again"
    assert not unfinished()
    assert find_cached(Reference(REPO)) is None
    hub.spoil = False
    assert pull(Reference(REPO)).read_bytes() == MODEL


def test_a_large_files_check_shows_how_far_it_is(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repos[REPO] = {"m.gguf": MODEL}
    monkeypatch.setattr("zincchat.hub.pull._SHOWN_BYTES", len(MODEL) - 1)
    pull(Reference(REPO))
    assert "checking m.gguf: 3 MB of 3 MB" in capsys.readouterr().err


def test_every_part_of_a_split_model_comes(hub: FakeHub) -> None:
    parts = {f"Q8_0/m-0000{number}-of-00003.gguf": content(5000, number) for number in (1, 2, 3)}
    hub.repos[REPO] = {**parts, "m-Q4_0.gguf": b"x"}
    first = pull(Reference(REPO, "Q8_0"))
    assert first.name == "m-00001-of-00003.gguf"
    for path, data in parts.items():
        assert (first.parent.parent / path).read_bytes() == data
    found = find_cached(Reference(REPO, "q8_0"))
    assert found is not None and (found.path, found.name) == (first, f"{REPO}:Q8_0")
    assert find_cached(Reference(REPO, "Q4_0")) is None


SAFETENSORS = {
    "config.json": b"{}",
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ x }}",
    "README.md": b"#",
    "pytorch_model.bin": content(100),
    "onnx/model.onnx": content(100),
}


def test_of_a_safetensors_repository_only_what_is_needed_comes(hub: FakeHub) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    hub.repos["org/Model"] = {
        **SAFETENSORS,
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-1.safetensors": content(4000, 1),
        "model-2.safetensors": content(4000, 2),
        "consolidated.safetensors": content(8000, 3),
    }
    folder = pull(Reference("org/Model"))
    assert {path.name for path in folder.rglob("*")} == {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
        "model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors",
    }  # fmt: skip
    found = find_cached(Reference("org/Model"))
    assert found is not None and (found.path, found.name) == (folder, "org/Model")
    (folder / "model-2.safetensors").unlink()
    assert find_cached(Reference("org/Model")) is None


def test_one_safetensors_file_needs_no_index(hub: FakeHub) -> None:
    hub.repos["org/Model"] = {**SAFETENSORS, "model.safetensors": content(50), "extra.safetensors": content(50, 1)}
    folder = pull(Reference("org/Model"))
    assert (folder / "model.safetensors").is_file()
    assert not (folder / "extra.safetensors").exists()


def test_an_index_that_names_what_is_not_there(hub: FakeHub) -> None:
    hub.repos["org/Model"] = {
        **SAFETENSORS,
        "model.safetensors.index.json": b'{"weight_map": {"a": "model-9.safetensors"}}',
    }
    assert "org/Model lacks model-9.safetensors, which its index names" in refusal("org/Model")
    hub.repos["org/Model"]["model.safetensors.index.json"] = b"no JSON"
    shutil.rmtree(repo_folder("org/Model"))
    assert refusal("org/Model") == "model.safetensors.index.json is damaged: pull the model again"


def test_the_command_honours_the_environment(tmp_path: Path) -> None:
    """A process of its own: HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE are read when it starts."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_HOME": str(tmp_path / "home"), "ZINCCHAT_DATA": str(tmp_path / "data"), "NO_PROXY": "*"}
    program = "import sys; from zincchat.cli import main; sys.exit(main(sys.argv[1:]))"

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(
            command, env=environment | more, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )

    with running(FakeHub({REPO: {"m-Q8_0.gguf": MODEL}}, cuts=[1_000_000])) as hub:
        done = run("models", "pull", f"{REPO}:Q8_0", HF_ENDPOINT=hub.endpoint)
    assert done.returncode == 0, done.stderr
    path = run("models", "path", REPO, HF_HUB_OFFLINE="1").stdout.strip()
    assert Path(path).is_relative_to(tmp_path / "home" / "hub")
    assert Path(path).read_bytes() == MODEL
    assert run("models", "pull", f"{REPO}:m-Q8_0.gguf", HF_HUB_OFFLINE="1").returncode == 0
    absent = run("models", "pull", "org/other", HF_HUB_OFFLINE="1")
    assert (absent.returncode, absent.stdout, absent.stderr.count("\n")) == (1, "", 1)
    assert "HF_HUB_OFFLINE" in absent.stderr


@pytest.mark.parametrize("digest", ["../../../outside", "/tmp/outside", "", "A" * 64])
def test_a_checksum_is_no_way_out_of_the_cache(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    """Files are stored under the checksums that the hub lists."""
    hub.repos[REPO] = {"m-Q4_K_M.gguf": MODEL}
    monkeypatch.setattr("tests.zincchat.hub.fake_hub.sha256", lambda data: digest)
    assert "gave an answer that makes no sense" in refusal(REPO)
    assert not cache.exists() and not list(cache.parent.glob("outside*"))


def test_a_name_is_no_way_out_of_the_cache(hub: FakeHub, cache: Path) -> None:
    hub.repos[REPO] = {"../../../../outside-Q4_K_M.gguf": MODEL}
    assert "gave an answer that makes no sense" in refusal(REPO)
    assert not list(cache.parent.rglob("outside*"))
