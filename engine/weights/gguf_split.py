"""Models split over several GGUF files: which files belong together, and whether they do.

Names and metadata are those of llama.cpp's llama-gguf-split: ``NAME-00001-of-00003.gguf``, ``split.no`` (from 0),
``split.count`` and ``split.tensors.count`` (of all parts). The first part has the model's metadata, every part the
entries of its own tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.weights.gguf_header import TensorInfo

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE)
_MOST_PARTS = 99_999  # what a name has digits for
_MOST_NAMED = 3

Header = tuple[dict[str, Any], dict[str, TensorInfo]]


def part_paths(path: Path, metadata: Mapping[str, Any]) -> list[Path]:
    """Every part of the model that ``path`` (any part of it) belongs to, in order; just ``path`` where it is whole.

    Raise EngineError where its header or name is no part's, or a part is not beside it.
    """
    count = metadata.get("split.count", 0)
    if not isinstance(count, int) or not 0 <= count <= _MOST_PARTS:
        raise EngineError(f"{path.name}: split.count is {count!r}; a number up to {_MOST_PARTS:,} is expected")
    if count < 2:
        return [path]
    number = _number(path, metadata, count)
    match = _NAME.fullmatch(path.name)
    ending = f"-{number + 1:05d}-of-{count:05d}.gguf"
    if match is None or (int(match["number"]), int(match["count"])) != (number + 1, count):
        raise EngineError(
            f"{path.name}: this is part {number + 1} of {count} of a split model, whose name must end in {ending} "
            "for the other parts to be found: give it back its name"
        )
    paths = [
        path.with_name(f"{match['stem']}-{part:05d}-of-{match['count']}{match['suffix']}")
        for part in range(1, count + 1)
    ]
    missing = [part.name for part in paths if not part.exists()]
    if missing:
        listed = ", ".join(missing[:_MOST_NAMED]) + (" and more" if len(missing) > _MOST_NAMED else "")
        raise EngineError(
            f"{path.name}: {len(missing)} of the model's {count} parts {'is' if len(missing) == 1 else 'are'} missing "
            f"beside it: {listed}; download the rest into the same folder"
        )
    return paths


def whole_name(path: Path) -> str:
    """The file's name without its ending, nor a part's number."""
    match = _NAME.fullmatch(path.name)
    return path.stem if match is None else match["stem"]


def require_one_model(paths: Sequence[Path], headers: Sequence[Header]) -> None:
    """Raise EngineError, naming the part at fault, unless the parts' headers make up one model."""
    metadata, count = headers[0][0], len(paths)
    owner: dict[str, str] = {}
    for place, (path, (own, tensors)) in enumerate(zip(paths, headers, strict=True)):
        found = own.get("split.count"), own.get("split.no")
        if found != (count, place):
            raise EngineError(
                f"{path.name}: its header says that it is {_described(*found)}, not part {place + 1} of {count}: "
                "it is of another model or conversion; download the parts again"
            )
        for key in ("general.architecture", "split.tensors.count"):
            if key in own and own[key] != metadata.get(key, own[key]):
                raise EngineError(
                    f"{path.name}: {key} is {own[key]!r} here and {metadata[key]!r} in {paths[0].name}: "
                    "they are of different models; download the parts again"
                )
        for name in tensors:
            if name in owner:
                raise EngineError(
                    f"{path.name}: tensor {name!r} is in {owner[name]} too; a part is of another conversion: "
                    "download the parts again"
                )
            owner[name] = path.name
    stated = metadata.get("split.tensors.count", len(owner))
    if stated != len(owner):
        raise EngineError(
            f"{paths[0].name}: the header speaks of {stated} tensors and the {count} parts have {len(owner)}: "
            "a part is of another conversion; download the parts again"
        )


def _number(path: Path, metadata: Mapping[str, Any], count: int) -> int:
    number = metadata.get("split.no")
    if not isinstance(number, int) or not 0 <= number < count:
        raise EngineError(f"{path.name}: split.no is {number!r}; 0 to {count - 1} is expected; download it again")
    return number


def _described(count: object, number: object) -> str:
    if isinstance(count, int) and isinstance(number, int) and count > 1:
        return f"part {number + 1} of {count}"
    return "a whole model or one without a part's number"
