"""The real SmolLM2 against its recorded reference (tests/data, made with transformers' arithmetic in float32)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine import Engine, Sampling

DATA = Path(__file__).parents[1] / "data"
LOGITS_TOLERANCE = 0.04  # a float16 KV cache alone costs up to 0.015


@pytest.fixture(scope="module")
def engine(smollm2_path):
    with Engine.open(smollm2_path, context=512) as opened:
        yield opened


@pytest.mark.parametrize("chat", range(3))
def test_prompt_ids_and_first_logits(engine, chat):
    prompt = json.loads((DATA / "ref_smollm2.json").read_text())["prompts"][chat]
    ids = engine.render(prompt["messages"])
    assert ids == prompt["ids"]
    logits = engine.session().prefill(ids)
    assert np.abs(logits - np.load(DATA / "ref_smollm2.npz")[f"logits{chat}"]).max() < LOGITS_TOLERANCE


# that the switches change no bit, in whatever combination, is for the tiny models; all of them here in `make soak`
@pytest.mark.parametrize(("mode", "barriers", "fusion"), [
    ("rerecord", "every", False), ("overlap", "needed", True), ("reuse", "needed", True), ("reuse", "every", True),
    ("pipelined", "needed", True), ("pipelined", "needed", False),
])  # fmt: skip
def test_greedy_ids_in_every_mode(engine, mode, barriers, fusion):
    prompt = json.loads((DATA / "ref_smollm2.json").read_text())["prompts"][2]
    engine.mode, engine.barriers, engine.fusion = mode, barriers, fusion
    session = engine.session()
    session.prefill(prompt["ids"])
    tokens = session.generate(Sampling(temperature=0.0), max_tokens=40, ignore_eos=True)
    assert [token.id for token in tokens] == prompt["greedy40_ids"]
