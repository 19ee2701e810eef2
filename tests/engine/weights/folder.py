"""Hugging Face folders changed for a test."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from tests.engine.hf_to_gguf import MODELS

Tensors = dict[str, dict[str, Any]]  # by name: dtype, shape and data, as safetensors.deserialize gives them


def copy(name: str, folder: Path) -> Path:
    """A folder of tests/data/models, copied to change it."""
    return Path(shutil.copytree(MODELS / name, folder / name))


def change_config(folder: Path, **values: Any) -> None:
    """Set values of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_tensors(path: Path, change: Callable[[Tensors], Tensors | None]) -> None:
    """Rewrite a safetensors file with what ``change`` makes of its tensors, or has done to them."""
    tensors: Tensors = dict(safetensors.deserialize(path.read_bytes()))
    tensors = change(tensors) or tensors
    # The library takes addresses: the arrays live until it has written.
    arrays = {name: np.frombuffer(bytes(item["data"]), np.uint8) for name, item in tensors.items()}
    names = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "I8": "int8"}
    specs = {
        name: safetensors.TensorSpec(
            dtype=names[item["dtype"]],
            shape=item["shape"],
            data_ptr=arrays[name].ctypes.data,
            data_len=arrays[name].nbytes,
        )
        for name, item in tensors.items()
    }
    safetensors.serialize_file(specs, path)
