"""A Hugging Face folder as a model source: what GGUF would hold, worked out as it is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.errors import EngineError
from engine.models.hugging_face import rules_for
from engine.models.hugging_face.config import FILE, Config
from engine.models.hugging_face.generation import sampling_keys
from engine.models.hugging_face.rules import Conversion, Rules, gguf_name
from engine.weights.gguf_header import TensorInfo
from engine.weights.quantise import Quantisation, from_float32, matrix_type, stored_type, to_float32
from engine.weights.safetensors_files import ITEM_BYTES, SafetensorsFiles, StoredTensor
from engine.weights.source import Bytes

_F32 = GGMLQuantizationType.F32
_CHUNK_BYTES = 1 << 20  # of the checkpoint a step, so that temporaries stay small beside the tensor


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor of the model: where it is stored and how it becomes what ``info`` says."""

    info: TensorInfo
    stored: StoredTensor
    conversion: Conversion


class HuggingFaceFolder:
    """An open folder with config.json and safetensors; see ModelSource."""

    def __init__(self, path: Path, quantisation: Quantisation | None = None) -> None:
        """Open it; ``quantisation`` is applied to the matrices. Anything wrong is an EngineError naming the folder."""
        path = path.absolute()
        self.path = self.folder = path.resolve() if path.name in ("", "..") else path
        self.name = _model_name(self.path)
        config = Config.read(self.path, self.name)
        rules = rules_for(config)
        architecture = rules.ARCHITECTURE
        self.metadata: dict[str, Any] = {"general.architecture": architecture, "general.name": self.name}
        self.metadata |= {f"{architecture}.{key}": value for key, value in rules.metadata(config).items()}
        self.metadata |= sampling_keys(self.path, self.name)
        self._files = SafetensorsFiles(self.path, self.name)
        try:
            self._added = rules.added_tensors(config)
            self._entries = dict(self._find(config, rules, quantisation))
            self._check_head(config, rules, self.metadata[f"{architecture}.vocab_size"])
        except BaseException:
            self._files.close()
            raise
        self.file_bytes = self._files.size_bytes
        self.tensors = {name: entry.info for name, entry in self._entries.items()}
        for name, values in self._added.items():
            self.tensors[name] = TensorInfo(name, values.shape, _F32, 0, values.nbytes)

    def rows(self, name: str, first: int, count: int) -> Bytes:
        """``count`` of the tensor's rows from ``first`` on, moved, converted and quantised: flat uint8."""
        if name in self._added:
            return self._added[name][first : first + count].reshape(-1).view(np.uint8).copy()
        entry = self._entries.get(name)
        if entry is None:
            raise EngineError(f"{self.name}: it has no tensor {name!r}")
        result = np.empty((count, entry.info.size_bytes // entry.stored.rows), np.uint8)
        step = max(1, _CHUNK_BYTES // entry.stored.row_bytes)
        try:
            for start in range(0, count, step):
                _convert(self._files, entry, first + start, result[start : start + step])
        except OverflowError as error:
            raise EngineError(f"{self.name}: tensor {entry.info.name}: {error}; take another quantisation") from error
        return result.reshape(-1)

    def data(self, name: str) -> Bytes:
        """The tensor's bytes, (size_bytes,) uint8."""
        info = self.tensors.get(name)
        return self.rows(name, 0, info.shape[0] if info is not None else 0)

    def close(self) -> None:
        """Close the files; arrays that ``data`` gave out stay."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _find(self, config: Config, rules: Rules, quantisation: Quantisation | None) -> Iterator[tuple[str, _Entry]]:
        tied = config.flag("tie_word_embeddings", rules.TIED)
        found: dict[str, str] = {}  # the checkpoint's names by GGUF's
        for stored in self._files.tensors.values():
            try:
                name = gguf_name(rules, stored.name)
            except KeyError as error:
                raise EngineError(
                    f"{self.name}: tensor {stored.name} is none that a {config.get('model_type')} model has"
                ) from error
            if name is None or (name == "output.weight" and tied):
                continue
            if (other := found.setdefault(name, stored.name)) != stored.name:
                raise EngineError(f"{self.name}: tensors {other} and {stored.name} are the same one of the model")
            if stored.dtype not in ITEM_BYTES:
                raise EngineError(
                    f"{self.name}: tensor {stored.name} is {stored.dtype}, which is not supported; "
                    f"there is {', '.join(ITEM_BYTES)}"
                )
            within_layer = name.split(".", 2)[2] if name.startswith("blk.") else name
            conversion = rules.conversion(config, within_layer)
            yield name, _Entry(self._describe(stored, name, conversion, quantisation), stored, conversion)

    def _describe(
        self, stored: StoredTensor, name: str, conversion: Conversion, quantisation: Quantisation | None
    ) -> TensorInfo:
        """The tensor as the result has it. EngineError where its shape is not what config.json makes it."""
        shape = stored.shape
        if conversion.vector:
            shape = (shape[0], *(size for size in shape[1:] if size != 1)) if shape else ()
        if not 1 <= len(shape) <= 2 or 0 in shape:
            raise EngineError(f"{self.name}: tensor {stored.name} is {stored.shape}, which is no vector or matrix")
        for which, order in ((0, conversion.rows), (-1, conversion.columns)):
            if order is not None and len(order) != shape[which]:
                sizes = "rows" if which == 0 else "columns"
                raise EngineError(
                    f"{self.name}: tensor {stored.name} is {stored.shape}; by {FILE} it has {len(order)} {sizes}"
                )
        kind = _F32
        if len(shape) == 2 and not conversion.vector:
            kind = matrix_type(quantisation, name, stored.dtype, shape[1])
        block, block_bytes = GGML_QUANT_SIZES[kind]
        return TensorInfo(stored.name, shape, kind, stored.offset, math.prod(shape) // block * block_bytes)

    def _check_head(self, config: Config, rules: Rules, vocab: int) -> None:
        embedding = self._entries.get("token_embd.weight")
        if embedding is not None and embedding.info.shape[0] != vocab:
            raise EngineError(
                f"{self.name}: tensor {embedding.info.name} has {embedding.info.shape[0]} rows; by {FILE} "
                f"the vocabulary has {vocab} tokens"
            )
        if "output.weight" not in self._entries and not config.flag("tie_word_embeddings", rules.TIED):
            raise EngineError(
                f"{self.name}: tensor lm_head.weight is missing, and tie_word_embeddings in {FILE} is not true"
            )


def _convert(files: SafetensorsFiles, entry: _Entry, first: int, out: npt.NDArray[np.uint8]) -> None:
    """Fill ``out`` (rows, row bytes) with the result's rows from row ``first`` on."""
    stored, conversion, kind = entry.stored, entry.conversion, entry.info.type
    moved, changed = conversion.rows is not None, kind is not stored_type(stored.dtype)
    if not (moved or changed or conversion.columns is not None or conversion.change is not None):
        files.read_into(stored, first, out)
        return
    if conversion.rows is None:
        raw = files.read(stored, first, len(out))
    else:
        raw = _gather(files, stored, conversion.rows[first : first + len(out)])
    if conversion.columns is not None:
        items = raw.view(f"V{ITEM_BYTES[stored.dtype]}")[:, conversion.columns]
        raw = np.ascontiguousarray(items).view(np.uint8)
    if changed or conversion.change is not None:
        values = to_float32(raw, stored.dtype)
        raw = from_float32(values if conversion.change is None else conversion.change(values), kind)
    out[...] = raw


def _gather(files: SafetensorsFiles, stored: StoredTensor, wanted: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8]:
    """The rows ``wanted`` in that order, read in as few pieces as they lie in."""
    order = np.argsort(wanted)
    ascending = wanted[order]
    ends = [*np.flatnonzero(np.diff(ascending) != 1) + 1, len(wanted)]
    rows = np.empty((len(wanted), stored.row_bytes), np.uint8)
    start = 0
    for end in ends:
        files.read_into(stored, int(ascending[start]), rows[start:end])
        start = end
    result = np.empty_like(rows)
    result[order] = rows
    return result


def _model_name(folder: Path) -> str:
    """The folder's name; in Hugging Face's own cache (models--ORG--NAME/snapshots/HASH) the model's."""
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.split("--")[-1]
    return folder.name
