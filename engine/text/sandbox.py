"""A Jinja2 environment for chat templates, which come with a model file and so cannot be trusted.

Jinja2's own sandbox keeps a template away from Python; this one also bounds its time and memory, by
putting a check into every loop and macro and a size limit on operators that can grow a value.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_VALUE_LENGTH = 1 << 22  # characters and elements of one value; a whole conversation is a tenth of it
MAX_WIDTH = 100_000  # given to a string method or filter
MAX_BASE, MAX_EXPONENT = 1 << 64, 64
TOO_LARGE = "it builds a value that is too large"


class TemplateLimitError(TemplateRuntimeError):
    """The template took too long or grew too large."""


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's text for training; for a prompt it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  (the type Jinja2 declares)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Checks(NodeTransformer):
    """Puts a call of ``environment.tick`` into every loop and macro, and makes ``~`` a checked call."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._with_tick(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._with_tick(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._with_tick(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("join_operands", node.nodes, node.lineno)

    def _with_tick(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        tick = nodes.ExprStmt(_call("tick", [], node.lineno), lineno=node.lineno)
        node.body.insert(0, tick)
        return node  # type: ignore[no-any-return]


def _call(method: str, arguments: list[nodes.Expr], lineno: int) -> nodes.Call:
    target = nodes.EnvironmentAttribute(method, lineno=lineno)
    return nodes.Call(target, arguments, [], None, None, lineno=lineno)


class ChatSandbox(ImmutableSandboxedEnvironment):
    """The environment chat templates are written for: that of transformers' ``apply_chat_template``."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.LoopControlExtension, _Generation],
            finalize=_sized,
        )
        self._deadline = float("inf")
        self.filters["tojson"] = _to_json
        self.filters = {name: self._guarded(name, filter_) for name, filter_ in self.filters.items()}
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def start(self, seconds: float) -> None:
        """Give the template until ``seconds`` from now."""
        self._deadline = time.monotonic() + seconds

    def tick(self) -> None:
        """Raise TemplateLimitError if the time is over."""
        if time.monotonic() > self._deadline:
            raise TemplateLimitError("it takes too long")

    def concat(self, parts: Iterable[str]) -> str:
        """Jinja2 joins a macro's or a block's output with this."""
        return str(_sized("".join(parts)))

    def join_operands(self, *values: Any) -> str:
        """The ``~`` operator."""
        return self.concat(str(_sized(value)) for value in values)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The intercepted operators; where the result can be far larger than the operands, it is foreseen."""
        if operator == "*":
            counts = [value for value in (left, right) if isinstance(value, int)]
            if len(counts) == 1 and counts[0] * _size(right if left is counts[0] else left) > MAX_VALUE_LENGTH:
                raise TemplateLimitError(TOO_LARGE)
        if operator == "**" and (abs(left) > MAX_BASE or abs(right) > MAX_EXPONENT):
            raise TemplateLimitError(TOO_LARGE)
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        return _sized(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Any call that a template makes."""
        __self.tick()
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_widths((*args, *kwargs.values()))
            if method.__name__ in ("format", "format_map"):
                _check_format(owner)
        return _sized(super().call(__context, __obj, *args, **kwargs))

    def _guarded(self, name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(filter_)  # also copies the marks by which Jinja2 passes its context
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            for value in args:
                _sized(value)
            if name in ("center", "indent", "batch", "slice"):
                _check_widths((*args[1:], *kwargs.values()))
            if name == "format":
                _check_format(str(args[0]))
            return _sized(filter_(*args, **kwargs))

        return guarded

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Checks().visit(tree)
        return tree


def _size(value: Any) -> int:
    """Characters and elements in ``value``, nested ones too; counted no further than the limit."""
    if isinstance(value, str):
        return len(value)
    size, rest = 0, [value]
    while rest and size <= MAX_VALUE_LENGTH:
        item = rest.pop()
        size += 1
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            rest += item.values()
        elif isinstance(item, list | tuple):
            rest += item
    return size


def _sized(value: Any) -> Any:
    """``value``, if it is not too large."""
    if isinstance(value, int):
        if abs(value) > 1 << 4096:
            raise TemplateLimitError(TOO_LARGE)
    elif _size(value) > MAX_VALUE_LENGTH:
        raise TemplateLimitError(TOO_LARGE)
    return value


def _check_widths(values: Iterable[Any]) -> None:
    if any(isinstance(value, int) and value > MAX_WIDTH for value in values):
        raise TemplateLimitError(TOO_LARGE)


def _check_format(format: str) -> None:
    """A width in a format string is as good as a repetition."""
    if re.search(r"\d{6}", format):
        raise TemplateLimitError(TOO_LARGE)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja2's own filter escapes for HTML, which is not what a model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise SecurityError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
