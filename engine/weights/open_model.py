"""Opening a model by what its path is."""

from __future__ import annotations

from pathlib import Path

from engine.errors import EngineError
from engine.weights.gguf import GGUFFile
from engine.weights.hugging_face import HuggingFaceFolder
from engine.weights.quantise import Quantisation
from engine.weights.source import ModelSource


def open_model(path: Path, quantize: str | None = None) -> ModelSource:
    """A GGUF file, or a Hugging Face folder, whose matrices become ``quantize`` (see QUANTISATIONS) where it is given.

    Raise EngineError with one clear line for anything that is wrong with either.
    """
    quantisation = None if quantize is None else Quantisation.named(quantize)
    if path.is_dir():
        return HuggingFaceFolder(path, quantisation)
    if path.suffix == ".safetensors" and path.is_file():
        raise EngineError(f"{path.name}: this is one file of a Hugging Face model; give its folder, {path.parent}")
    file = GGUFFile.open(path)
    if quantisation is not None:
        file.close()
        raise EngineError(f"{path.name}: the weights of a GGUF file stay as they are; leave out the quantisation")
    return file
