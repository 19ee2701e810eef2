"""``zincchat trace``: one reply as a timeline that Perfetto opens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from zincchat.cli import options, output
from zincchat.cli.errors import Invocation
from zincchat.cli.loading import interruptible, open_engine
from zincchat.cli.messages import kind_of, prompt_ids, read_input
from zincchat.cli.reply import Reply, generate_reply, reply_options
from zincchat.cli.resolve import resolve_model
from zincchat.provenance import provenance

if TYPE_CHECKING:
    from engine import Engine


@click.command(short_help="Answer PROMPT and write the timeline for Perfetto.")
@click.argument("out", metavar="OUT.json")
@options.prompt_options
@options.model_options
@options.mode_options
@options.sampling_options
@options.think_option
@reply_options(max_tokens=64)
@click.option(
    "--stamp-every",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    metavar="N",
    help="Show the kernels of every Nth token, which runs their stamped twins; 0: of none.",
)
@click.pass_obj
def trace(invocation: Invocation, /, **values: Any) -> None:
    """Answer PROMPT and write the CPU's and the GPU's timeline to OUT.json, for ui.perfetto.dev.

    The reply goes to stdout. Tokens without stamps show the GPU's time as a whole.
    """
    from engine import AtomicFile, chrome_trace

    if values["out"] == "-":
        raise click.UsageError("OUT.json is a file: the reply itself goes to stdout")
    overrides = options.sampling_overrides(values)
    given = read_input(values)
    path = resolve_model(values["model"])
    settings = options.engine_settings(values)
    with AtomicFile(values["out"]) as file, open_engine(path, settings, kind_of(given)) as engine:
        sampling = options.with_overrides(engine.sampling, overrides)
        ids = prompt_ids(engine, given, values["think"])
        engine.warm_up()  # a driver that compiles a kernel when it first runs would do so in the timeline
        engine.stamp_every = values["stamp_every"]
        if engine.stamp_every:
            engine.request_stamps()  # waits until the stamped kernels are built
        with interruptible() as cancel:
            reply = generate_reply(engine.session(), ids, sampling, values, cancel)
            if reply.tokens:  # of an interrupted reply too
                metadata = {**provenance(engine, invocation.command), "text": reply.text, "thoughts": reply.thoughts}
                file.write(json.dumps(chrome_trace(reply.tokens, metadata), allow_nan=False))
                file.commit()
        click.echo(_summary(engine, reply, values["out"]), err=True)


def _summary(engine: Engine, reply: Reply, out: str) -> str:
    """One line for stderr."""
    tokens = reply.tokens
    if not tokens:
        return "the model ended its reply at once: nothing to trace"
    stamped = sum(token.timing.kernels_us is not None for token in tokens)
    deviations = [token.trace.deviation_ns for token in tokens]
    known = [deviation for deviation in deviations if deviation is not None]
    parts = [
        f"{out}: {len(tokens)} tokens, {stamped} of them with their kernels",
        f"{output.rate_text(output.decode_rate(reply.timings))} tok/s between stamps",
        f"CPU and GPU on one axis to {max(known) / 1e3:g} us" if known else "no calibrated timestamps: no common axis",
        output.device_text(engine.device),
        "open it in ui.perfetto.dev",
    ]
    return " · ".join(parts)
