"""What ``bench --fusion`` takes: on, off, or names of passes."""

from __future__ import annotations

import importlib
from typing import Any

import click

from zincchat.bench.setting import Fusion


class FusionSettings(click.ParamType[Any]):
    """Settings with commas between; passes that run together have plus signs between."""

    name = "fusion"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The choices, for ``--help``."""
        return "on,off,PASS+PASS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Fusion, ...]:
        """The settings in the order given, without repeats, or a usage error that lists the passes."""
        if isinstance(value, bool):
            return (value,)  # ``zincchat --no-fusion bench``
        if isinstance(value, tuple):
            return value
        known: tuple[str, ...] = importlib.import_module("engine").FUSION_PASSES
        settings: list[Fusion] = []
        for part in str(value).split(","):
            words = [word.strip() for word in part.split("+")]
            if words in (["on"], ["off"]):
                settings.append(words == ["on"])
                continue
            for word in words:
                if word not in known:
                    self.fail(f"unknown fusion {word!r}; choose from on, off, {', '.join(known)}", param, ctx)
            settings.append(tuple(name for name in known if name in words))
        return tuple(dict.fromkeys(settings))
