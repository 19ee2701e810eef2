"""Models of the hub on the command line: listed, found, removed, and what --model makes of their names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import DeviceRoom, EngineError, inspect_model
from tests.engine.tiny_model import write_tiny_llama
from tests.zincchat.cli.conftest import Outcome
from tests.zincchat.cli.fake_engine import FakeEngine
from zincchat.catalogue import HUB_MODELS
from zincchat.hub.reference import parse_reference
from zincchat.hub.variants import gguf_variants, quantisation_in
from zincchat.setup.errors import SetupError

Zincchat = Callable[..., Outcome]
REPO = "org/Tiny-GGUF"


def put(cache: Path, repo: str, files: dict[str, bytes]) -> Path:
    """Files of a repository in the cache, laid out as huggingface_hub does; returns their folder."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text("c0ffee")
    for name, data in files.items():
        blob = folder / "blobs" / f"{abs(hash((name, data))):x}"
        blob.write_bytes(data)
        link = folder / "snapshots" / "c0ffee" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return folder / "snapshots" / "c0ffee"


@pytest.fixture
def cache(data_folder: Path) -> Path:
    return data_folder.parent / "hub"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "m.gguf").read_bytes()


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, bytes]:
    first = write_tiny_llama(tmp_path / "t-Q8_0.gguf", tensors_a_part=12)
    return {path.name: path.read_bytes() for path in sorted(first.parent.glob("t-Q8_0-*"))}


def row(outcome: Outcome, name: str) -> str:
    (line,) = [line for line in outcome.out.splitlines() if line.split("  ")[0] == name]
    return line


def test_the_cache_is_listed(zincchat: Zincchat, cache: Path, tiny: bytes, parts: dict[str, bytes]) -> None:
    folder = put(cache, REPO, {"t-Q4_K_M.gguf": tiny, **parts, "README.md": b"#"})
    put(cache, "org/Broken", {"b-Q4_0.gguf": b"GGUF"})
    put(cache, "org/Half", {"h-00001-of-00002.gguf": b"GGUF"})
    outcome = zincchat("models", "list")
    line = row(outcome, f"{REPO}:Q4_K_M")
    assert line.split()[1:4] == ["llama", "0M,", "Q4_1"] and " yes " in line
    assert line.endswith(str(folder / "t-Q4_K_M.gguf"))
    assert str(folder / "t-Q8_0-00001-of-00002.gguf") in row(outcome, f"{REPO}:Q8_0")
    assert "cannot be run" in row(outcome, "org/Broken:Q4_0")
    assert "org/Half" not in outcome.out
    assert outcome.out.endswith("fits: on Fake llvmpipe, 2.1 GB free\n")
    entry = next(item for item in zincchat("models", "list", "--json").json if item["name"] == f"{REPO}:Q8_0")
    assert entry["size_bytes"] == sum(map(len, parts.values()))
    assert (entry["architecture"], entry["trained_context"], entry["largest_context"]) == ("llama", 2048, 2048)


def test_a_file_gives_the_terminal_nothing_to_obey(zincchat: Zincchat, cache: Path, tiny: bytes) -> None:
    put(cache, REPO, {"t-Q4_K_M.gguf": tiny.replace(b"llama", b"l\x1b[2J", 1)})  # its general.architecture
    outcome = zincchat("models", "list")
    assert "l\ufffd[2J 0M" in row(outcome, f"{REPO}:Q4_K_M") and "\x1b" not in outcome.out


def test_what_fits(zincchat: Zincchat, cache: Path, tiny: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(cache, REPO, {"t-Q4_K_M.gguf": tiny}) / "t-Q4_K_M.gguf"
    needed = inspect_model(path, DeviceRoom("", 1 << 40, False)).needed_bytes
    assert needed is not None
    words = {}
    for free_bytes in (needed - 1, needed):
        monkeypatch.setattr("engine.device_room", lambda device, free=free_bytes: DeviceRoom("Card", free, False))
        words[free_bytes] = row(zincchat("models", "list"), f"{REPO}:Q4_K_M")
    assert " no " in words[needed - 1]
    assert " yes " in words[needed]  # so small a model needs no more for all of its context
    path = write_tiny_llama(path.parent / "w-Q4_0.gguf", context=1 << 20)
    line = row(zincchat("models", "list"), f"{REPO}:Q4_0")
    largest = inspect_model(path, DeviceRoom("", needed, False)).largest_context
    assert largest is not None and f" to {largest // 64 * 64:,} tokens " in line


def test_the_catalogue_without_a_device(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: object) -> DeviceRoom:
        raise EngineError(f"no device matches {device!r}")

    monkeypatch.setattr("engine.device_room", fail)
    outcome = zincchat("models", "list")
    assert outcome.code == 0 and "fits: on" not in outcome.out
    named = zincchat("models", "list", "--device", "voodoo")
    assert (named.code, named.err) == (1, "zincchat: no device matches 'voodoo'\n")


def test_a_catalogue_model_says_how_to_pull_it_or_is_found(zincchat: Zincchat, cache: Path, tiny: bytes) -> None:
    for arguments in (["run", "Hi", "--model", "qwen3-4b"], ["models", "path", "qwen3-4b"]):
        outcome = zincchat(*arguments)
        assert outcome.code == 1
        assert outcome.err == "zincchat: model qwen3-4b is not on this machine; run 'zincchat models pull qwen3-4b'\n"
    folder = put(cache, "Qwen/Qwen3-4B-GGUF", {"Qwen3-4B-Q4_K_M.gguf": tiny})
    assert zincchat("models", "path", "qwen3-4b").out == f"{folder / 'Qwen3-4B-Q4_K_M.gguf'}\n"
    assert " yes " in row(zincchat("models", "list"), "qwen3-4b")
    assert zincchat("run", "Hi", "--model", "qwen3-4b").code == 0
    assert FakeEngine.opened[-1]["path"] == folder / "Qwen3-4B-Q4_K_M.gguf"


def test_model_takes_a_reference(zincchat: Zincchat, cache: Path, tiny: bytes, parts: dict[str, bytes]) -> None:
    missing = zincchat("run", "Hi", "--model", f"{REPO}:Q8_0")
    assert f"model {REPO}:Q8_0 is not on this machine; run 'zincchat models pull {REPO}:Q8_0'" in missing.err
    folder = put(cache, REPO, {"t-Q6_K.gguf": tiny, **parts})
    for name in (f"{REPO}:q8_0", f"{REPO}:t-Q8_0-00002-of-00002.gguf"):
        assert zincchat("run", "Hi", "--model", name).code == 0
        assert FakeEngine.opened[-1]["path"] == folder / "t-Q8_0-00001-of-00002.gguf"
    several = zincchat("run", "Hi", "--model", REPO)
    assert (several.code, several.err.count("\n")) == (1, 1)
    assert f"name one, as in {REPO}:Q6_K; there is Q6_K, Q8_0" in several.err


def test_a_path_comes_before_a_reference(
    zincchat: Zincchat, cache: Path, tmp_path: Path, tiny: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, "org/m", {"t.gguf": tiny})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "m").write_bytes(tiny)
    assert zincchat("run", "Hi", "--model", "org/m").code == 0
    assert FakeEngine.opened[-1]["path"] == Path("org/m")
    assert "model file org/x.gguf does not exist" in zincchat("run", "Hi", "--model", "org/x.gguf").err


