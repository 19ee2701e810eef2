"""A model with broken text still takes ids, and says what is broken to who needs text."""

from __future__ import annotations

from pathlib import Path

from engine.text.model_text import ModelText, open_text
from tests.engine.text.conftest import tiny_metadata

FILE = Path("model.gguf")


def test_everything_is_there() -> None:
    text = open_text(FILE, tiny_metadata(), 320)
    assert text.tokenizer is not None and text.template is not None
    assert text.stop_ids == {0, 2}
    assert text.problem is None


def test_no_tokenizer_is_no_problem() -> None:
    assert open_text(FILE, {}, 320) == ModelText()


def test_a_broken_tokenizer_is_kept_as_the_problem() -> None:
    text = open_text(FILE, tiny_metadata(pre="unheard-of"), 320)
    assert text.tokenizer is None and "unheard-of" in str(text.problem)


def test_more_tokens_than_the_embedding_has_rows() -> None:
    text = open_text(FILE, tiny_metadata(), 319)
    assert text.tokenizer is None
    assert str(text.problem) == "model.gguf: the tokenizer has 320 tokens, the embedding 319 rows"


def test_with_a_broken_template_replies_to_raw_text_still_end() -> None:
    text = open_text(FILE, tiny_metadata() | {"tokenizer.chat_template": "{% if %}"}, 320)
    assert text.tokenizer is not None and text.template is None
    assert text.stop_ids == {0, 2}
    assert "chat template is broken" in str(text.problem)


def test_broken_stops_leave_the_tokenizer() -> None:
    text = open_text(FILE, tiny_metadata(eot_token_id=999), 320)
    assert text.tokenizer is not None and text.template is None
    assert "eot_token_id is 999" in str(text.problem)
