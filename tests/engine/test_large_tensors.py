"""Tensors larger than one piece of device memory: in parts, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from engine import FUSION_PASSES, Engine, EngineError, Sampling
from engine.vulkan.device import Device
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.validated import open_validated

GREEDY = Sampling(temperature=0.0)
IDS = [3, 319, 128, 127, 0, 255, 256]
PIECE_BYTES = 8192  # three parts of the tiny model's embedding; its other matrices are smaller


def outcome(
    path: Path, open: Callable[..., Engine] = Engine.open, **options: Any
) -> tuple[bytes, list[int], list[str]]:
    """Logits after IDS, greedy ids behind them, and what the validation layer said."""
    with open(path, **options) as engine:
        session = engine.session()
        logits = session.prefill(IDS)
        ids = [token.id for token in session.generate(GREEDY, max_tokens=12, ignore_eos=True)]
        assert len(set(ids)) > 3, "the last token alone does not decide"
        return logits.tobytes(), ids, engine.vulkan_messages


@pytest.mark.parametrize(("row_kernels", "tied"), [(None, True), (False, True), (False, False)])
def test_parts_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_kernels: bool | None, tied: bool
) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", tied=tied, types={"*": Type.Q4_1, "token_embd": Type.Q8_0})
    whole = outcome(path, row_kernels=row_kernels, fusion=FUSION_PASSES)
    monkeypatch.setattr(Device, "most_slice_bytes", PIECE_BYTES)
    for fusion in (FUSION_PASSES, False):
        assert outcome(path, row_kernels=row_kernels, fusion=fusion) == whole


@pytest.mark.parametrize("row_kernels", [None, False])
def test_parts_by_descriptors_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_kernels: bool | None
) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", types={"*": Type.Q4_1, "token_embd": Type.Q8_0})
    options = {"row_kernels": row_kernels, "fusion": FUSION_PASSES}
    whole = outcome(path, **options)
    monkeypatch.setattr(Device, "most_slice_bytes", PIECE_BYTES)
    by_descriptors = outcome(path, open_validated, **options)
    assert by_descriptors == whole, by_descriptors[2]


def test_a_layers_matrix_that_fits_no_piece_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", types={"*": Type.F32, "token_embd": Type.Q4_0})
    monkeypatch.setattr(Device, "most_slice_bytes", PIECE_BYTES)
    with pytest.raises(EngineError, match=r"tensor blk\.0\.attn_q\.weight takes 0 MB, and a piece of this device"):
        Engine.open(path)


def test_an_embedding_beyond_what_a_descriptor_covers(tmp_path: Path) -> None:
    """128 MiB on llvmpipe; elsewhere it is in one piece, and the same holds."""
    sizes = {"vocab": 270_000, "hidden": 256, "heads": 4, "kv_heads": 2, "ffn": 64, "layers": 1}
    path = write_tiny_llama(
        tmp_path / "large.gguf", **sizes, types={"*": Type.Q8_0, "token_embd": Type.F16}, tokenizer=False
    )  # type: ignore[arg-type]
    assert path.stat().st_size > 128 << 20
    ids = [5, 269_999, 262_143, 131_072, 7]
    found = []
    for open in (Engine.open, open_validated):
        with open(path) as engine:
            assert engine.vulkan_messages == []
            session = engine.session()
            logits = session.prefill(ids)
            found.append((logits.tobytes(), [token.id for token in session.generate(GREEDY, max_tokens=1)]))
            assert engine.vulkan_messages == []
    assert found[0] == found[1]
    assert np.isfinite(logits).all()
