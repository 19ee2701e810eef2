"""Qwen3.5: logits like transformers', the same bits whatever the mode, fusion, barriers and cuts of the prompt."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine import BARRIERS, FUSION_PASSES, Engine, EngineError, Sampling
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf
from tests.engine.qwen35_reference import logits as reference_logits
from tests.engine.tolerance import tolerance
from tests.engine.validated import open_validated
from tests.engine.waits import assert_waits
from tests.engine.weights.folder import Tensors, change_tensors, copy
from tests.flipping import generate

FOLDER = MODELS / "qwen3_5"
SHARED = Path(__file__).parents[4] / "shared" / "reference"
GREEDY = Sampling(temperature=0.0)
CONTEXT = 256


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hf_to_gguf(FOLDER, tmp_path_factory.mktemp("models") / "qwen35.gguf")


@pytest.fixture(scope="module", params=[None, False], ids=["software", "gpu-kernels"])
def engine(path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine.open(path, context=CONTEXT, row_kernels=request.param) as opened:
        yield opened


def random_ids(count: int, seed: int = 1) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(3, 320, count).tolist()
    return found


def assert_close(engine: Engine, found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(found - expected).max() < tolerance(engine) * np.abs(expected).max()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 40])
def test_prefill(engine: Engine, count: int) -> None:
    with np.load(FOLDER / "reference.npz") as reference:
        ids, expected = reference["ids"].tolist(), reference["logits"]
    assert_close(engine, engine.session().prefill(ids[:count]), expected[count - 1])


def test_under_flags_each_kernel_waits_for_all_it_depends_on(engine: Engine) -> None:
    assert_waits(engine)


@pytest.mark.parametrize("row_kernels", [None, False], ids=["software", "gpu-kernels"])
def test_queries_and_keys_near_zero(tmp_path: Path, row_kernels: bool | None) -> None:
    """Their l2 norms' epsilon counts then."""
    folder = copy("qwen3_5", tmp_path)

    def shrink(tensors: Tensors) -> None:
        for name, item in tensors.items():
            if name.endswith("conv1d.weight"):
                values = np.frombuffer(bytes(item["data"]), "<u2").copy()
                item["data"] = (values - np.uint16(10 << 7)).tobytes()  # BF16 times 2^-10

    change_tensors(folder / "model.safetensors", shrink)
    path = hf_to_gguf(folder, tmp_path / "tiny.gguf")
    with Engine.open(path, context=64, fusion=FUSION_PASSES, row_kernels=row_kernels) as engine:
        ids = random_ids(20)
        assert_close(engine, engine.session().prefill(ids), reference_logits(path, ids, np.float16)[-1])
        session = engine.session()
        session.prefill(ids[:1])
        reply = [ids[0], *(token.id for token in session.generate(GREEDY, 20, ignore_eos=True))]
        longer = [*session.ids, 7]
        assert longer[:-1] == reply[:-1]
        assert_close(engine, session.prefill(longer), reference_logits(path, longer, np.float16)[-1])


def test_a_prompt_fed_token_by_token(engine: Engine) -> None:
    with np.load(FOLDER / "reference.npz") as reference:
        ids, expected = reference["ids"].tolist(), reference["logits"]
    session = engine.session()
    for count in range(1, len(ids) + 1):
        assert_close(engine, session.prefill(ids[:count]), expected[count - 1])
        assert session.prefill_stats.tokens == 1


@pytest.mark.parametrize("fusion", [FUSION_PASSES, ()], ids=["fused", "unfused"])
def test_decode_follows_the_reference(engine: Engine, path: Path, fusion: tuple[str, ...]) -> None:
    engine.mode, engine.barriers, engine.fusion = "reuse", "needed", fusion
    prompt = random_ids(6)
    session = engine.session()
    session.prefill(prompt)
    ids = [token.id for token in session.generate(GREEDY, 30, ignore_eos=True)]
    expected = reference_logits(path, prompt + ids, np.float16)[len(prompt) - 1 :]
    for id, row in zip(ids, expected, strict=False):
        assert row[id] > row.max() - tolerance(engine) * np.abs(row).max()
    assert session.ids == prompt + ids[:-1]
    longer = [*session.ids, 7]
    assert_close(engine, session.prefill(longer), reference_logits(path, longer, np.float16)[-1])
    assert session.prefill_stats.tokens == 1  # on top of what decoding left of the state


