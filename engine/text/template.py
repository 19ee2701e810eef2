"""Chat templates: a conversation to the prompt that the model was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jinja2

from engine.errors import EngineError
from engine.text.sandbox import ChatSandbox
from engine.text.thinking import ThinkTags, split_thoughts
from engine.text.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")
TIME_LIMIT_S = 3.0
MAX_SOURCE_CHARS = 1 << 17  # the longest in use have a fifth of it; compiling more takes seconds
MAX_OUTPUT_CHARS = 1 << 23

# Characters that mark a control token's look-alike inside a message. Unicode's noncharacters are never text;
# private-use ones stand in should a message hold them all.
_MARKS = (*range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF, *range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE))

# The variables by which templates switch thinking (Qwen, SmolLM, GLM; DeepSeek, Granite), and the key under which
# they take a message's thoughts.
_SWITCHES = ("enable_thinking", "thinking")
_THOUGHTS = "reasoning_content"
_PROBE = ({"role": "user", "content": "?"},)


class ChatTemplate:
    """A model's own chat template, rendered with the generation prompt.

    A message cannot forge a turn: text that spells a control token is encoded as text, and only what the
    template itself writes becomes control tokens. For that, look-alikes are broken by a mark before the
    template runs, and the marks are taken out after the rendered text was split at the control tokens.

    ``thinking``: whether the model thinks unless told otherwise; None where the template has no switch for it.
    """

    def __init__(
        self, source: str, tokenizer: Tokenizer, tags: ThinkTags | None = None, time_limit_s: float = TIME_LIMIT_S
    ) -> None:
        """``tags``: the model's think tags. Raise EngineError if the template is not valid Jinja2."""
        if len(source) > MAX_SOURCE_CHARS:
            raise EngineError(
                f"the model's chat template has {len(source):,} characters, which is no template: "
                f"at most {MAX_SOURCE_CHARS:,} are taken"
            )
        self._tokenizer, self._tags = tokenizer, tags
        self._time_limit_s = time_limit_s
        self._environment = ChatSandbox()
        self._source = source
        self._takes_thoughts = _THOUGHTS in source
        try:
            self._template = self._environment.from_string(source)
        except (Exception, RecursionError) as error:
            raise EngineError(f"the model's chat template is broken: {_one_line(error)}") from error
        self.thinking = self._default_thinking()

    def render(self, messages: Sequence[Mapping[str, str]], thinking: bool | None = None) -> str:
        """The prompt's text, ending in the generation prompt.

        ``messages``: {"role": "system" | "user" | "assistant", "content": str} each; an assistant's may have its
        thoughts as "reasoning_content": str, which the template gets under that name or, where it does not know
        it, between think tags before the content. ``thinking`` None leaves the switch alone. Raise EngineError if
        the messages are not that, if there is no switch to set, or if the template refuses, fails or takes too long.
        """
        text, mark = self._render_marked(messages, thinking)
        return text.replace(mark, "")

    def render_ids(self, messages: Sequence[Mapping[str, str]], thinking: bool | None = None) -> list[int]:
        """The prompt's token ids: control tokens where the template wrote them, BOS first if the model wants one."""
        text, mark = self._render_marked(messages, thinking)
        ids: list[int] = []
        position = 0
        pattern = self._tokenizer.control_pattern
        for match in pattern.finditer(text) if pattern else ():
            control_id = self._tokenizer.control_id(match.group())
            assert control_id is not None
            between = text[position : match.start()].replace(mark, "")
            ids += self._tokenizer.encode(between, first=position == 0)
            ids.append(control_id)
            position = match.end()
        ids += self._tokenizer.encode(text[position:].replace(mark, ""), first=position == 0)
        bos_id = self._tokenizer.bos_id
        if self._tokenizer.add_bos and bos_id is not None and ids[:1] != [bos_id]:
            ids.insert(0, bos_id)
        return ids

    def _default_thinking(self) -> bool | None:
        """Found by trying: only a switch that changes a prompt is one."""
        if not any(name in self._source for name in _SWITCHES):
            return None
        try:
            on, off, untouched = ("".join(self._pieces(_PROBE, value)) for value in (True, False, None))
        except Exception:  # it needs more than one question; then there is no telling, and the chat will say why
            return None
        return None if on == off else untouched != off

    def _render_marked(self, messages: Sequence[Mapping[str, str]], thinking: bool | None) -> tuple[str, str]:
        """The rendered text with marks in it, and the mark."""
        _check(messages)
        if thinking is not None and self.thinking is None:
            raise EngineError("the model's chat template has no switch for thinking: leave --think and --no-think out")
        texts = (message.get(key) for message in messages for key in ("content", _THOUGHTS))
        mark = _unused_character([self._source, *(text for text in texts if text)])
        try:
            text = "".join(self._pieces([self._marked(message, mark) for message in messages], thinking))
        except Exception as error:
            raise EngineError(f"the model's chat template cannot be used: {_one_line(error)}") from error
        return text, mark

    def _marked(self, message: Mapping[str, str], mark: str) -> dict[str, str]:
        """What the template gets for ``message``."""
        role, content, thoughts = message["role"], message["content"], message.get(_THOUGHTS)
        tags = self._tags
        if role != "assistant" or tags is None:
            return {"role": role, "content": self._mark(content, mark)}
        if not thoughts and tags.close_id is not None:  # a mark would break the tags, which are the model's own here
            content, thoughts = split_thoughts(content, tags)
        content = self._mark(content, mark)
        if not thoughts:
            return {"role": role, "content": content}
        thoughts = self._mark(thoughts, mark)
        if self._takes_thoughts:
            return {"role": role, "content": content, _THOUGHTS: thoughts}
        return {"role": role, "content": f"{tags.open}{thoughts}{tags.close}{content}"}

    def _mark(self, content: str, mark: str) -> str:
        pattern = self._tokenizer.control_pattern
        if pattern is None:
            return content
        while pattern.search(content):  # breaking one spelling can leave a shorter one inside it
            content = pattern.sub(lambda match: match.group()[0] + mark + match.group()[1:], content)
        return content

    def _pieces(self, messages: Sequence[Mapping[str, str]], thinking: bool | None) -> Iterator[str]:
        tokenizer = self._tokenizer
        switches = {} if thinking is None else dict.fromkeys(_SWITCHES, thinking)
        self._environment.start(self._time_limit_s)
        length = 0
        for piece in self._template.generate(
            messages=messages,
            add_generation_prompt=True,
            bos_token="" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id),
            eos_token="" if tokenizer.eos_id is None else tokenizer.token_text(tokenizer.eos_id),
            tools=None,  # as transformers gives them: some templates ask whether they are none, not whether defined
            documents=None,
            **switches,
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
        if not isinstance(message.get(_THOUGHTS, ""), str):
            raise EngineError(f"message {index}: {_THOUGHTS} must be text, not {type(message[_THOUGHTS]).__name__}")
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
