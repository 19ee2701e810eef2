"""Every kernel of the reference models, compiled for an RDNA4 card that is not there: no register may spill.

Needs the driver that ``make rdna4`` brings. The driver takes another process, and one run serves all tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from zincchat import faked_card

pytestmark = pytest.mark.skipif(
    faked_card.load() is None,
    reason="the driver of the faked RDNA4 card is not here: `python -m zincchat.setup --rdna4` brings it",
)

SHAPES = ("smollm2-135m-q4_1", "llama-8b-q4_k", "qwen3.5-9b-q4_k", "llama-8b-mixed")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zincchat.launcher", "--rdna4", "-m", "zincchat.rdna4", *words],
        env={name: value for name, value in os.environ.items() if name[:3] not in ("VK_", "LD_")},
        capture_output=True,
        text=True,
        timeout=290,
    )


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """The command's JSON, by shape; the context is so long that all of attention's builds are dispatched in it."""
    done = command("--json", "--context", "8192")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return {run["shape"]: run for run in json.loads(done.stdout)["runs"]}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_kernel_spills(found, shape):
    spilling = [
        f"{kernel['name']} {kernel['defines']}: {kernel['spilled_vgprs']} VGPRs, {kernel['spilled_sgprs']} SGPRs, "
        f"{kernel['scratch_bytes']} bytes of scratch"
        for kernel in found[shape]["kernels"]
        if kernel["spilled_vgprs"] or kernel["spilled_sgprs"] or kernel["scratch_bytes"]
    ]
    assert spilling == []


@pytest.mark.parametrize("shape", SHAPES)
def test_every_variant_is_compiled_for_the_card(found, shape):
    run = found[shape]
    assert "GFX1201" in run["device"]
    plain, stamped = (
        {(kernel["name"], *sorted(kernel["defines"].items())) for kernel in run["kernels"] if kernel["stamped"] is twin}
        for twin in (False, True)
    )
    assert stamped - plain == {("nothing",)}
    assert plain <= stamped
    for kernel in run["kernels"]:
        assert 1 <= kernel["waves_per_simd"] <= 16
        assert kernel["vgprs"] > 0
        assert kernel["code_bytes"] > 0


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if not shape.startswith("qwen")]
)  # whose heads are too large
def test_attention_by_matrices_is_compiled_for_one_range_and_for_more(found, shape):
    builds = [kernel["defines"] for kernel in found[shape]["kernels"] if kernel["name"] == "attend_matrices"]
    for merges in (False, True):
        for waits in (False, True):
            some = [each for each in builds if ("MERGE" in each) is merges and ("FLAGS" in each) is waits]
            assert {"ONE_RANGE" in each for each in some} == {False, True}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernels_are_those_that_a_token_dispatches(found, shape):
    run = found[shape]
    for fusion, column in ((True, "fused_dispatches"), (False, "unfused_dispatches")):
        programs = [program for program in run["programs"] if program["fusion"] is fusion]
        assert {program["barriers"] for program in programs} == {"every", "needed", "flags"}
        dispatches = {program["dispatches"] for program in programs}
        for waits in (False, True):
            kernels = [kernel for kernel in run["kernels"] if ("FLAGS" in kernel["defines"]) is waits]
            assert dispatches == {sum(kernel[column] for kernel in kernels)}


@pytest.mark.parametrize("shape", SHAPES)
def test_fusion_and_the_barrier_policy_spare_what_they_promise(found, shape):
    programs = {(program["fusion"], program["barriers"]): program for program in found[shape]["programs"]}
    for fusion in (False, True):
        every, needed = programs[fusion, "every"], programs[fusion, "needed"]
        assert every["barrier_count"] == every["dispatches"] - 1
        assert needed["barrier_count"] <= every["barrier_count"]
        assert programs[fusion, "flags"]["barrier_count"] == needed["barrier_count"]
    assert programs[False, "needed"]["barrier_count"] < programs[False, "every"]["barrier_count"]
    assert programs[True, "needed"]["barrier_count"] < programs[False, "needed"]["barrier_count"]
    assert programs[True, "needed"]["dispatches"] < programs[False, "needed"]["dispatches"]


def test_times_are_measured(found):
    for run in found.values():
        for program in run["programs"]:
            assert set(program["record_us"]) == {"rerecord", "reuse"}
            # far below: nothing was recorded; far above: something waited for the card, which never answers
            assert 0.02 < program["record_us"]["rerecord"] / program["dispatches"] < 100
            assert program["build_us"] > 0


def test_the_tables_are_markdown_and_name_the_spills():
    done = command("--shape", SHAPES[0])
    assert done.returncode == 0, done.stderr
    assert "| fusion | barriers | dispatches |" in done.stdout
    assert "Spills: none." in done.stdout
    assert SHAPES[1] not in done.stdout


def test_an_impossible_subgroup_size_is_one_line():
    done = command("--subgroup-size", "48")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("has no subgroup size 48: 32 to 64")
