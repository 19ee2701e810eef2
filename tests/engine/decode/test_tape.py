"""The tape as Python writes it and as the resident kernel reads it."""

from __future__ import annotations

import re

from engine.decode.tape import MOST_TOKENS, RECORD_BYTES, RESULTS_BYTES
from engine.program.resident import RECORD_PUSH_BYTES
from engine.vulkan.shader_path import shader_root


def test_sizes_are_those_of_the_kernel() -> None:
    text = (shader_root() / "include/tape.glsl").read_text()
    words = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)u", text)}
    assert words["RECORD_WORDS"] * 4 == RECORD_BYTES
    assert words["RECORD_PUSH"] * 4 == RECORD_BYTES - RECORD_PUSH_BYTES
    assert (words["RESULTS_TOKENS"] + words["RESULT_WORDS"] * MOST_TOKENS) * 4 == RESULTS_BYTES
