"""A thinking model's reply through the whole engine: thoughts and answer apart, and no turn's cache kept wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine, EngineError, Sampling, Token
from tests.engine.thinking_folder import thinking_folder
from tests.engine.tiny_model import THINK_TAGS, THINKING, write_tiny_llama

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("models") / "thinker.gguf"
    with Engine.open(write_tiny_llama(path, layers=1, template=THINKING, added=THINK_TAGS)) as opened:
        yield opened


def reply(engine: Engine, prompt: list[int], seed: int, max_tokens: int = 200) -> list[Token]:
    """Random tokens, nearly all equally likely."""
    session = engine.session()
    session.prefill(prompt)
    return list(session.generate(Sampling(temperature=50.0, top_p=1.0, seed=seed), max_tokens, ignore_eos=True))


def joined(tokens: list[Token]) -> tuple[str, str]:
    return "".join(token.text for token in tokens), "".join(token.thought for token in tokens)


def visible(engine: Engine, tokens: list[Token]) -> str:
    return engine.decode(token.id for token in tokens if token.id not in engine.stop_ids | {1})


def test_the_switch_is_the_templates(thinker: Engine, tiny_path: Path) -> None:
    assert thinker.model.thinking is True
    assert thinker.render(HELLO) == thinker.render(HELLO, thinking=True)
    assert thinker.decode(thinker.render(HELLO)).endswith("<think>\n")
    assert thinker.decode(thinker.render(HELLO, thinking=False)).endswith("<think>\n\n</think>\n\n")
    with Engine.open(tiny_path) as plain:
        assert plain.model.thinking is None
        with pytest.raises(EngineError, match="has no switch for thinking"):
            plain.render(HELLO, thinking=True)


def test_thoughts_end_where_the_closing_tag_comes(thinker: Engine) -> None:
    prompt = thinker.render(HELLO)
    (closing,) = thinker.encode("</think>")
    for seed in range(40):
        tokens = reply(thinker, prompt, seed)
        ids = [token.id for token in tokens]
        text, thought = joined(tokens)
        end = ids.index(closing) + 1 if closing in ids else len(ids)
        assert [token.thinking for token in tokens[:end]] == [True] * end
        assert thought.startswith("\n" + visible(thinker, tokens[: end - 1])[:20])
        if end < len(ids) and "<think>" not in text and text.strip():
            assert text == visible(thinker, tokens[end:])
            assert not any(token.thinking for token in tokens[end:])
            break
    else:
        pytest.fail("no reply closed its block")


def test_with_thinking_off_all_is_answer(thinker: Engine) -> None:
    tokens = reply(thinker, thinker.render(HELLO, thinking=False), seed=1, max_tokens=40)
    assert joined(tokens) == (visible(thinker, tokens), "")


def test_a_raw_prompt_may_open_the_block(thinker: Engine) -> None:
    tokens = reply(thinker, thinker.encode("go <think>"), seed=2, max_tokens=5)
    assert joined(tokens) == ("", visible(thinker, tokens))
    assert all(token.thinking for token in tokens)


def test_stripped_thoughts_are_fed_no_more(thinker: Engine) -> None:
    """The template leaves them out, so the next turn shares only what came before them."""
    first = thinker.render(HELLO)
    session = thinker.session()
    session.prefill(first)
    tokens = list(session.generate(Sampling(temperature=0.0), 20))
    text, thought = joined(tokens)
    answer = {"role": "assistant", "content": text, "reasoning_content": thought}
    second = thinker.render([*HELLO, answer, *HELLO])
    assert thought.strip() and thought.strip() not in thinker.decode(second)
    session.prefill(second)
    assert session.prefill_stats.kept == len(first) - len(thinker.encode("<think>\n"))
    assert session.prefill_stats.tokens == len(second) - session.prefill_stats.kept


def test_a_hugging_face_folder_brings_the_same(tmp_path: Path) -> None:
    """Tags among its added tokens, the template in a file of its own, end tokens in two configs."""
    folder = thinking_folder("llama", tmp_path / "thinker")
    with Engine.open(folder) as engine:
        assert engine.stop_ids == {0, 2, 70}
        assert engine.model.can_chat and engine.model.thinking is True
        prompt = engine.render(HELLO, thinking=True)
        assert 318 in prompt and 319 not in prompt
        tokens = reply(engine, prompt, seed=1, max_tokens=10)
        assert all(token.thinking for token in tokens)
        assert joined(tokens)[1].startswith("\n")
