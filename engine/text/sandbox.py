"""A Jinja2 environment for chat templates, which come with a model file and so cannot be trusted.

Jinja2's own sandbox keeps a template away from Python; this one also bounds its time and memory: a check in every
loop and macro, a size limit on every value made, and a look ahead (``engine.text.growth``) before what can grow one.
"""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import jinja2.ext
from jinja2 import Environment, nodes
from jinja2.exceptions import SecurityError
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from engine.text.growth import (
    MAX_VALUE_SIZE,
    TemplateLimitError,
    check_filter,
    check_method,
    check_operator,
    check_size,
)

MAX_TOTAL_SIZE = 1 << 29  # of all values made in one run
# Text methods and filters that can grow a text in ways not worth foretelling; no chat template needs them.
_NO_METHODS = frozenset({"expandtabs", "translate", "maketrans"})
_NO_FILTERS = ("pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's text for training; for a prompt it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  (the type Jinja2 declares)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Checks(NodeTransformer):
    """Puts a call of ``environment.tick`` into every loop and macro, and makes ``~`` and literals checked calls."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._with_tick(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._with_tick(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._with_tick(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("join_operands", node.nodes, node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._checked(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._checked(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        if node.ctx == "load" and not any(isinstance(item, nodes.Slice) for item in node.items):
            return self._checked(node)
        self.generic_visit(node)
        return node

    def _checked(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        return _call("made", [node], node.lineno)

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
        self._deadline = float("inf")
        self._size_left = MAX_TOTAL_SIZE
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.LoopControlExtension, _Generation],
            finalize=_printable,
        )
        for name in _NO_FILTERS:
            del self.filters[name]
        self.filters["tojson"] = _to_json
        self.filters = {name: self._guarded(name, filter_) for name, filter_ in self.filters.items()}
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def start(self, seconds: float) -> None:
        """Give the template until ``seconds`` from now."""
        self._deadline = time.monotonic() + seconds
        self._size_left = MAX_TOTAL_SIZE

    def tick(self) -> None:
        """Raise TemplateLimitError if the time is over."""
        if time.monotonic() > self._deadline:
            raise TemplateLimitError("it takes too long")

    def made(self, value: Any) -> Any:
        """``value``, which the template has just made, if it and all values before it are not too large."""
        self._size_left -= check_size(value)
        if self._size_left < 0:
            raise TemplateLimitError("it builds too many large values")
        return value

    def concat(self, parts: Iterable[str]) -> str:
        """Jinja2 joins a macro's or a block's output with this."""
        pieces, size = [], 0
        for part in parts:
            pieces.append(part)
            size += len(part)
            if size > MAX_VALUE_SIZE:
                raise TemplateLimitError
        return str(self.made("".join(pieces)))

    def join_operands(self, *values: Any) -> str:
        """The ``~`` operator."""
        return self.concat(str(_printable(value)) for value in values)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The intercepted operators."""
        check_operator(operator, left, right)
        return self.made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Any call that a template makes."""
        __self.tick()
        for value in (*args, *kwargs.values()):
            check_size(value)
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            check_method(owner, method.__name__, args, kwargs)
        return __self.made(super().call(__context, __obj, *args, **kwargs))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Also without the methods that can grow a text beyond measure."""
        if isinstance(obj, str) and attr in _NO_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def _guarded(self, name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(filter_)  # also copies the marks by which Jinja2 passes its context
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            given = [value for value in args if not isinstance(value, Context | EvalContext | Environment)]
            passed = args[: len(args) - len(given)]
            if given and isinstance(given[0], Iterator):
                given[0] = list(itertools.islice(given[0], MAX_VALUE_SIZE))
            for value in (*given, *kwargs.values()):
                check_size(value)
            check_filter(name, tuple(given), kwargs)
            return self.made(filter_(*passed, *given, **kwargs))

        return guarded

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Checks().visit(tree)
        return tree


def _printable(value: Any) -> Any:
    check_size(value)
    return value


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
