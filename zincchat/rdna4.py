"""``make rdna4``: what kernels and recordings come to on a Radeon RX 9070 XT, without the card (docs/rdna4.md)."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict

from engine import DRY_RUN_SHAPES, DryRun, KernelStatistics, compile_and_record, native_record_us
from zincchat.cli.errors import Invocation, run_guarded
from zincchat.cli.output import print_json, write_text
from zincchat.provenance import versions

_PROGRAM_COLUMNS = (
    "fusion", "barriers", "dispatches", "barrier count", "build us", "build us/op",
    "rerecord us", "reuse us", "record us/dispatch", "at native cost us",
)  # fmt: skip
_KERNEL_COLUMNS = (
    "kernel", "fused", "unfused", "wave", "VGPRs", "SGPRs", "spilled V+S", "scratch B", "LDS B", "code B", "waves/SIMD",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m zincchat.rdna4", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--shape", action="append", choices=list(DRY_RUN_SHAPES), help="of these only; may be repeated")
    parser.add_argument("--context", type=int, default=2048, help="tokens of context to choose kernels for")
    parser.add_argument("--subgroup-size", type=int, help="instead of the size that the engine takes on this device")
    parser.add_argument("--debug", action="store_true", help="show the raw cause of an error")
    chosen = parser.parse_args(words)

    def body() -> int:
        runs = [
            compile_and_record(shape, context=chosen.context, subgroup_size=chosen.subgroup_size)
            for shape in chosen.shape or DRY_RUN_SHAPES
        ]
        if chosen.json:
            command = shlex.join(["python", "-m", "zincchat.launcher", "--rdna4", "-m", "zincchat.rdna4", *words])
            found = {
                "versions": versions(runs[0].api_version),
                "command": command,
                "runs": [asdict(run) for run in runs],
            }
            print_json(found)
        else:
            write_text("\n\n".join(markdown(run) for run in runs) + "\n")
        return 0

    return run_guarded(body, Invocation(words, chosen.debug))


def markdown(run: DryRun) -> str:
    """A dry run as Markdown: the programs, the kernels without their twins and waiting builds, and every spill."""
    programs = []
    for program in run.programs:
        record_us = program.record_us["rerecord"]
        programs.append(
            (
                "on" if program.fusion else "off",
                program.barriers,
                str(program.dispatches),
                str(program.barrier_count),
                f"{program.build_us:,.0f}",
                f"{program.build_us / program.dispatches:.2f}",
                f"{record_us:,.0f}",
                f"{program.record_us['reuse']:,.0f}",
                f"{record_us / program.dispatches:.2f}",
                f"{native_record_us(program.dispatches):.0f}",
            )
        )
    kernels = [_kernel(kernel) for kernel in run.kernels if not kernel.stamped and not kernel.waits]
    stamped, waiting = (sum(found) for found in zip(*((each.stamped, each.waits) for each in run.kernels), strict=True))
    spilling = [kernel.label for kernel in run.kernels if kernel.spills]
    about = (
        f"{run.device}, {run.driver}; subgroups of {run.subgroup_size}; context {run.context_tokens:,} tokens, "
        f"bucket {run.bucket_tokens}; {run.weight_bytes / 1e6:,.0f} MB of weights a token."
    )
    spills = (
        f"Kernels compiled: {len(run.kernels)}, {stamped} of them stamped twins, {waiting} that wait in memory. "
        f"Spills: {'; '.join(spilling) or 'none'}."
    )
    tables = _table(_PROGRAM_COLUMNS, programs, text=2), _table(_KERNEL_COLUMNS, kernels, text=1)
    return "\n\n".join((f"### {run.shape}", about, *tables, spills))


def _kernel(kernel: KernelStatistics) -> tuple[str, ...]:
    numbers = (
        kernel.fused_dispatches,
        kernel.unfused_dispatches,
        kernel.subgroup_size,
        kernel.vgprs,
        kernel.sgprs,
        f"{kernel.spilled_vgprs}+{kernel.spilled_sgprs}",
        kernel.scratch_bytes,
        kernel.lds_bytes,
        kernel.code_bytes,
        kernel.waves_per_simd,
    )
    return (kernel.label, *map(str, numbers))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], text: int) -> str:
    """A Markdown table whose first ``text`` columns are not numbers."""
    rule = ["---"] * text + ["---:"] * (len(header) - text)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


if __name__ == "__main__":
    sys.exit(main())
