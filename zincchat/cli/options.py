"""The options that several commands share, and how they become engine settings."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zincchat.cli.errors import Invocation

if TYPE_CHECKING:
    from engine import Sampling

Command = TypeVar("Command", bound=Callable[..., Any])

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")


class EngineName(click.ParamType[Any]):
    """A name out of a tuple that ``engine`` exports, looked up only when one is given: importing it is slow."""

    def __init__(self, noun: str, exported_as: str) -> None:
        """``noun`` is what a message calls it, ``exported_as`` the tuple's name in ``engine``."""
        self.name = noun
        self._exported_as = exported_as

    def known(self) -> tuple[str, ...]:
        """The names that exist."""
        names: tuple[str, ...] = getattr(importlib.import_module("engine"), self._exported_as)
        return names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The choices, for ``--help``."""
        return "|".join(self.known())

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name itself, or a usage error that lists the known ones."""
        if value not in self.known():
            self.fail(f"unknown {self.name} {value!r}; choose from {', '.join(self.known())}", param, ctx)
        return value


class EngineNames(EngineName):
    """Several such names with commas between them, as a tuple without repeats."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The choices, for ``--help``."""
        return ",".join(self.known())

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The names in the order given, or a usage error."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        return tuple(dict.fromkeys(super(EngineNames, self).convert(part, param, ctx) for part in parts))


MODE = EngineName("mode", "MODES")
BARRIERS = EngineName("barrier policy", "BARRIERS")
QUANTISATION = EngineName("quantisation", "QUANTISATIONS")


def _note_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).debug = True


def compose(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator that applies all, the first outermost: --help lists them in this order."""

    def apply(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


debug_option = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_note_debug,
    help="Show the raw cause of an error.",
)

model_options = compose(
    click.option(
        "--model",
        metavar="NAME|PATH",
        help="A catalogue name, a GGUF file, a Hugging Face folder, or ORG/REPO[:FILE] as pulled.",
    ),
    click.option(
        "--quantize",
        type=QUANTISATION,
        help="What a folder's matrices become as they are read [as stored]; without -all, 4 and 5 bits keep q8_0 for "
        "embedding and output.",
    ),
    click.option("--device", metavar="INDEX|NAME", help="A device's index or part of its name."),
    click.option(
        "--tuning/--no-tuning",
        default=None,
        help="Divide matrices as a measurement on this device finds best, or as usual [measured on GPUs].",
    ),
    debug_option,
)

context_option = click.option(
    "--context", type=click.IntRange(min=1), metavar="N", help="Size of the KV cache in tokens [2048]."
)

fusion_option = click.option(
    "--fusion/--no-fusion", default=None, help="Fuse kernels where the bits stay the same [on]."
)

mode_options = compose(
    click.option("--mode", type=MODE, help="Decode mode [reuse]."),
    click.option(
        "--barriers",
        type=BARRIERS,
        help="After every kernel, where needed, or waits in memory (flags) [flags on GPUs, else needed].",
    ),
    fusion_option,
    context_option,
)

sampling_options = compose(
    click.option("--temperature", type=float, metavar="T", help="0 is greedy [the model's own, else 0.7]."),
    click.option("--top-k", type=int, metavar="K", help="Keep the K likeliest ids; 0 is off."),
    click.option("--top-p", type=float, metavar="P", help="Keep the likeliest ids up to this mass; 1 is off."),
    click.option("--min-p", type=float, metavar="P", help="Drop ids below P times the likeliest; 0 is off."),
    click.option("--repeat-penalty", type=float, metavar="R", help="Penalty over the last 64 ids; 1 is off."),
    click.option("--seed", type=int, metavar="N", help="The same seed gives the same ids [0]."),
)

prompt_options = compose(
    click.argument("prompt", required=False),
    click.option(
        "--messages", type=click.Path(path_type=Path), metavar="FILE", help="A JSON list of role and content."
    ),
    click.option("--system", metavar="TEXT", help="The system prompt."),
    click.option("--raw", is_flag=True, help="Give PROMPT to the model as it is, without the chat template."),
)


think_option = click.option(
    "--think/--no-think", default=None, help="Switch a thinking model's thoughts on or off [the model's own]."
)


def given(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Those of ``names`` that the user set, with their values."""
    return {name: values[name] for name in names if values.get(name) is not None}


def engine_settings(values: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of ``Engine.open`` that the user set; the engine's defaults stand for the rest."""
    return given(values, "device", "quantize", "tuning", "context", "mode", "barriers", "fusion")


def sampling_overrides(values: dict[str, Any]) -> dict[str, Any]:
    """The sampling options that the user set, checked before a model is loaded.

    Raises click.UsageError, naming the option that is out of range.
    """
    from engine import EngineError, Sampling

    overrides = given(values, *SAMPLING_OPTIONS)
    try:
        Sampling(**overrides)
    except EngineError as error:
        raise click.UsageError(str(error)) from error
    return overrides


def with_overrides(sampling: Sampling, overrides: dict[str, Any]) -> Sampling:
    """``sampling`` with the user's own values in place of the model's."""
    import dataclasses

    return dataclasses.replace(sampling, **overrides)
