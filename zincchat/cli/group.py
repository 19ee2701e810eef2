"""The ``zincchat`` command: the chat by itself, or one of the subcommands."""

from __future__ import annotations

import shlex
from typing import Any

import click

from zincchat.cli import options
from zincchat.cli.bench import bench
from zincchat.cli.chat import open_chat
from zincchat.cli.devices import devices
from zincchat.cli.models import models
from zincchat.cli.run import run
from zincchat.cli.trace import trace
from zincchat.provenance import package_version


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"zincchat {package_version()}")
        ctx.exit()


class _Group(click.Group):
    """Says what was probably meant where the first argument is no command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; raises click.UsageError with a hint for ``chat``, a model file, or a bare prompt."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            word, said = args[0], error.format_message()
            if "Did you mean" in said:
                raise
            if word == "chat":
                hint = "the chat is 'zincchat' alone"
            elif word.endswith(".gguf"):
                hint = f"a model goes behind --model: zincchat --model {word}"
            else:
                hint = f"to have it answered: zincchat run {shlex.quote(' '.join(args))}"
            raise click.UsageError(f"{said.rstrip('.')}; {hint}", ctx) from error


@click.group(cls=_Group, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@options.model_options
@options.mode_options
@click.option("--system", metavar="TEXT", help="The system prompt.")
@options.sampling_options
@options.think_option
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
@click.pass_context
def zincchat(ctx: click.Context, /, **values: Any) -> None:
    """Chat with a model on your GPU and see where each token's time goes.

    Without a command it opens the chat; the options below are the chat's.
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(open_chat(values))
    hand_down(ctx, values)


def hand_down(ctx: click.Context, values: dict[str, Any]) -> None:
    """Let options written before the subcommand's name count as its defaults.

    Raises click.UsageError for an option that the subcommand does not have.
    """
    name = ctx.invoked_subcommand
    assert isinstance(ctx.command, click.Group) and name is not None
    command = ctx.command.commands.get(name)
    if command is None:
        return  # click reports the unknown command
    own = {param.name for param in command.params}
    set_here = {key: value for key, value in values.items() if value is not None}
    for key in set_here:
        if key not in own:
            raise click.UsageError(f"--{key.replace('_', '-')} means nothing to '{name}'", ctx)
    ctx.default_map = {name: set_here}


for _command in (run, bench, trace, models, devices):
    zincchat.add_command(_command)