@pytest.mark.parametrize("chunk_tokens", [1, 3, 7, 16])
def test_chunks_change_no_bit(engine: Engine, chunk_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = random_ids(32)
    prefill = engine._runtime.prefill
    monkeypatch.setattr(prefill, "chunk_tokens", len(ids))
    expected = engine.session().prefill(ids)
    monkeypatch.setattr(prefill, "_adapt", lambda tokens, seconds: None)
    monkeypatch.setattr(prefill, "chunk_tokens", chunk_tokens)
    np.testing.assert_array_equal(engine.session().prefill(ids), expected)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.2, top_p=0.98, seed=7)], ids=["greedy", "sampled"])
def test_every_switch_gives_the_same_ids(engine: Engine, sampling: Sampling) -> None:
    prompt = random_ids(5)
    expected = None
    modes = engine.modes
    for engine.mode in modes:
        for engine.barriers in BARRIERS:
            for engine.fusion in (FUSION_PASSES, ()):
                ids = generate(engine, prompt, sampling, 12).ids
                expected = expected or ids
                assert ids == expected, (engine.mode, engine.barriers, engine.fusion)
    flipped = generate(engine, prompt, sampling, 120, random.Random(3))
    engine.mode, engine.barriers, engine.fusion = "reuse", "every", False
    assert flipped.flips > 10 and flipped.ids == generate(engine, prompt, sampling, 120).ids


def test_each_fusion_pass_changes_no_bit(engine: Engine) -> None:
    engine.mode, engine.barriers = "reuse", "needed"
    ids = {}
    for passes in ((), *((name,) for name in FUSION_PASSES)):
        engine.fusion = passes
        ids[passes] = generate(engine, random_ids(9), Sampling(temperature=1.5, top_p=1.0, seed=5), 40).ids
    assert all(one == ids[()] for one in ids.values())


def test_a_folder_of_safetensors() -> None:
    with np.load(FOLDER / "reference.npz") as reference, Engine.open(FOLDER, context=CONTEXT) as engine:
        session, ids = engine.session(), reference["ids"].tolist()
        for count in (1, 4, 40):
            assert_close(engine, session.prefill(ids[:count]), reference["logits"][count - 1])


@pytest.mark.parametrize("row_kernels", [None, False], ids=["software", "gpu-kernels"])
def test_the_given_reference(row_kernels: bool | None) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED.name} files are not beside this checkout")
    with np.load(SHARED / "ref_qwen35_tiny.npz") as reference:
        ids, expected = reference["ids"].tolist(), reference["logits"]
    with Engine.open(SHARED / "qwen35_tiny_random_f32.gguf", context=CONTEXT, row_kernels=row_kernels) as engine:
        session = engine.session()
        for count in (1, 2, 3, 5, 11, 40):
            assert_close(engine, session.prefill(ids[:count]), expected[count - 1])


@pytest.mark.parametrize("row_kernels", [None, False], ids=["software", "gpu-kernels"])
def test_the_validation_layer_has_nothing_to_say(path: Path, row_kernels: bool | None) -> None:
    with open_validated(path, context=CONTEXT, row_kernels=row_kernels, mode="pipelined") as engine:
        for engine.fusion in (FUSION_PASSES, ()):
            session = engine.session()
            session.prefill(random_ids(37))
            assert len(list(session.generate(GREEDY, 6, ignore_eos=True))) == 6
            session.prefill(random_ids(37))  # a state put back
        assert engine.vulkan_messages == []


@pytest.mark.parametrize(("key", "value", "problem"), [
    ("ssm.conv_kernel", 5, "ssm.conv_kernel is 5; expected 4 to 4"),
    ("ssm.inner_size", 96, "2 linear key heads, 4 value heads of 32, 96 in all, do not fit"),
    ("ssm.time_step_rank", 3, "2 linear key heads, 3 value heads of 32"),
    ("attention.value_length", 16, "keys and values of different sizes are not supported"),
    ("rope.dimension_count", 33, "head size 32 .33 rotated. do not fit"),
])  # fmt: skip
def test_a_shape_that_cannot_be(path: Path, tmp_path: Path, key: str, value: int, problem: str) -> None:
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(path.read_bytes())
    reader = gguf.GGUFReader(changed, "r+")
    field = reader.get_field(f"qwen35.{key}")
    assert field is not None
    field.parts[field.data[0]][0] = value
    reader.data.flush()
    with pytest.raises(EngineError, match=problem):
        Engine.open(changed)
