"""config.json of a Hugging Face folder, checked as it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import EngineError, shortened
from engine.text.json_file import read_json_object

FILE = "config.json"
_MOST = 1 << 24  # of any size; far beyond every model, and no array of so many items is too large
_MOST_HEADS, LARGEST_HEAD = 1024, 512


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

    def positive(self, key: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number above 0, and at most ``most``."""
        value = self.integer(key, default)
        if not 0 < value <= most:
            raise self.error(key, "a whole number above 0" if value <= 0 else f"{most} at most")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A real number, neither infinite nor NaN, which JSON files of Python's may have."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
            raise self.error(key, "a number")
        try:
            return float(value)
        except OverflowError as error:
            raise self.error(key, "a number") from error

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
            raise EngineError(f"{self.name}: {key} is {shortened(value)} in {FILE}; only {expected} is supported")

    def error(self, key: str, expected: str) -> EngineError:
        """An error about ``key``, whose value is not ``expected``."""
        return EngineError(f"{self.name}: {key} is {shortened(self.get(key))} in {FILE}; it must be {expected}")

    def heads(self, key: str = "num_attention_heads", default: int | None = None) -> int:
        """A number of heads."""
        return self.positive(key, default, _MOST_HEADS)

    @property
    def head_size(self) -> int:
        """Elements of an attention head."""
        size = self.positive("head_dim", max(1, self.positive("hidden_size") // self.heads()))
        if size % 2 or size > LARGEST_HEAD:
            raise EngineError(
                f"{self.name}: by {FILE} an attention head has {size} elements; it must be an even number, "
                f"{LARGEST_HEAD} at most"
            )
        return size

    def _required(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            value = default
        if value is None:
            raise EngineError(f"{self.name}: {FILE} lacks {key}")
        return value
