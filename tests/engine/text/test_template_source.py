"""The template is found wherever the model keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.text.template_source import template_source

NAMED = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]


def write(folder: Path, **files: Any) -> Path:
    for name, value in files.items():
        (folder / name.replace("__", ".")).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def test_gguf_metadata() -> None:
    assert template_source({}) is None
    assert template_source({"tokenizer.chat_template": "plain"}) == "plain"
    named = {"tokenizer.chat_template.default": "plain", "tokenizer.chat_template.rag": "rag"}
    assert template_source({"tokenizer.chat_templates": ["rag", "default"], **named}) == "plain"
    assert template_source({"tokenizer.chat_templates": ["rag"], **named}) == "rag"
    assert template_source({"tokenizer.chat_templates": ["rag"], "tokenizer.chat_template": "own", **named}) == "own"


def test_a_folder_without_one(tmp_path: Path) -> None:
    assert template_source({}, tmp_path) is None
    write(tmp_path, tokenizer_config__json={"eos_token": "x"}, chat_template__json={})
    assert template_source({}, tmp_path) is None
    assert template_source({"tokenizer.chat_template": "plain"}, tmp_path) == "plain"


def test_the_files_of_a_folder_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, chat_template__json={"chat_template": "of the processor"})
    assert template_source({}, tmp_path) == "of the processor"
    write(tmp_path, tokenizer_config__json={"chat_template": "of the tokenizer"})
    assert template_source({}, tmp_path) == "of the tokenizer"
    write(tmp_path, chat_template__jinja="{# é #}\nits own file\n")
    assert template_source({"tokenizer.chat_template": "x"}, tmp_path) == "{# é #}\nits own file\n"


def test_named_ones_of_a_folder(tmp_path: Path) -> None:
    assert template_source({}, write(tmp_path, tokenizer_config__json={"chat_template": NAMED})) == "plain"
    assert template_source({}, write(tmp_path, tokenizer_config__json={"chat_template": NAMED[:1]})) == "tools"
    assert template_source({}, write(tmp_path, tokenizer_config__json={"chat_template": []})) is None


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "number": ({"tokenizer.chat_template": 5}, {}, r"the model's tokenizer\.chat_template is not text"),
    "missing": ({"tokenizer.chat_templates": ["default"]}, {}, "tokenizer.chat_templates, 'default', is not text"),
    "no default": ({"tokenizer.chat_templates": ["a", "b"]}, {}, "has the templates a, b, but none is named default"),
    "object": ({}, {"tokenizer_config__json": {"chat_template": {}}}, "tokenizer_config.json is not text"),
    "entries": ({}, {"tokenizer_config__json": {"chat_template": ["x"]}}, "must be text, or a list of objects"),
    "entry": ({}, {"chat_template__json": {"chat_template": [{"name": "default"}]}}, "'default', is not text"),
    "cut off": ({}, {"tokenizer_config__json": '{"chat_template": "'}, "tokenizer_config.json is not JSON"),
}


@pytest.mark.parametrize(("metadata", "files", "message"), BAD.values(), ids=BAD)
def test_what_is_no_template_is_named(tmp_path: Path, metadata: Any, files: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        template_source(metadata, write(tmp_path, **files))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(EngineError, match=r"chat_template\.jinja is not UTF-8 text"):
        template_source({}, tmp_path)
    with (tmp_path / "chat_template.jinja").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(EngineError, match=r"chat_template\.jinja has 1,073,741,824 bytes"):
        template_source({}, tmp_path)
