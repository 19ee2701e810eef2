"""``zincchat bench``: how fast this device decodes and prefills, and where a token's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zincchat.cli import options, output
from zincchat.cli.errors import Failure, Invocation
from zincchat.cli.fusion_settings import FusionSettings
from zincchat.cli.loading import StatusLine, interruptible, open_engine
from zincchat.cli.resolve import resolve_model

if TYPE_CHECKING:
    from engine import Engine
    from zincchat.bench.measure import Workload
    from zincchat.bench.setting import Setting

USUAL_CONTEXT = 2048  # what the engine takes when it is told nothing


@click.command(short_help="Compare the modes' speed and where a token's time goes.")
@click.option("--modes", type=options.EngineNames("mode", "MODES"), help="Decode modes to compare [all].")
@click.option(
    "--barriers",
    type=options.EngineNames("barrier policy", "BARRIERS"),
    help="Barrier policies to compare [flags on GPUs, else needed].",
)
@click.option(
    "--fusion", type=FusionSettings(), help="Fusions to compare: on, off, or names of passes, with + between [on]."
)
@click.option("--no-fusion", is_flag=True, help="The same as --fusion off.")
@options.context_option
@click.option(
    "--prefill", type=click.IntRange(min=1), default=512, show_default=True, metavar="N", help="Prompt tokens."
)
@click.option(
    "--tokens", type=click.IntRange(min=1), default=128, show_default=True, metavar="N", help="Decode steps of a run."
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    metavar="N",
    help="Runs of each setting; an even number weighs both orders alike.",
)
@click.option("--against", type=click.Path(path_type=Path), metavar="FILE", help="Compare with an earlier --json.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown tables with captions.")
@options.model_options
@click.pass_obj
def bench(invocation: Invocation, /, **values: Any) -> None:
    """Measure greedy decoding in every mode, and prefill, from an empty context; needs no tokenizer.

    Every mode runs with every --barriers and every --fusion, interleaved; ratios are to the first of them.
    """
    from zincchat.bench import earlier, host, instruments, measure, report
    from zincchat.bench.markdown import bench_markdown
    from zincchat.bench.text import WIDTH, bench_text

    if values["as_json"] and values["as_markdown"]:
        raise click.UsageError("--json and --markdown exclude each other")
    if values["no_fusion"] and values["fusion"] is not None:
        raise click.UsageError("--no-fusion and --fusion exclude each other")
    workload = measure.Workload(values["prefill"], values["tokens"], values["repeat"])
    context = _context(values["context"], workload)
    before = earlier.load_earlier(values["against"]) if values["against"] is not None else None
    path = resolve_model(values["model"])
    with open_engine(path, {**options.given(values, "device", "quantize", "tuning"), **context}) as engine:
        if engine.context < workload.context:
            raise Failure(f"{engine.model.name} holds {engine.context} tokens; this bench needs {workload.context}")
        settings = _settings(engine, values)
        status = StatusLine()
        clocks: list[Any] = []
        try:
            with interruptible() as cancel:
                measurements = measure.measure(
                    engine,
                    settings,
                    workload,
                    cancel,
                    status.show,
                    warm=lambda: clocks.append(host.device_clocks(engine.device)),
                )
                clocks.append(host.device_clocks(engine.device))
                measured_once = instruments.read_instruments(engine, settings, workload.middle, cancel, status.show)
        finally:
            status.clear()
        result = report.bench_report(
            engine, invocation.command, settings, workload, measurements, measured_once, (clocks[0], clocks[-1])
        )
    if before is not None:
        result["against"] = earlier.compare(result, before, str(values["against"]))
    if values["as_json"]:
        output.print_json(result)
    else:
        text = bench_markdown(result) if values["as_markdown"] else bench_text(result, output.columns(WIDTH))
        output.write_text(text + "\n")


def _context(wanted: int | None, workload: Workload) -> dict[str, int]:
    """The ``context`` to open the engine with, if it is not to choose."""
    if wanted is None:
        return {"context": workload.context} if workload.context > USUAL_CONTEXT else {}
    if wanted < workload.context:
        raise click.UsageError(f"--context {wanted} is too small; this bench needs {workload.context}")
    return {"context": wanted}


def _settings(engine: Engine, values: dict[str, Any]) -> Sequence[Setting]:
    """Every combination of the switches, without what this device refuses.

    EngineError where that is a mode that was asked for, or all that was asked for.
    """
    from engine import MODES, EngineError
    from zincchat.bench.setting import Setting

    modes = values["modes"]
    if modes is None:
        modes = []
        for mode in MODES:
            try:
                engine.mode = mode
                if mode == "persistent":
                    _try_tokens(engine)
            except EngineError as error:
                reason = engine.refused_modes.get(mode, error)
                click.echo(f"zincchat: without mode {mode}: {reason}", err=True)
            else:
                modes.append(mode)
        engine.mode = MODES[0]
    fusions = (False,) if values["no_fusion"] else values["fusion"] or (True,)
    policies = _offered_policies(engine, values["barriers"] or (engine.barriers,))
    return [Setting(*switches) for switches in product(modes, policies, fusions)]


def _offered_policies(engine: Engine, wanted: Sequence[str]) -> list[str]:
    """Those of the barrier policies that this device has, with a line on stderr for each other one.

    EngineError where none is left.
    """
    from engine import EngineError

    found, problem = [], EngineError("no barrier policy was named")
    for policy in wanted:
        try:
            engine.barriers = policy
            if policy == "flags":
                _try_tokens(engine)
        except EngineError as error:
            reason = engine.refused_barriers.get(policy)
            if reason is None:
                raise
            problem = error
            if len(wanted) > 1:
                click.echo(f"zincchat: without barriers {policy}: {reason}", err=True)
        else:
            found.append(policy)
    if not found:
        raise problem
    return found


def _try_tokens(engine: Engine) -> None:
    """Two tokens under the present setting: whether a device has it may turn out only then, as an EngineError."""
    from engine import Sampling

    session = engine.session()
    session.prefill([0])
    list(session.generate(Sampling(temperature=0.0), max_tokens=2, ignore_eos=True))
