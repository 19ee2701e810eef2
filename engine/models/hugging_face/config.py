"""config.json of a Hugging Face folder, checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.text.json_file import read_json_object

FILE = "config.json"


class Config:
    """The values of a model's config.json; of one with images or sound beside text, its text part's.

    A value that is null counts as left out, as transformers has it. Every error names the folder and the key.
    """

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        """``name`` is what messages call the model."""
        self.name = name
        text = values.get("text_config")
        self._values = {**values, **text} if isinstance(text, dict) else dict(values)

    @classmethod
    def read(cls, folder: Path, name: str) -> Config:
        """The folder's config.json. EngineError where it is missing or no JSON object."""
        try:
            values = read_json_object(folder / FILE)
        except EngineError as error:
            raise EngineError(f"{name}: {error}") from error
        if values is None:
            raise EngineError(f"{name}: this folder has no {FILE}; give a GGUF file or a Hugging Face model's folder")
        return cls(name, values)

    def with_defaults(self, values: Mapping[str, Any]) -> Config:
        """The same with ``values`` for what config.json leaves out."""
        stated = {key: value for key, value in self._values.items() if value is not None and key != "text_config"}
        return Config(self.name, {**values, **stated})

    def get(self, key: str) -> Any:
        """The value as it is, or None."""
        return self._values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, "a whole number")
        return value

    def positive(self, key: str, default: int | None = None) -> int:
        """A whole number above 0."""
        value = self.integer(key, default)
        if value <= 0:
            raise self.error(key, "a whole number above 0")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A real number."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, "a number")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self._required(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def part(self, key: str) -> Config | None:
        """The object under ``key`` as a config of its own, or None."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return Config(f"{self.name}: {key}", value)

    def require(self, key: str, *allowed: object, default: object = None) -> None:
        """Raise EngineError where the value is not one that the engine has kernels for."""
        value = self._values.get(key)
        value = default if value is None else value
        if value not in allowed:
            expected = " or ".join("none" if item is None else str(item).lower() for item in allowed)
            raise EngineError(f"{self.name}: {key} is {_short(value)} in {FILE}; only {expected} is supported")

    def error(self, key: str, expected: str) -> EngineError:
        """An error about ``key``, whose value is not ``expected``."""
        return EngineError(f"{self.name}: {key} is {_short(self.get(key))} in {FILE}; it must be {expected}")

    @property
    def head_size(self) -> int:
        """Elements of an attention head."""
        heads = self.positive("num_attention_heads")
        return self.positive("head_dim", max(1, self.positive("hidden_size") // heads))

    def _required(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            value = default
        if value is None:
            raise EngineError(f"{self.name}: {FILE} lacks {key}")
        return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 40 else text[:37] + "..."
