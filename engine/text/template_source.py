"""Where a model keeps its chat template: GGUF metadata, or one of the files of a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.text.json_file import read_json_object, read_text

_KEY = "tokenizer.chat_template"
_NAMES_KEY = "tokenizer.chat_templates"
_DEFAULT = "default"


def template_source(metadata: Mapping[str, Any], folder: Path | None = None) -> str | None:
    """The Jinja source for a plain chat, or None if the model has none (a base model).

    ``metadata``: GGUF's keys. ``folder``: the model's, where it is a Hugging Face one; of its files
    chat_template.jinja counts before tokenizer_config.json, and that before chat_template.json, as in transformers.
    Of several named templates it is the one named "default". Raise EngineError where that cannot be told, or where
    the template is no text.
    """
    if folder is not None and (source := _from_folder(folder)) is not None:
        return source
    return _from_metadata(metadata)


def _from_metadata(metadata: Mapping[str, Any]) -> str | None:
    if metadata.get(_KEY) is not None:
        return _text(metadata[_KEY], f"the model's {_KEY}")
    names = metadata.get(_NAMES_KEY) or ()
    return _choose({str(name): metadata.get(f"{_KEY}.{name}") for name in names}, f"the model's {_NAMES_KEY}")


def _from_folder(folder: Path) -> str | None:
    if (source := read_text(folder / "chat_template.jinja")) is not None:
        return source
    for name in ("tokenizer_config.json", "chat_template.json"):
        template = (read_json_object(folder / name) or {}).get("chat_template")
        if isinstance(template, list):
            return _choose(_named(template, name), f"chat_template in {name}")
        if template is not None:
            return _text(template, f"chat_template in {name}")
    return None


def _named(entries: list[Any], file: str) -> dict[str, Any]:
    """The templates of a list of {"name": ..., "template": ...}."""
    if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in entries):
        raise EngineError(f"chat_template in {file} must be text, or a list of objects with name and template")
    return {entry["name"]: entry.get("template") for entry in entries}


def _choose(templates: Mapping[str, Any], where: str) -> str | None:
    if not templates:
        return None
    name = next(iter(templates)) if len(templates) == 1 else _DEFAULT
    if name not in templates:
        raise EngineError(f"{where} has the templates {', '.join(templates)}, but none is named {_DEFAULT}")
    return _text(templates[name], f"{where}, {name!r},")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise EngineError(f"{where} is not text")
    return value
