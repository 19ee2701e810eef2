"""What ``run`` and ``trace`` answer: from the prompt, ``--system``, ``--messages`` and ``--raw``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from engine import Engine

ROLES = ("system", "user", "assistant")
THOUGHTS = "reasoning_content"


def read_prompt(prompt: str) -> str:
    """The prompt's text; "-" reads stdin. Raises click.BadParameter for bytes that are not text."""
    if prompt != "-":
        return _text(prompt, "PROMPT")
    try:
        return _text(sys.stdin.read(), "stdin")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"the text on it is not {error.encoding}", param_hint="stdin") from error


def _text(text: str, where: str) -> str:
    """``text`` as Unicode; lone surrogates stand for bytes that the locale cannot read, but that may be UTF-8."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        pass
    try:
        return os.fsencode(text).decode()
    except UnicodeError as error:
        raise click.BadParameter("the text is not valid UTF-8", param_hint=where) from error


def read_messages(file: Path) -> list[dict[str, str]]:
    """The messages of a JSON file: a list of objects with a ``role`` and a ``content``, both text.

    An assistant's may have ``reasoning_content`` too, what it thought before.

    Raises click.BadParameter with the place of the first thing wrong.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _bad(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _bad(f"{file} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise _bad(f"{file} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise _bad(f"{file} is nested too deeply") from error
    if not isinstance(document, list) or not document:
        raise _bad(f"{file} must hold a JSON list with at least one message")
    return [_checked(item, f"{file}: message {number}") for number, item in enumerate(document, start=1)]


def _checked(item: Any, where: str) -> dict[str, str]:
    if not isinstance(item, dict):
        raise _bad(f'{where} must be an object like {{"role": "user", "content": "..."}}')
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise _bad(f"{where} has the role {role!r}; it must be one of {', '.join(ROLES)}")
    if not isinstance(content, str):
        raise _bad(f"{where} needs a text in 'content'")
    message = {"role": role, "content": _text(content, where)}
    thoughts = item.get(THOUGHTS)
    if thoughts is not None:
        if not isinstance(thoughts, str):
            raise _bad(f"{where} has a '{THOUGHTS}' that is no text")
        message[THOUGHTS] = _text(thoughts, where)
    return message


def conversation(prompt: str | None, messages: Path | None, system: str | None) -> list[dict[str, str]]:
    """The messages to render: ``--system`` first, then ``--messages``, then the prompt as the user's turn.

    Raises click.UsageError where there is nothing to answer or two system prompts.
    """
    turns = read_messages(messages) if messages is not None else []
    if system is not None:
        if any(turn["role"] == "system" for turn in turns):
            raise click.UsageError("--system is given and --messages holds a system message; leave one out")
        turns.insert(0, {"role": "system", "content": _text(system, "--system")})
    if prompt is not None:
        turns.append({"role": "user", "content": read_prompt(prompt)})
    if not turns or turns[-1]["role"] != "user":
        raise click.UsageError("nothing to answer: give a PROMPT, or --messages that end with a user's")
    return turns


def read_input(values: dict[str, Any]) -> tuple[str | None, list[dict[str, str]]]:
    """The raw text or, without --raw, the turns; read before a model is loaded."""
    if not values["raw"]:
        return None, conversation(values["prompt"], values["messages"], values["system"])
    if values["messages"] is not None or values["system"] is not None:
        raise click.UsageError("--raw takes a PROMPT only, without --messages and --system")
    if values["think"] is not None:
        raise click.UsageError("--think and --no-think are for the chat template, which --raw leaves out")
    if values["prompt"] is None:
        raise click.UsageError("--raw needs a PROMPT")
    return read_prompt(values["prompt"]), []


def kind_of(given: tuple[str | None, list[dict[str, str]]]) -> str:
    """What ``read_input``'s prompt is made of, as ``Engine.open`` calls it in ``takes``."""
    return "messages" if given[0] is None else "text"


def prompt_ids(
    engine: Engine, given: tuple[str | None, list[dict[str, str]]], thinking: bool | None = None
) -> list[int]:
    """The ids of ``read_input``'s text or turns, which ``thinking`` switches on or off where it is not None.

    Raises click.UsageError where there are none.
    """
    text, turns = given
    ids = engine.encode(text) if text is not None else engine.render(turns, thinking=thinking)
    if not ids:
        raise click.UsageError("the prompt is empty; the model needs at least one token")
    return ids


def _bad(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--messages")
