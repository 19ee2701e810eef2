"""Going back in a conversation whose model has a recurrent state: only the turn in question is fed again."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import BARRIERS, FUSION_PASSES, MODES, Cancelled, Engine, EngineError, Sampling
from engine.decode.state import MAX_STOPS
from engine.profile import instruments
from engine.session import Session
from engine.snapshots import PROMPTS
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf

Logits = np.ndarray[Any, np.dtype[np.float32]]
GREEDY = Sampling(temperature=0.0)
END, START, NEWLINE, USER, ASSISTANT, THINK = 2, 1, 3, 4, 5, 6  # ids that stand for a template's


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hf_to_gguf(MODELS / "qwen3_5", tmp_path_factory.mktemp("models") / "qwen35.gguf")


@pytest.fixture(scope="module", params=[None, False], ids=["software", "gpu-kernels"])
def engine(path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine.open(path, context=1024, mode="pipelined", row_kernels=request.param) as opened:
        opened.stop_ids = frozenset({END})
        yield opened


def words(count: int, seed: int) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(10, 320, count).tolist()
    return found


def turn(role: int, content: Sequence[int]) -> list[int]:
    return [START, role, NEWLINE, *content, END, NEWLINE]


OPENING = [START, ASSISTANT, NEWLINE]


class Chat:
    """Turns fed as an app does it: the whole prompt anew for each reply."""

    def __init__(self, engine: Engine, opening: Sequence[int] = OPENING) -> None:
        self.engine, self.opening, self.session = engine, list(opening), engine.session()
        self.turns: list[list[int]] = []
        self.seen: list[tuple[list[int], Logits]] = []

    def prompt(self) -> list[int]:
        return [id for item in self.turns for id in item] + self.opening

    def feed(self) -> int:
        """The prompt as it is now; returns how many tokens were fed."""
        prompt = self.prompt()
        self.seen.append((prompt, self.session.prefill(prompt)))
        stats = self.session.prefill_stats
        assert stats.kept + stats.tokens == len(prompt) and self.session.ids == prompt
        return stats.tokens

    def reply(self, tokens: int = 9) -> None:
        found = [token.id for token in self.session.generate(GREEDY, tokens, ignore_eos=True)]
        self.turns.append(turn(ASSISTANT, found))

    def ask(self, content: Sequence[int]) -> int:
        """A turn and its reply; returns how many tokens were fed."""
        self.turns.append(turn(USER, content))
        fed = self.feed()
        self.reply()
        return fed

    def check(self) -> None:
        """All logits were those of the same prompt fed to an empty session, but for the rounding of keys and values."""
        for prompt, logits in self.seen:
            assert_close(logits, self.engine.session().prefill(prompt))


def assert_close(found: Logits, expected: Logits) -> None:
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()


def test_a_turn_that_follows_is_all_that_is_fed(engine: Engine) -> None:
    chat = Chat(engine)
    assert chat.ask(words(20, 1)) == len(chat.turns[0]) + 3
    for seed in range(2, 5):
        reply_end = 3  # the last token of a reply is never fed by itself, then END and NEWLINE
        assert chat.ask(words(11, seed)) == reply_end + len(chat.turns[-2]) + 3
    chat.check()


def test_regenerate_feeds_what_opens_the_reply(engine: Engine) -> None:
    chat = Chat(engine)
    chat.ask(words(30, 1))
    chat.ask(words(12, 2))
    before = chat.turns.pop()
    for _ in range(3):
        assert chat.feed() == 1 + len(OPENING)
        np.testing.assert_array_equal(chat.seen[-1][1], chat.seen[-2][1])
        chat.reply()
        assert chat.turns.pop() == before
    chat.check()


def test_edit_feeds_the_turn_in_question(engine: Engine) -> None:
    chat = Chat(engine)
    for seed in range(3):
        chat.ask(words(25, seed))
    del chat.turns[-2:]
    assert chat.ask(words(7, 9)) <= 3 + len(chat.turns[-2]) + 3  # not even the reply before it
    del chat.turns[-4:]  # an older turn, longer ago than the newest reply
    assert chat.ask(words(8, 10)) <= 3 + len(chat.turns[-2]) + 3
    chat.check()


def test_a_chat_that_was_fed_at_once_is_kept_in_each_chunk(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when it was loaded: no snapshot was taken while it grew."""
    chat = Chat(engine)
    monkeypatch.setattr(engine._runtime.prefill, "_adapt", lambda tokens, seconds: None)
    chat.turns = [turn((USER, ASSISTANT)[number % 2], words(40, number)) for number in range(21)]
    engine._runtime.prefill.chunk_tokens = 32
    assert chat.feed() == len(chat.prompt())
    for replaced in (20, 18, 16):
        del chat.turns[replaced:]
        chat.turns.append(turn(USER, words(5, replaced)))
        assert chat.feed() <= len(turn(USER, words(40, 0))) + 32 + len(chat.turns[-1]) + 3
    chat.check()


