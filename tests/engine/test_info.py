"""What an open engine says about its model."""

from __future__ import annotations

import math

import pytest

from engine import EngineError, Sampling
from engine.info import sampling_defaults


def test_a_files_own_sampling_settings_are_taken():
    metadata = {"general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.min_p": 0.05}
    assert sampling_defaults(metadata) == Sampling(temperature=0.6, top_k=20, min_p=0.05)


def test_without_settings_or_with_senseless_ones_the_usual_are_taken():
    assert sampling_defaults({}) == Sampling(temperature=0.7, top_p=0.95)
    assert sampling_defaults({"general.sampling.top_p": 3.0}) == Sampling()
    assert sampling_defaults({"general.sampling.temp": "hot"}) == Sampling()
    assert sampling_defaults({"general.sampling.top_k": 40.5}) == Sampling()


@pytest.mark.parametrize("values", [
    {"top_k": 2.5}, {"seed": 2.5}, {"temperature": "x"}, {"temperature": None}, {"top_p": math.nan}, {"seed": 2**64},
])  # fmt: skip
def test_a_setting_that_makes_no_sense_is_refused_by_name(values):
    with pytest.raises(EngineError, match=f"^{next(iter(values))} is .*; it must be "):
        Sampling(**values)
