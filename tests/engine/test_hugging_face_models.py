"""Models straight from Hugging Face folders, against transformers' logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from engine import Engine, Sampling
from tests.engine import llama_reference
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf, reference
from tests.engine.tolerance import tolerance

FLOAT16_CACHE = 0.02  # what float16 keys and values alone cost the most sensitive of these models
GREEDY = Sampling(temperature=0.0)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in MODELS.glob("*/config.json")))
def test_prefill_gives_transformers_logits(name: str) -> None:
    ids, expected = reference(MODELS / name)
    with Engine.open(MODELS / name) as engine:
        assert engine.model.name == name
        assert engine.model.quantisation == ("F16" if name == "qwen2" else "BF16")
        session = engine.session()
        for count in (1, 17, len(ids)):
            logits = session.prefill(ids[:count])
            error = np.abs(logits - expected[count - 1]).max()
            assert error < FLOAT16_CACHE * np.abs(expected[count - 1]).max()


def test_quantised_on_the_way_it_is_the_quantised_file(tmp_path: Path) -> None:
    """The same ids and logits to the bit, and those of a float64 pass over the file's weights."""
    path = hf_to_gguf(MODELS / "llama", tmp_path / "llama.gguf", Type.Q8_0)
    ids, _ = reference(MODELS / "llama")
    found = []
    for model, quantize in ((path, None), (MODELS / "llama", "q8_0")):
        with Engine.open(model, quantize=quantize) as engine:
            assert engine.model.quantisation == "Q8_0"
            session = engine.session()
            logits, bound = session.prefill(ids), tolerance(engine)
            found.append((logits.tobytes(), [token.id for token in session.generate(GREEDY, max_tokens=8)]))
    assert found[0] == found[1]
    expected = llama_reference.logits(path, ids, np.float16)[-1]
    assert np.abs(logits - expected).max() < bound * np.abs(expected).max()