def test_a_folder_of_safetensors_is_found(zincchat: Zincchat, cache: Path) -> None:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode()
    files = {"config.json": b"{}", "model.safetensors.index.json": index}
    put(cache, "org/Model", files)
    assert zincchat("models", "path", "org/Model").code == 1  # its weights have not come
    folder = put(cache, "org/Whole", {**files, "model-1.safetensors": b"x"})
    assert zincchat("models", "path", "org/Whole").out == f"{folder}\n"


def test_remove_takes_the_file_and_with_the_last_the_repository(zincchat: Zincchat, cache: Path, tiny: bytes) -> None:
    folder = put(cache, REPO, {"t-Q4_0.gguf": tiny, "t-Q8_0.gguf": tiny + b"x", "README.md": b"#"})
    repository = cache / "models--org--Tiny-GGUF"
    assert len(list((repository / "blobs").iterdir())) == 3
    outcome = zincchat("models", "remove", f"{REPO}:Q4_0")
    assert outcome.code == 0
    assert "removed" in outcome.err
    assert not (folder / "t-Q4_0.gguf").is_symlink() and (folder / "t-Q8_0.gguf").exists()
    assert len(list((repository / "blobs").iterdir())) == 2
    again = zincchat("models", "remove", f"{REPO}:Q4_0")
    assert (again.code, again.err) == (
        1, f"zincchat: model {REPO}:Q4_0 is not on this machine; there is nothing to remove\n",
    )  # fmt: skip
    assert zincchat("models", "remove", REPO).code == 0
    assert not repository.exists()


def test_a_blob_that_another_revision_needs_stays(zincchat: Zincchat, cache: Path, tiny: bytes) -> None:
    folder = put(cache, REPO, {"t-Q4_0.gguf": tiny, "t-Q8_0.gguf": tiny + b"x"})
    other = folder.parent / "older" / "t-Q4_0.gguf"
    other.parent.mkdir()
    other.symlink_to((folder / "t-Q4_0.gguf").resolve())
    zincchat("models", "remove", f"{REPO}:Q4_0")
    assert other.read_bytes() == tiny


def test_remove_takes_what_an_unfinished_pull_left(zincchat: Zincchat, cache: Path) -> None:
    unfinished = cache / "models--org--Tiny-GGUF" / "blobs" / "abc.incomplete"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_bytes(bytes(1000))
    assert zincchat("models", "remove", REPO).code == 0
    assert not unfinished.exists()


def test_a_failed_pull_is_one_line(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(reference: object) -> Path:
        raise SetupError(f"no {reference}", "status 404")

    monkeypatch.setattr("zincchat.hub.pull.pull", fail)
    outcome = zincchat("models", "pull", REPO)
    assert (outcome.code, outcome.out, outcome.err) == (1, "", f"zincchat: no {REPO}\n")
    assert "status 404" in zincchat("models", "pull", REPO, "--debug").err
    licensed = zincchat("models", "pull", "llama3.2-1b")
    assert licensed.err.startswith("Llama 3.2 1B Instruct, Q4_K_M: 808 MB, Llama 3.2 Community\n")
    unknown = zincchat("models", "pull", "nonsense")
    assert unknown.code == 2 and "the catalogue has smollm2-135m, qwen2.5-0.5b" in unknown.err


def test_an_interrupted_pull_says_that_it_can_go_on(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(reference: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("zincchat.hub.pull.pull", interrupt)
    outcome = zincchat("models", "pull", REPO)
    assert (outcome.code, outcome.err) == (
        130, "what came so far is kept: pull it again to go on\nzincchat: interrupted\n",
    )  # fmt: skip


def test_the_catalogue_names_files_that_can_be_chosen() -> None:
    for model in HUB_MODELS.values():
        reference = parse_reference(model.reference)
        assert reference is not None and reference.part is not None
        (variant,) = gguf_variants([reference.part])
        assert variant.label == quantisation_in(reference.part) and variant.label in model.description
