"""What an open engine says about its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.decode.sampling import Sampling
from engine.errors import EngineError
from engine.models.config import Geometry
from engine.text.template import ChatTemplate
from engine.weights.source import ModelSource


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The open model as a user would name it."""

    name: str
    path: Path
    architecture: str
    quantisation: str  # the type that holds most of the weights
    parameters: int
    file_bytes: int
    trained_context: int
    vocab_size: int
    layers: int
    can_chat: bool  # a tokenizer and a chat template are present
    thinking: bool | None  # whether it thinks unless told otherwise; None: its template has no switch for it


def describe_model(file: ModelSource, geometry: Geometry, template: ChatTemplate | None) -> ModelInfo:
    """ModelInfo of an open file."""
    metadata: Mapping[str, Any] = file.metadata
    sizes: dict[str, int] = {}
    parameters = 0
    for info in file.tensors.values():
        sizes[info.type.name] = sizes.get(info.type.name, 0) + info.size_bytes
        parameters += int(np.prod(info.shape))
    return ModelInfo(
        name=file.name,
        path=file.path,
        architecture=str(metadata.get("general.architecture")),
        quantisation=max(sizes, key=lambda kind: sizes[kind]),
        parameters=parameters,
        file_bytes=file.file_bytes,
        trained_context=geometry.trained_context,
        vocab_size=geometry.vocab,
        layers=geometry.layers,
        can_chat=template is not None,
        thinking=template.thinking if template is not None else None,
    )


_SAMPLING_KEYS = {  # GGUF's general.sampling.* keys
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
}


def sampling_defaults(metadata: Mapping[str, Any]) -> Sampling:
    """The file's own generation settings where it has them; temperature 0.7 and top-p 0.95 where it has none.

    A file whose settings make no sense counts as having none.
    """
    found = {name: metadata.get(f"general.sampling.{key}") for key, name in _SAMPLING_KEYS.items()}
    try:
        return replace(Sampling(), **{name: value for name, value in found.items() if value is not None})
    except (EngineError, TypeError):
        return Sampling()
