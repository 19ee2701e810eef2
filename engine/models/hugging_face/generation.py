"""generation_config.json as GGUF's sampling keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.text.json_file import read_json_object

FILE = "generation_config.json"
_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}


def sampling_keys(folder: Path, name: str) -> dict[str, Any]:
    """``general.sampling.*`` for what the file states, nothing without one. EngineError where it is no JSON object.

    As in transformers, ``do_sample`` false is the likeliest id, true a temperature of 1 where none is stated.
    """
    try:
        values = read_json_object(folder / FILE) or {}
    except EngineError as error:
        raise EngineError(f"{name}: {error}") from error
    sampled = values.get("do_sample")
    if sampled is False:
        values["temperature"] = 0.0
    elif sampled is True and values.get("temperature") is None:
        values["temperature"] = 1.0
    return {
        f"general.sampling.{_KEYS[key]}": value for key, value in values.items() if key in _KEYS and value is not None
    }
