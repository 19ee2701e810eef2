"""``zincchat run``: one prompt, one reply."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    from engine import Engine, Sampling, Session, TokenTiming


def _check_export(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name is not None:
        from engine import EngineError, export_suffix

        try:
            export_suffix(name)
        except EngineError as error:
            raise click.BadParameter(str(error), ctx, param) from error
    return name


@contextmanager
def _export(name: str | None) -> Iterator[Callable[[list[TokenTiming]], None]]:
    """Opens the file before a model is loaded for it; gives what writes it."""
    if name is None:
        yield lambda timings: None
        return
    from engine import AtomicFile, export_suffix, export_text

    with AtomicFile(name) as file:

        def write(timings: list[TokenTiming]) -> None:
            file.write(export_text(timings, export_suffix(name)))
            file.commit()

        yield write


@click.command()
@options.prompt_options
@options.model_options
@options.mode_options
@options.sampling_options
@options.think_option
@reply_options(max_tokens=256)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
@click.option(
    "--export", metavar="FILE", callback=_check_export, help="Write a record a token to FILE.jsonl or FILE.csv."
)
@click.pass_obj
def run(invocation: Invocation, /, **values: Any) -> None:
    """Answer PROMPT once; "-" reads it from stdin.

    The answer goes to stdout. What a thinking model thinks before it goes, dimmed, to stderr where that is a terminal.
    """
    overrides = options.sampling_overrides(values)
    given = read_input(values)
    path = resolve_model(values["model"])
    settings = options.engine_settings(values)
    with _export(values["export"]) as write_export, open_engine(path, settings, kind_of(given)) as engine:
        sampling = options.with_overrides(engine.sampling, overrides)
        ids = prompt_ids(engine, given, values["think"])
        session = engine.session()
        with interruptible() as cancel:
            reply = generate_reply(session, ids, sampling, values, cancel, shown=not values["as_json"])
            write_export(reply.timings)  # of an interrupted reply too
        if values["as_json"]:
            output.print_json(_to_json(engine, session, ids, sampling, reply, values, invocation))
        else:
            click.echo(_summary(engine, session, reply), err=True)


def _summary(engine: Engine, session: Session, reply: Reply) -> str:
    """One line for stderr."""
    stats = session.prefill_stats
    prefill_rate = stats.tokens / stats.seconds if stats.seconds > 0 else None
    thoughts = f" ({reply.thought_tokens} of them thoughts)" if reply.thought_tokens else ""
    parts = [
        f"{len(reply.tokens)} tokens{thoughts} at {output.rate_text(output.decode_rate(reply.timings))} tok/s",
        f"prefill {stats.tokens} at {output.rate_text(prefill_rate)} tok/s",
        f"first token after {reply.ttft_us / 1e3:,.0f} ms" if reply.ttft_us is not None else "no token",
        f"{engine.mode}, barriers {engine.barriers}, {'fused' if engine.fusion else 'not fused'}",
        output.device_text(engine.device),
    ]
    if session.finish_reason == "context":
        parts.append(f"stopped: the context of {engine.context} tokens is full (--context)")
    elif session.finish_reason == "length":
        unanswered = reply.thought_tokens and not reply.text
        parts.append("stopped at --max-tokens" + (", still thinking" if unanswered else ""))
    return " · ".join(parts)


def _to_json(
    engine: Engine,
    session: Session,
    fed_ids: list[int],
    sampling: Sampling,
    reply: Reply,
    values: dict[str, Any],
    invocation: Invocation,
) -> dict[str, Any]:
    stats = session.prefill_stats
    return {
        **provenance(engine, invocation.command),
        "settings": {
            "mode": engine.mode,
            "fusion": engine.fusion,
            "barriers": engine.barriers,
            "context": engine.context,
            "max_tokens": values["max_tokens"],
            "ignore_eos": values["ignore_eos"],
            "raw": values["raw"],
            "thinking": values["think"],
            **dataclasses.asdict(sampling),
        },
        "prompt_ids": [int(id_) for id_ in fed_ids],
        "ids": [token.id for token in reply.tokens],
        "text": reply.text,
        "thoughts": reply.thoughts,
        "finish_reason": session.finish_reason,
        "prefill": {
            "tokens": stats.tokens,
            "kept": stats.kept,
            "seconds": stats.seconds,
            "tok_s": stats.tokens / stats.seconds if stats.seconds > 0 else None,
        },
        "ttft_us": reply.ttft_us,
        "decode_tok_s": output.decode_rate(reply.timings),
        "tokens": [timing.to_json() for timing in reply.timings],
    }
