"""Chat templates: a conversation to the prompt that the model was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2

from engine.errors import EngineError
from engine.text.sandbox import ChatSandbox
from engine.text.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")
TIME_LIMIT_S = 3.0
MAX_OUTPUT_CHARS = 1 << 23

# Characters that mark a control token's look-alike inside a message. Unicode's noncharacters are never text;
# private-use ones stand in should a message hold them all.
_MARKS = (*range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF, *range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE))


class ChatTemplate:
    """A model's own chat template, rendered with the generation prompt.

    A message cannot forge a turn: text that spells a control token is encoded as text, and only what the
    template itself writes becomes control tokens. For that, look-alikes are broken by a mark before the
    template runs, and the marks are taken out after the rendered text was split at the control tokens.
    """

    def __init__(self, source: str, tokenizer: Tokenizer, time_limit_s: float = TIME_LIMIT_S) -> None:
        """Raise EngineError if the template is not valid Jinja2."""
        self._tokenizer = tokenizer
        self._time_limit_s = time_limit_s
        self._environment = ChatSandbox()
        self._source = source
        try:
            self._template = self._environment.from_string(source)
        except (Exception, RecursionError) as error:
            raise EngineError(f"the model's chat template is broken: {_one_line(error)}") from error

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer | None) -> ChatTemplate | None:
        """The file's template, or None if it has none (a base model) or no tokenizer."""
        source = metadata.get("tokenizer.chat_template")
        if source is None or tokenizer is None:
            return None
        if not isinstance(source, str):
            raise EngineError("the model's tokenizer.chat_template is not text")
        return cls(source, tokenizer)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt's text, ending in the generation prompt.

        ``messages``: {"role": "system" | "user" | "assistant", "content": str} each. Raise EngineError if
        they are not that, or if the template refuses them, fails or takes too long.
        """
        text, mark = self._render_marked(messages)
        return text.replace(mark, "")

    def render_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The prompt's token ids: control tokens where the template wrote them, BOS first if the model wants one."""
        text, mark = self._render_marked(messages)
        ids: list[int] = []
        position = 0
        pattern = self._tokenizer.control_pattern
        for match in pattern.finditer(text) if pattern else ():
            control_id = self._tokenizer.control_id(match.group())
            assert control_id is not None
            ids += self._tokenizer.encode(text[position : match.start()].replace(mark, ""))
            ids.append(control_id)
            position = match.end()
        ids += self._tokenizer.encode(text[position:].replace(mark, ""))
        bos_id = self._tokenizer.bos_id
        if self._tokenizer.add_bos and bos_id is not None and ids[:1] != [bos_id]:
            ids.insert(0, bos_id)
        return ids

    def _render_marked(self, messages: Sequence[Mapping[str, str]]) -> tuple[str, str]:
        """The rendered text with marks in it, and the mark."""
        _check(messages)
        mark = _unused_character([self._source, *(message["content"] for message in messages)])
        marked = [{"role": message["role"], "content": self._mark(message["content"], mark)} for message in messages]
        try:
            text = "".join(self._pieces(marked))
        except Exception as error:
            raise EngineError(f"the model's chat template cannot be used: {_one_line(error)}") from error
        return text, mark

    def _mark(self, content: str, mark: str) -> str:
        pattern = self._tokenizer.control_pattern
        if pattern is None:
            return content
        while pattern.search(content):  # breaking one spelling can leave a shorter one inside it
            content = pattern.sub(lambda match: match.group()[0] + mark + match.group()[1:], content)
        return content

    def _pieces(self, messages: list[dict[str, str]]) -> Iterator[str]:
        tokenizer = self._tokenizer
        self._environment.start(self._time_limit_s)
        length = 0
        for piece in self._template.generate(
            messages=messages,
            add_generation_prompt=True,
            bos_token="" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id),
            eos_token="" if tokenizer.eos_id is None else tokenizer.token_text(tokenizer.eos_id),
        ):
            self._environment.tick()
            length += len(piece)
            if length > MAX_OUTPUT_CHARS:
                raise jinja2.TemplateRuntimeError("its prompt is too long")
            yield piece


def _check(messages: object) -> None:
    """Raise EngineError unless ``messages`` is a conversation."""
    if not isinstance(messages, list | tuple):
        raise EngineError(f"messages must be a list, not {type(messages).__name__}")
    if not messages:
        raise EngineError("there are no messages to render")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise EngineError(f"message {index} must be an object with role and content, not {type(message).__name__}")
        for key in ("role", "content"):
            if key not in message:
                raise EngineError(f"message {index} has no {key}")
            if not isinstance(message[key], str):
                raise EngineError(f"message {index}: {key} must be text, not {type(message[key]).__name__}")
        if message["role"] not in ROLES:
            raise EngineError(f"message {index}: role {message['role']!r} is not one of {', '.join(ROLES)}")


def _unused_character(texts: list[str]) -> str:
    used = set().union(*texts)
    for code in _MARKS:
        if chr(code) not in used:
            return chr(code)
    raise EngineError("the messages hold every private-use character there is; remove some")


def _one_line(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it nests too deep"
    if isinstance(error, MemoryError | OverflowError):
        return "it needs too much memory"
    return " ".join(str(error).split()) or type(error).__name__
