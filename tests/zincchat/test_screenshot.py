"""The picture is made from a real run of the app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.zincchat.fake_engine import opener
from zincchat.app import ChatApp
from zincchat.screenshot import take


async def test_the_picture_shows_the_chat_and_a_flip(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "picture.svg"
    open_engine: Any = opener(hold=lambda engine, index: index == 60 and engine.mode == "reuse")  # until it is flipped
    await take(lambda: ChatApp(open_engine), path, prompts=["A question?"], tokens_before_flip=30)
    text = path.read_text(encoding="utf-8").replace("&#160;", " ")
    assert "question?" in text
    assert "software device" in text
    assert "reuse → rerecord" in text
    assert "@font-face" not in text and "url(http" not in text.replace(chr(34), "")


async def test_a_model_that_cannot_be_loaded_makes_no_picture(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cut off"):
        await take(lambda: ChatApp(opener(fail="the file is cut off")), tmp_path / "picture.svg")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