def test_thoughts_that_a_template_leaves_out(engine: Engine) -> None:
    """The prompt ends with a token that no later prompt has there, so no later prompt begins with it."""
    chat = Chat(engine, [*OPENING, THINK])
    chat.ask(words(60, 1))
    for seed in range(2, 6):
        fed = chat.ask(words(10, seed))
        assert fed == 1 + len(chat.turns[-3]) + len(chat.turns[-2]) + 4
    chat.check()


def test_eight_prompts_are_kept(engine: Engine) -> None:
    chat = Chat(engine)
    places = []
    for seed in range(PROMPTS + 3):
        chat.ask(words(9, seed))
        places.append(len(chat.seen[-1][0]) - len(OPENING) - 1)
    kept = chat.session._snapshots.tokens_kept
    assert len(kept) == PROMPTS + 1 and set(kept) > set(places[-PROMPTS:])
    turns = list(chat.turns)
    chat.turns = turns[: 2 * 3 + 1]  # the oldest kept, PROMPTS before the end
    assert chat.feed() == 1 + len(OPENING)
    assert chat.session._snapshots.tokens_kept[-1] == places[3]
    chat.turns = turns[:5]  # older than any
    assert chat.feed() == len(chat.prompt())
    chat.check()


def test_a_prompt_without_turns_is_kept_whole(engine: Engine) -> None:
    session, ids = engine.session(), words(40, 1)
    expected = session.prefill(ids)
    reply = [token.id for token in session.generate(GREEDY, 7, ignore_eos=True)]
    np.testing.assert_array_equal(session.prefill(ids), expected)
    assert (session.prefill_stats.tokens, session.prefill_stats.kept) == (0, 40)
    assert [token.id for token in session.generate(GREEDY, 7, ignore_eos=True)] == reply
    assert_close(session.prefill(ids[:30]), engine.session().prefill(ids[:30]))


def test_a_prompt_that_parts_from_a_kept_one_at_its_last_token(engine: Engine) -> None:
    """The state after that token is no use then: each of the places kept is tried."""
    session, ids = engine.session(), words(40, 1)
    for tail in ([7], [7, 8, END, START], [END, NEWLINE]):
        session.prefill(ids + tail)
        (kept,) = session._snapshots.tokens_kept
        other = [*(ids + tail)[: kept - 1], 9, 6, 5]
        logits = session.prefill(other)
        assert session.prefill_stats.kept == 0
        assert_close(logits, engine.session().prefill(other))
        session = engine.session()


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_a_state_kept_soon_after_a_chunk_began(engine: Engine, tokens: int) -> None:
    """Some of the convolution's inputs are of the chunk before."""
    session, ids = engine.session(), [*words(15 + tokens, 1), END]
    engine._runtime.prefill.chunk_tokens = 16
    session.prefill([*ids, *OPENING])
    other = [*ids, 9, 8]
    logits = session.prefill(other)
    assert session.prefill_stats.kept == 16 + tokens
    assert_close(logits, engine.session().prefill(other))


def test_a_long_prompt_that_was_cancelled_goes_on(engine: Engine) -> None:
    cancel, session, ids = threading.Event(), engine.session(), words(400, 1)
    engine._runtime.prefill.chunk_tokens = 32
    with pytest.raises(Cancelled):
        session.prefill(ids, cancel=cancel, progress=lambda done, total: done >= 40 and cancel.set())
    fed = session.position
    assert 40 <= fed < 400
    found = session.prefill(ids)
    assert session.prefill_stats.kept == fed
    np.testing.assert_array_equal(found, engine.session().prefill(ids))


