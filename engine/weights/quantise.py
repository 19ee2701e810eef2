"""Quantising a checkpoint's matrices while they are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.errors import EngineError

_T = GGMLQuantizationType
_TYPES = {"q8_0": _T.Q8_0, "q5_1": _T.Q5_1, "q5_0": _T.Q5_0, "q4_1": _T.Q4_1, "q4_0": _T.Q4_0, "f16": _T.F16}
_ALL = "-all"
QUANTISATIONS = (*_TYPES, *(name + _ALL for name, kind in _TYPES.items() if kind not in (_T.Q8_0, _T.F16)))
_OUTSIDE_LAYERS = ("token_embd.weight", "output.weight")
_STEP = 1 << 17  # elements that the library quantises at once: its temporaries stay in a processor's cache
_STORED = {"F32": _T.F32, "F16": _T.F16, "BF16": _T.BF16}


@dataclass(frozen=True, slots=True)
class Quantisation:
    """``layers`` is the type of the layers' matrices, ``outside`` that of the embedding and the output."""

    layers: GGMLQuantizationType
    outside: GGMLQuantizationType

    @classmethod
    def named(cls, name: str) -> Quantisation:
        """By one of QUANTISATIONS, which EngineError lists for another name.

        Types below eight bits leave embedding and output at Q8_0, which cost most where they lose bits, unless the
        name ends in "-all".
        """
        if name not in QUANTISATIONS:
            raise EngineError(f"unknown quantisation {name!r}; there is {', '.join(QUANTISATIONS)}")
        kind = _TYPES[name.removesuffix(_ALL)]
        small = kind not in (_T.Q8_0, _T.F16) and not name.endswith(_ALL)
        return cls(kind, _T.Q8_0 if small else kind)


def stored_type(dtype: str) -> GGMLQuantizationType:
    """GGML's type of safetensors' F32, F16 or BF16."""
    return _STORED[dtype]


def matrix_type(quantisation: Quantisation | None, name: str, dtype: str, cols: int) -> GGMLQuantizationType:
    """What the matrix that GGUF calls ``name`` becomes; one whose columns fill no blocks stays as it is stored."""
    if quantisation is None:
        return stored_type(dtype)
    kind = quantisation.outside if name in _OUTSIDE_LAYERS else quantisation.layers
    return stored_type(dtype) if cols % GGML_QUANT_SIZES[kind][0] else kind


def to_float32(raw: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[np.float32]:
    """Rows of bytes (rows, row bytes) as float32 (rows, elements)."""
    if dtype == "BF16":
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    return raw.view("<f2" if dtype == "F16" else "<f4").astype(np.float32)


def from_float32(values: npt.NDArray[np.float32], kind: GGMLQuantizationType) -> npt.NDArray[np.uint8]:
    """float32 (rows, elements) as rows of bytes of ``kind``. OverflowError where a value is too large for it."""
    values = np.ascontiguousarray(values)
    if kind is _T.F32:
        return values.view(np.uint8)
    # Rows end at a block's end, so the library may see them as one: it takes rows sixteen at a time, and short ones
    # would cost more of the interpreter than of arithmetic.
    flat = values.reshape(1, -1)
    with np.errstate(over="raise"):
        try:
            parts = [quants.quantize(flat[:, start : start + _STEP], kind) for start in range(0, flat.size, _STEP)]
        except FloatingPointError as error:
            raise OverflowError(f"a value is too large for {kind.name}") from error
    return np.concatenate([part.view(np.uint8).reshape(-1) for part in parts]).reshape(len(values), -1)
