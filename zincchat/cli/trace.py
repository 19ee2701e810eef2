"""``zincchat trace``: one reply as a timeline that Perfetto opens."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import click

from zincchat.cli import options, output
from zincchat.cli.errors import Invocation
from zincchat.cli.loading import interruptible, open_engine
from zincchat.cli.messages import prompt_ids, read_input
from zincchat.cli.resolve import resolve_model

if TYPE_CHECKING:
    from engine import Engine, Sampling, Token


@click.command()
@click.argument("out", metavar="OUT.json")
@options.prompt_options
@options.model_options
@options.mode_options
@options.sampling_options
@click.option("--max-tokens", type=click.IntRange(min=1), default=64, show_default=True, metavar="N")
@click.option("--ignore-eos", is_flag=True, help="Do not stop at the model's end token.")
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
    with AtomicFile(values["out"]) as file, open_engine(path, options.engine_settings(values)) as engine:
        sampling = options.with_overrides(engine.sampling, overrides)
        ids = prompt_ids(engine, given)
        engine.stamp_every = values["stamp_every"]
        if engine.stamp_every:
            engine.request_stamps()  # waits until the stamped kernels are built
        with interruptible() as cancel:
            tokens = _generate(engine, ids, sampling, values, cancel)
            if tokens:  # of an interrupted reply too
                metadata = {**output.provenance(engine, invocation.command), "text": _text(tokens)}
                file.write(json.dumps(chrome_trace(tokens, metadata), allow_nan=False))
                file.commit()
        click.echo(_summary(engine, tokens, values["out"]), err=True)


def _generate(
    engine: Engine, ids: list[int], sampling: Sampling, values: dict[str, Any], cancel: threading.Event
) -> list[Token]:
    """The reply's tokens; its text goes to stdout as it comes."""
    session = engine.session()
    session.prefill(ids, cancel=cancel)
    tokens: list[Token] = []
    for token in session.generate(
        sampling, max_tokens=values["max_tokens"], ignore_eos=values["ignore_eos"], cancel=cancel
    ):
        tokens.append(token)
        output.write_text(token.text)
    if tokens and not tokens[-1].text.endswith("\n"):
        output.write_text("\n")
    return tokens


def _text(tokens: list[Token]) -> str:
    return "".join(token.text for token in tokens)


def _summary(engine: Engine, tokens: list[Token], out: str) -> str:
    """One line for stderr."""
    if not tokens:
        return "the model ended its reply at once: nothing to trace"
    stamped = sum(token.timing.kernels_us is not None for token in tokens)
    deviations = [token.trace.deviation_ns for token in tokens]
    known = [deviation for deviation in deviations if deviation is not None]
    parts = [
        f"{out}: {len(tokens)} tokens, {stamped} of them with their kernels",
        f"{output.rate_text(output.decode_rate([token.timing for token in tokens]))} tok/s between stamps",
        f"CPU and GPU on one axis to {max(known) / 1e3:g} us" if known else "no calibrated timestamps: no common axis",
        output.device_text(engine.device),
        "open it in ui.perfetto.dev",
    ]
    return " · ".join(parts)
