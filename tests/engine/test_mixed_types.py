"""Models whose matrices have several types, as quantisers make them: logits, and the same ids in every mode."""

from __future__ import annotations

import pytest
from gguf import GGMLQuantizationType as Type

from engine import FUSION_PASSES, Engine, Sampling
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.tiny_runs import random_ids
from tests.engine.tolerance import assert_greedy, assert_logits
from tests.engine.waits import assert_waits

# the stack of q, k and v breaks in two places; gate and up are no pair in the first
MIXES = {
    "qk-v": {
        "*": Type.IQ4_XS, "attn_v": Type.Q5_K, "ffn_up": Type.MXFP4, "ffn_down": Type.Q4_K, "token_embd": Type.IQ4_NL,
    },
    "q-kv": {
        "*": Type.Q2_K, "blk.0.attn_q": Type.Q3_K, "blk.1.attn_k": Type.Q3_K, "ffn_down": Type.Q3_K,
        "output": Type.Q6_K,
    },
}  # fmt: skip


@pytest.fixture(params=[None, False], ids=["", "gpu-kernels"])
def row_kernels(request):
    return request.param


@pytest.mark.parametrize("mix", MIXES)
def test_mixed_types(tmp_path, mix, row_kernels):
    path = write_tiny_llama(
        tmp_path / "model.gguf", hidden=256, ffn=256, types=MIXES[mix], tied="output" not in MIXES[mix]
    )
    prompt = random_ids(19)
    with Engine.open(path, row_kernels=row_kernels) as engine:
        found = {}
        for mode in engine.modes:
            # without fusion only where that costs no compilation of half a minute
            for fusion in (FUSION_PASSES,) if mode == "persistent" else (FUSION_PASSES, ()):
                engine.mode, engine.fusion = mode, fusion
                session = engine.session()
                logits = session.prefill(prompt)
                tokens = session.generate(Sampling(temperature=1.5, top_p=1.0, seed=5), 12, ignore_eos=True)
                found[mode, fusion] = [token.id for token in tokens]
        assert_waits(engine)
        assert_logits(engine, path, prompt, [logits])
        ids = found["reuse", ()]
        assert all(one == ids for one in found.values()), found
        # decode's logits: of one token after a prompt of one
        session = engine.session()
        session.prefill(ids[:1])
        following = [token.id for token in session.generate(Sampling(temperature=0.0), 8, ignore_eos=True)]
        assert_greedy(engine, path, ids[:1], following)
