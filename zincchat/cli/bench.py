"""``zincchat bench``: how fast this device decodes and prefills, and where a token's time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zincchat.cli import options, output
from zincchat.cli.errors import Failure, Invocation
from zincchat.cli.loading import StatusLine, interruptible, open_engine
from zincchat.cli.resolve import resolve_model

if TYPE_CHECKING:
    from engine import Engine

USUAL_CONTEXT = 2048  # what the engine takes when it is told nothing
_MS_COLUMNS = ("build", "record", "submit", "GPU", "idle", "kernels*", "bubbles*")


@click.command()
@click.option(
    "--modes",
    type=options.EngineNames("mode", "MODES"),
    default="rerecord,reuse",
    show_default=True,
    help="Decode modes to compare.",
)
@click.option(
    "--barriers",
    type=options.EngineNames("barrier policy", "BARRIERS"),
    default="needed",
    show_default=True,
    help="Barrier policies to compare.",
)
@options.fusion_option
@options.context_option
@click.option("--prefill", type=click.IntRange(min=1), default=512, show_default=True, metavar="N")
@click.option("--tokens", type=click.IntRange(min=1), default=128, show_default=True, metavar="N")
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True, metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@options.model_options
@click.pass_obj
def bench(invocation: Invocation, /, **values: Any) -> None:
    """Measure greedy decoding and prefill, each from an empty context; needs no tokenizer."""
    from zincchat.cli import benchmark

    workload = benchmark.Workload(values["prefill"], values["tokens"], values["repeat"])
    if values["context"] is not None and values["context"] < workload.context:
        raise click.UsageError(f"--context {values['context']} is too small; this bench needs {workload.context}")
    if values["context"] is None and workload.context > USUAL_CONTEXT:
        values["context"] = workload.context
    path = resolve_model(values["model"])
    settings = {**options.engine_settings(values), "barriers": values["barriers"][0]}
    with open_engine(path, settings) as engine:
        if engine.context < workload.context:
            raise Failure(f"{engine.model.name} holds {engine.context} tokens; this bench needs {workload.context}")
        combinations = [
            benchmark.Setting(mode, barriers, engine.fusion)
            for mode in values["modes"]
            for barriers in values["barriers"]
        ]
        status = StatusLine()
        try:
            with interruptible() as cancel:
                samples = benchmark.measure(engine, combinations, workload, cancel, status.show)
        finally:
            status.clear()
        probe_gb_s = getattr(engine, "probe_gb_s", None)
        floor_tok_s = probe_gb_s * 1e9 / engine.weight_bytes if probe_gb_s else None
        result = {
            **output.provenance(engine, invocation.command),
            "probe_gb_s": probe_gb_s,
            "context": engine.context,
            "prefill_tokens": workload.prefill_tokens,
            "decode_tokens": workload.decode_tokens,
            "repeats": workload.repeats,
            "host_rss_bytes": _host_rss_bytes(),
            "device_bytes": engine.device_bytes,
            "runs": [benchmark.run_figures(setting, samples[setting], floor_tok_s) for setting in combinations],
        }
        if values["as_json"]:
            output.print_json(result)
        else:
            click.echo(_text(engine, result))


def _host_rss_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _text(engine: Engine, result: dict[str, Any]) -> str:
    """The result as a table: a row a run, medians, milliseconds a token."""
    header = ("mode", "barriers", "decode tok/s", "(p5-p95)", "prefill tok/s", *_MS_COLUMNS)
    rows = [
        (
            run["mode"],
            run["barriers"],
            output.rate_text(run["decode_tok_s"]["median"]),
            f"({output.rate_text(run['decode_tok_s']['p5'])}-{output.rate_text(run['decode_tok_s']['p95'])})",
            output.rate_text(run["prefill_tok_s"]["median"]),
            _ms(run["build_us"]),
            _ms(run["record_us"]),
            _ms(run["patch_submit_us"]),
            _ms(run["gpu_total_us"]),
            _ms(run["gpu_idle_before_us"]),
            _ms(run["kernels_us"]),
            _bubbles(run),
        )
        for run in result["runs"]
    ]
    run = result["runs"][0]
    model = f"{result['model']} {result['quantisation']}"
    fusion = "fused" if run["fusion"] else "not fused"
    host, device = output.bytes_text(result["host_rss_bytes"]), output.bytes_text(result["device_bytes"])
    return f"""\
{model} on {output.device_text(engine.device)}, {result["driver"]}
prefill {result["prefill_tokens"]}, decode {result["decode_tokens"]}, median of {result["repeats"]}; \
{run["dispatches"]} dispatches a token, {fusion}; memory: process {host}, device {device}

{output.table(header, rows, numeric=range(2, len(header)))}
ms a token; build, record and submit (patch included) are CPU thread time; * from stamped tokens"""


def _ms(value_us: float | None) -> str:
    return "-" if value_us is None else f"{value_us / 1e3:.3f}"


def _bubbles(run: dict[str, Any]) -> str:
    if run["bubbles_us"] is None and run["bubbles_range_us"] is not None:
        return "-".join(_ms(end) for end in run["bubbles_range_us"])
    return _ms(run["bubbles_us"])
