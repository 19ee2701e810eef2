"""Turns, and what of them is sent."""

from __future__ import annotations

import pytest

from zincchat.chat.conversation import Conversation
from zincchat.chat.fit import PromptTooLongError, fit


def words(messages: list[dict[str, str]]) -> list[int]:
    """One token a word and one a message."""
    return [0] * sum(1 + len(message["content"].split()) for message in messages)


def talk(turns: int, words_a_message: int, system: str = "") -> Conversation:
    conversation = Conversation(system)
    for number in range(turns):
        conversation.ask(f"q{number} " * words_a_message)
        if number + 1 < turns:
            conversation.answer(f"a{number} " * words_a_message)
    return conversation


def test_everything_is_sent_while_there_is_room() -> None:
    fitted = fit(talk(5, 10).prompt(), words, 200)
    assert fitted.dropped_turns == 0
    assert len(fitted.ids) == 9 * 11


def test_oldest_turns_go_first_and_a_quarter_becomes_free() -> None:
    conversation = talk(5, 10, system="be kind")
    fitted = fit(conversation.prompt(), words, 104)
    assert fitted.dropped_turns == 2
    assert len(fitted.ids) == 3 + 5 * 11 <= 104 * 3 / 4
    conversation.drop_oldest(fitted.dropped_turns)
    messages = conversation.prompt().messages()
    assert messages[0] == {"role": "system", "content": "be kind"}
    assert messages[1]["content"].startswith("q2")


def test_the_newest_message_may_use_what_is_left() -> None:
    conversation = talk(3, 60)
    assert fit(conversation.prompt(), words, 64).dropped_turns == 2
    with pytest.raises(PromptTooLongError) as caught:
        fit(conversation.prompt(), words, 61)
    assert (caught.value.prompt_tokens, caught.value.context_tokens) == (61, 61)


def test_a_reply_can_be_asked_for_again() -> None:
    conversation = talk(2, 1)
    conversation.answer("first try")
    assert conversation.reopen()
    assert conversation.prompt().messages()[-1]["role"] == "user"
    assert not Conversation().reopen()


def test_a_reply_stopped_before_its_first_token_keeps_the_roles_alternating() -> None:
    conversation = talk(1, 1)
    conversation.answer("")
    conversation.ask("next")
    assert [message["role"] for message in conversation.prompt().messages()] == ["user", "assistant", "user"]


def test_taking_back_the_newest_question_leaves_the_rest() -> None:
    conversation = talk(2, 1)
    assert conversation.take_back().startswith("q1")
    assert conversation.last_reply == "a0 "