def continued(engine: Engine, session: Session, prompt: list[int]) -> None:
    """One token more is fed on top of what the device holds, which is what ``session.ids`` says."""
    longer = [*session.ids, 7]
    assert longer[: len(prompt)] == prompt
    logits = session.prefill(longer)
    assert session.prefill_stats.tokens == 1
    assert_close(logits, engine.session().prefill(longer))


@pytest.mark.parametrize("fusion", [FUSION_PASSES, False], ids=["fused", "unfused"])
@pytest.mark.parametrize("stops", [1, MAX_STOPS + 4], ids=["", "more-than-the-device-knows"])
def test_an_end_token_leaves_the_state_as_the_session_says(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, stops: int, fusion: bool | tuple[str, ...]
) -> None:
    prompt = words(12, 1)
    monkeypatch.setattr(engine, "fusion", fusion)
    session = engine.session()
    session.prefill(prompt)
    engine.mode = "reuse"
    whole = [token.id for token in session.generate(GREEDY, 30, ignore_eos=True)]
    unique = [i for i, id in enumerate(whole) if i > 4 and whole.index(id) == i and id >= stops]
    end = max(unique, key=lambda i: whole[i]) if stops > 1 else unique[0]
    others = [id for id in range(whole[end]) if id not in whole][: stops - 1]
    modes = engine.modes
    for engine.mode in modes:
        session = engine.session()
        session._stop_ids = frozenset({whole[end], *others})
        assert len(session._stop_ids) == stops
        session.prefill(prompt)
        assert [token.id for token in session.generate(GREEDY, 30)] == whole[:end]
        assert session.finish_reason == "stop"
        if stops == 1:
            assert session.ids == prompt + whole[:end]
        continued(engine, session, prompt)


@pytest.mark.parametrize("mode", MODES)
def test_a_reply_broken_off_leaves_the_state_as_the_session_says(engine: Engine, mode: str) -> None:
    if mode in engine.refused_modes:
        pytest.skip(engine.refused_modes[mode])
    engine.mode, prompt = mode, words(12, 2)
    session, cancel = engine.session(), threading.Event()
    session.prefill(prompt)
    for count, _ in enumerate(session.generate(GREEDY, 30, ignore_eos=True, cancel=cancel)):
        if count == 4:
            cancel.set()
    assert session.finish_reason == "cancelled" and session.position > len(prompt) + 3
    continued(engine, session, prompt)
    session = engine.session()
    session.prefill(prompt)
    reply = session.generate(GREEDY, 30, ignore_eos=True)
    for _ in range(5):
        next(reply)
    reply.close()  # type: ignore[attr-defined]
    continued(engine, session, prompt)


def test_measuring_leaves_the_state(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = words(40, 3)
    monkeypatch.setattr(instruments, "_HINT_ROUNDS", instruments._HINT_ROUNDS._replace(least=1, most=2))

    def run(measure: bool) -> Logits:
        session = engine.session()
        session.prefill(prompt)
        list(session.generate(GREEDY, 6, ignore_eos=True))
        if measure:
            for position in (session.position, 3):  # as measure_bubbles does it, but briefly
                engine._runtime.bubbles_range(position, engine._settings()._replace(barriers=BARRIERS[position % 3]))
            engine.measure_submit_hint(3)
            engine.warm_up()
            engine._runtime.instruments.choose_passes(FUSION_PASSES[:1], engine._runtime._slot)
        logits = session.prefill([*session.ids, 7])
        assert session.prefill_stats.tokens == 1
        return logits

    engine.mode, engine.barriers = "reuse", "needed"
    np.testing.assert_array_equal(run(True), run(False))


def test_without_memory_for_snapshots_all_is_fed_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(slot: int, marked: bool) -> None:
        raise EngineError("out of device memory")

    monkeypatch.setattr(engine._runtime.snapshots, "save", full)
    chat = Chat(engine)
    for seed in range(3):
        chat.ask(words(10, seed))
    chat.turns.pop()
    assert chat.feed() == len(chat.prompt())
    chat.check()
