"""What an open engine says about its model."""

from __future__ import annotations

from engine import Sampling
from engine.info import sampling_defaults


def test_a_files_own_sampling_settings_are_taken():
    metadata = {"general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.min_p": 0.05}
    assert sampling_defaults(metadata) == Sampling(temperature=0.6, top_k=20, min_p=0.05)


def test_without_settings_or_with_senseless_ones_the_usual_are_taken():
    assert sampling_defaults({}) == Sampling(temperature=0.7, top_p=0.95)
    assert sampling_defaults({"general.sampling.top_p": 3.0}) == Sampling()
    assert sampling_defaults({"general.sampling.temp": "hot"}) == Sampling()
