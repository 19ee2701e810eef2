"""A chat with a thinking Qwen3.5 as an app has it: messages, the model's template, its thoughts left out later."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine import Engine, Sampling, Session
from tests.engine.thinking_folder import thinking_folder

Messages = list[dict[str, str]]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Engine]]:
    """One for the chat, one to feed each prompt from the start."""
    folder = thinking_folder("qwen3_5", tmp_path_factory.mktemp("models") / "qwen35")
    with Engine.open(folder, context=2048, mode="pipelined") as opened, Engine.open(folder, context=2048) as other:
        yield opened, other


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(
    engines: tuple[Engine, Engine], session: Session, messages: Messages, feed: int, thinking: bool | None = None
) -> Messages:
    """The messages with a reply; no more than ``feed`` tokens of the prompt were fed for it."""
    engine, other = engines
    prompt = engine.render(messages, thinking=thinking)
    logits = session.prefill(prompt)
    assert session.prefill_stats.tokens <= feed < len(prompt) or len(messages) == 1
    tokens = list(session.generate(Sampling(temperature=3.0, top_p=1.0, seed=len(prompt)), 24))
    fed = [*session.ids, *([tokens[-1].id] if tokens and session.finish_reason == "length" else [])]
    assert fed == [*prompt, *(token.id for token in tokens)]
    expected = other.session().prefill(prompt)
    assert np.abs(logits - expected).max() < 2e-3 * np.abs(expected).max()
    text, thought = "".join(token.text for token in tokens), "".join(token.thought for token in tokens)
    return [*messages, {"role": "assistant", "content": text, "reasoning_content": thought}]


def test_only_the_turn_in_question_is_fed(engines: tuple[Engine, Engine]) -> None:
    engine, session = engines[0], engines[0].session()
    lengths = [0]
    chat: Messages = []
    for text in ("first, a longer message than the others. " * 8, "and then?", "why is that so?"):
        chat.append(user(text))
        lengths.append(len(engine.render(chat)))
        chat = answer(engines, session, chat, feed=lengths[-1] - lengths[-2] + 24)
    prompt = engine.render(chat[:-1])
    opening = prompt[::-1].index(2)  # tokens between the end of the user's turn and the reply; 2 is <|im_end|>
    for thinking in (True, None):
        again = answer(engines, session, chat[:-1], feed=opening, thinking=thinking)
        assert again[:-1] == chat[:-1]
    edited = [*chat[:-2], user("who says so?")]
    turns = len(engine.render(edited)) - len(engine.render(chat[:3]))
    answer(engines, session, edited, feed=turns + opening)
