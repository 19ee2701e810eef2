"""Every architecture's tiny model against transformers' logits and a float64 forward pass, whatever the switches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as Type

from engine import BARRIERS, FUSION_PASSES, Engine, Sampling, Session
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf, reference
from tests.engine.tiny_runs import random_ids
from tests.engine.tolerance import assert_logits
from tests.engine.waits import assert_waits

NAMES = ("llama", "llama3", "mistral", "qwen2", "qwen3", "gemma3", "smollm3")
GREEDY = Sampling(temperature=0.0)
FLOAT16_CACHE = 0.02  # what float16 keys and values alone cost the most sensitive of these models
PROMPT, REPLY = 118, 14  # across a multiple of attention's token ranges, beyond several windows
MIXED = {"*": Type.Q4_1, "attn_v": Type.Q8_0, "token_embd": Type.Q8_0, "ffn_down": Type.Q5_0}

MIXED_ON_GPUS = ("qwen2", "gemma3", "smollm3")  # a bias, norms of heads and after blocks, layers without RoPE


def far(found: npt.NDArray[np.float32], expected: npt.NDArray[np.floating]) -> float:
    """The largest difference, relative to the largest logit."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# llama3 runs the same nodes as llama, which test_engine.py covers besides: only through make soak
@pytest.fixture(scope="module", params=[pytest.param("llama", marks=pytest.mark.soak), *NAMES[1:]])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hf_to_gguf(MODELS / name, tmp_path_factory.mktemp(name) / "tiny.gguf")


@pytest.fixture(scope="module", params=[None, False], ids=["", "gpu-kernels"])
def engine(path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """With this device's own kernels, then with those for GPUs, which a software device can run too."""
    with Engine.open(path, context=256, fusion=FUSION_PASSES, row_kernels=request.param) as opened:
        opened.stamp_every = 0
        yield opened


def decode(engine: Engine, session: Session, prompt: list[int]) -> tuple[list[int], list[npt.NDArray[np.float32]]]:
    """REPLY greedy ids, and the logits that each was chosen from."""
    session.prefill(prompt)
    ids, logits = [], []
    for token in session.generate(GREEDY, REPLY, ignore_eos=True):
        ids.append(token.id)
        logits.append(engine._runtime.prefill.logits().copy())
    return ids, logits


def check_decode(engine: Engine, path: Path) -> list[int]:
    """Decode's own logits, token by token; returns the ids, prompt and reply."""
    prompt = random_ids(PROMPT)
    engine.mode = "reuse"  # which waits for each token
    ids, logits = decode(engine, engine.session(), prompt)
    assert_logits(engine, path, [*prompt, *ids[:-1]], logits)
    return prompt + ids


def test_prefill_logits(engine: Engine, name: str, path: Path) -> None:
    ids, transformers = reference(MODELS / name)
    session = engine.session()
    for count in (len(ids), 3, 17, 30):
        found = session.prefill(ids[:count])
        assert far(found, transformers[count - 1]) < FLOAT16_CACHE
        assert_logits(engine, path, ids[:count], [found])


def test_decode_logits_and_ids_in_every_mode(engine: Engine, name: str, path: Path) -> None:
    engine.fusion, engine.barriers = FUSION_PASSES, "needed"
    whole = check_decode(engine, path)
    prompt, session = whole[:PROMPT], engine.session()
    modes = engine.modes
    for engine.mode in modes:
        # without fusion only where that costs no compilation of half a minute
        fusions = (FUSION_PASSES,) if engine.mode == "persistent" else (FUSION_PASSES, False)
        for engine.barriers in BARRIERS:
            for engine.fusion in fusions:
                assert decode(engine, session, prompt)[0] == whole[PROMPT:]


def test_no_pass_changes_a_bit(engine: Engine) -> None:
    prompt, session = random_ids(PROMPT), engine.session()
    engine.mode, engine.barriers, engine.fusion = "reuse", "needed", False
    ids, logits = decode(engine, session, prompt)
    without = [tuple(other for other in FUSION_PASSES if other != one) for one in FUSION_PASSES]
    for engine.fusion in (*((one,) for one in FUSION_PASSES), *without, FUSION_PASSES):
        found_ids, found = decode(engine, session, prompt)
        assert found_ids == ids
        assert all(np.array_equal(one, other) for one, other in zip(found, logits, strict=True))


def test_under_flags_each_kernel_waits_for_all_it_depends_on(engine: Engine) -> None:
    assert_waits(engine)


@pytest.mark.parametrize(
    ("name", "row_kernels"), [*((name, None) for name in NAMES), *((name, False) for name in MIXED_ON_GPUS)]
)
def test_quantised_weights(name: str, tmp_path: Path, row_kernels: bool | None) -> None:
    """Types mixed within a layer, so that only some of its projections can be one."""
    path = hf_to_gguf(MODELS / name, tmp_path / "tiny.gguf", MIXED)
    with Engine.open(path, context=256, fusion=FUSION_PASSES, row_kernels=row_kernels) as engine:
        whole = check_decode(engine, path)
        engine.fusion = False
        assert decode(engine, engine.session(), whole[:PROMPT])[0] == whole[PROMPT:]
