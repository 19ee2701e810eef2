"""A model with broken text still takes ids, and says what is broken to who needs text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.text.model_text import ModelText, open_text
from engine.text.stream import TextStream
from tests.engine.text.conftest import tiny_metadata
from tests.engine.text.tokenizer_files import added_token, byte_level_json, write_folder
from tests.engine.tiny_model import CHATML

FILE = Path("model.gguf")
NO_TEMPLATE = {name: value for name, value in tiny_metadata().items() if name != "tokenizer.chat_template"}


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


@pytest.mark.parametrize("is_folder", [False, True])
def test_ids_of_padding_stand_for_no_text(tmp_path: Path, is_folder: bool) -> None:
    """Embeddings are often made larger than the vocabulary, and any of their rows may be sampled."""
    metadata = {} if is_folder else tiny_metadata()
    path = write_folder(tmp_path, byte_level_json()) if is_folder else FILE
    tokenizer = open_text(path, metadata, 384).tokenizer
    assert tokenizer is not None and tokenizer.vocab_size == 384
    ids = tokenizer.encode("the cat")
    assert max(ids) < 320
    assert tokenizer.decode([383, *ids[:2], 320, *ids[2:]]) == "the cat"
    assert "".join(map(TextStream(tokenizer).push, [383, *ids, 320])) == "the cat"
    with pytest.raises(EngineError, match="token id 384 is outside the vocabulary of 384"):
        tokenizer.decode([384])


def test_control_tokens_beyond_the_embedding_are_left_out(tmp_path: Path) -> None:
    """Gemma 3's text-only models have no row for the token of images that their tokenizer has."""
    document, token = byte_level_json(), "<image_soft_token>"
    document["added_tokens"].append(added_token(320, token))
    text = open_text(write_folder(tmp_path, document, {"chat_template": CHATML, "bos_token": token}), {}, 320)
    assert text.problem is None and text.tokenizer is not None and text.template is not None
    assert text.tokenizer.vocab_size == 320 and text.tokenizer.control_id(token) is None
    assert text.tokenizer.bos_id is None and not text.tokenizer.add_bos
    messages = [{"role": "user", "content": f"a{token}b"}]
    assert max(text.template.render_ids(messages)) < 320
    assert text.tokenizer.decode(text.tokenizer.encode(token, special=True)) == token


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


@pytest.mark.parametrize(
    ("metadata", "takes", "line"),
    [
        ({}, "text", "model.gguf has no tokenizer"),
        ({}, "messages", "model.gguf has no tokenizer"),
        (tiny_metadata(pre="unheard-of"), "text", "unheard-of"),
        (NO_TEMPLATE, "messages", "model.gguf has no chat template"),
        (tiny_metadata(), "pictures", "unknown kind of prompt 'pictures'; there is ids, text, messages"),
    ],
)
def test_a_kind_of_prompt_that_cannot_be_made(metadata: dict[str, Any], takes: str, line: str) -> None:
    with pytest.raises(EngineError, match=line):
        open_text(FILE, metadata, 320).check(takes, FILE.name)


def test_the_kinds_of_prompt_that_can() -> None:
    open_text(FILE, {}, 320).check("ids", FILE.name)
    open_text(FILE, NO_TEMPLATE, 320).check("text", FILE.name)
    open_text(FILE, tiny_metadata(), 320).check("messages", FILE.name)
