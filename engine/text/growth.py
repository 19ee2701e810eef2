"""How large the values of a chat template are, and how large the result of a call would be, told before it is made.

One call into C cannot be interrupted, so what would fill the memory, or the rest of the day, is refused beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from typing import Any

from jinja2.exceptions import TemplateRuntimeError
from jinja2.utils import Namespace

MAX_VALUE_SIZE = 1 << 22  # of one value; a whole conversation is a tenth of it
ELEMENT_SIZE = 4  # elements take longer to walk through than characters
MAX_WIDTH = 100_000  # given to a string method or filter, and elements to sort
MAX_FACTOR = 64  # of an exponent, a number of digits, a level of indentation
_LARGEST_INT = 1 << 4096
_SIMPLE = frozenset({int, float, bool, type(None)})


class TemplateLimitError(TemplateRuntimeError):
    """The template took too long or grew too large."""

    def __init__(self, message: str = "it builds a value that is too large") -> None:
        """The default says that a value is too large."""
        super().__init__(message)


def size_of(value: Any) -> int:
    """Characters in ``value``, and ELEMENT_SIZE for each element, nested ones too and as often as they occur.

    Counted up to the limit. A list that holds another twice, that one a third twice, and so on, is tiny in memory but
    takes for ever to compare, to hash or to write out.
    """
    if isinstance(value, str):
        return len(value)
    size, rest = 0, [value]
    while rest and size <= MAX_VALUE_SIZE:
        item = rest.pop()
        size += ELEMENT_SIZE
        if type(item) in _SIMPLE:
            continue
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, list | tuple):
            rest += item
        elif isinstance(item, dict):
            rest += item.keys()
            rest += item.values()
        elif isinstance(item, Namespace):
            rest += object.__getattribute__(item, "_Namespace__attrs").values()
        elif isinstance(item, KeysView | ValuesView | ItemsView):
            rest += item
    return size


def check_size(value: Any) -> int:
    """The size of ``value``; TemplateLimitError if it is too large."""
    if isinstance(value, int):
        if abs(value) > _LARGEST_INT:
            raise TemplateLimitError
        return 1
    size = size_of(value)
    if size > MAX_VALUE_SIZE:
        raise TemplateLimitError
    return size


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse an operator whose result would be too large."""
    check_size(left)
    check_size(right)
    if operator == "*":
        counts = [value for value in (left, right) if isinstance(value, int)]
        if len(counts) == 1 and counts[0] * size_of(right if left is counts[0] else left) > MAX_VALUE_SIZE:
            raise TemplateLimitError
    if operator == "**" and (abs(left) > 1 << 64 or abs(right) > MAX_FACTOR):
        raise TemplateLimitError
    if operator == "%" and isinstance(left, str):
        _limit(_formatted(left, "%", right))


def check_method(owner: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call of a text's method whose result would be too large."""
    if any(isinstance(value, int) and value > MAX_WIDTH for value in (*args, *kwargs.values())):
        raise TemplateLimitError
    if name in ("format", "format_map"):
        _limit(_formatted(owner, "{", (*args, *kwargs.values())))
    elif (predict := _METHODS.get(name)) is not None:
        _predicted(predict, owner, args, kwargs)


def check_filter(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a filter whose result would be too large; ``args`` begin with the value that it is applied to."""
    if name == "format":
        _limit(_formatted(str(args[0]), "%", (*args[1:], *kwargs.values())))
    elif (predict := _FILTERS.get(name)) is not None:
        _predicted(predict, args[0], args[1:], kwargs)


def _limit(size: int) -> None:
    if size > MAX_VALUE_SIZE:
        raise TemplateLimitError


def _predicted(predict: Callable[..., int], value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        size = predict(value, *args, **kwargs)
    except (TypeError, AttributeError):  # of the wrong kind: the call itself says so
        return
    _limit(size)


def _formatted(format: str, mark: str, values: Any) -> int:
    """At most every field has every value; a field's width may not come from elsewhere, nor be of many digits."""
    if re.search(r"\d{6}|%[^%a-zA-Z]*\*|\{[^{}]*\{", format):
        raise TemplateLimitError
    widths = sum(map(int, re.findall(r"\d+", format)))
    return len(format) + widths + format.count(mark) * size_of(values)


def _joined(separator: str, items: Any) -> int:
    return size_of(items) + len(separator) * len(items)


def _replaced(text: str, old: str, new: str, count: int | None = -1) -> int:
    return len(text) + str(text).count(str(old)) * len(str(new))


def _indented(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> int:
    return len(text) + (text.count("\n") + 1) * (len(width) if isinstance(width, str) else width)


def _as_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: Iterable[str] | None = None,
    sort_keys: bool = False,
) -> int:
    depth = len(indent) if isinstance(indent, str) else indent or 0
    if depth > MAX_FACTOR:
        raise TemplateLimitError
    return size_of(value) * (1 + depth + sum(map(len, separators or ())))


def _few_digits(value: Any, precision: int = 0, method: str = "common") -> int:
    return 0 if abs(precision) <= MAX_FACTOR else MAX_VALUE_SIZE + 1


def _few_elements(value: Any, *args: Any, **kwargs: Any) -> int:
    """Sorting and grouping go through Python, element by element."""
    return 0 if len(value) <= MAX_WIDTH else MAX_VALUE_SIZE + 1


def _narrow(value: Any, width: int, *args: Any, **kwargs: Any) -> int:
    return 0 if width <= MAX_WIDTH else MAX_VALUE_SIZE + 1


_METHODS: Mapping[str, Callable[..., int]] = {"join": _joined, "replace": _replaced}
_FILTERS: Mapping[str, Callable[..., int]] = {
    "batch": _narrow,
    "center": _narrow,
    "dictsort": _few_elements,
    "groupby": _few_elements,
    "indent": _indented,
    "join": lambda items, d="", attribute=None: _joined(d, items),
    "max": _few_elements,
    "min": _few_elements,
    "replace": _replaced,
    "round": _few_digits,
    "slice": _narrow,
    "sort": _few_elements,
    "sum": lambda items, attribute=None, start=0: 0 if isinstance(start, int | float) else len(items) * size_of(items),
    "tojson": _as_json,
    "truncate": _narrow,
    "unique": _few_elements,
}
