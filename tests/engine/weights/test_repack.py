"""Planes of weights: sizes, refusals, and speed's precondition that chunks do not show."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from engine.errors import EngineError
from engine.weights import repack as module
from engine.weights.formats import LAYOUTS, Layout, plane_bytes
from engine.weights.repack import repack
from tests.engine.weight_data import K_TYPES, TYPES, T, fresh_random, random_raw


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_planes_are_as_large_as_the_file_says(type: GGMLQuantizationType, layout: Layout) -> None:
    raw = random_raw(fresh_random(), type, 16, 1024)
    quants, scales = repack(raw, type, 16, 1024, layout)
    assert (quants.size, scales.size) == plane_bytes(type, 16, 1024, layout)
    padding = 16 if type in (T.F32, T.F16, T.BF16) else 0
    if type is T.Q3_K:  # its scales are 14 bytes, and 16 once loads are aligned
        padding = 2 * raw.size // 110
    assert quants.size + scales.size == raw.size + padding
    assert quants.size % 16 == 0 and scales.size % 4 == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_chunks_do_not_show(type: GGMLQuantizationType, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, cols = 83, 768 if type in K_TYPES else 96
    raw = random_raw(fresh_random(), type, rows, cols)
    whole = repack(raw, type, rows, cols, layout)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1)
    for chunked, expected in zip(repack(raw, type, rows, cols, layout), whole, strict=True):
        np.testing.assert_array_equal(chunked, expected)


@pytest.mark.parametrize(
    ("type", "rows", "cols", "size", "words"),
    [
        (T.Q4_1, 4, 32, 79, "takes 80 bytes"),
        (T.Q4_1, 4, 48, 80, "multiple of 32"),
        (T.Q4_K, 4, 128, 144, "multiple of 256"),
        (T.F32, 4, 6, 96, "multiple of 4"),
        (T.IQ2_XS, 4, 256, 74, "not supported"),
    ],
)
def test_refusals_say_what_is_wrong(type: GGMLQuantizationType, rows: int, cols: int, size: int, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        repack(np.zeros(size, np.uint8), type, rows, cols, "cpu")
