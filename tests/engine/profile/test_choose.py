"""The choice of fusion passes."""

from __future__ import annotations

import pytest

from engine import disk_cache
from engine.profile.choose import choose, remember, remembered


@pytest.fixture
def file(monkeypatch, tmp_path):
    monkeypatch.setattr(disk_cache, "user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "zincchat" / "fusion.json"


def test_a_pass_that_makes_tokens_slower_is_dropped_and_the_others_stay():
    gain = {"a": 5.0, "b": -5.0, "c": 2.0, "d": -1.0}
    chosen = choose(tuple(gain), lambda passes: 100.0 - sum(gain[name] for name in passes))
    assert chosen == ("a", "c", "d")  # d's loss is within the noise


def test_an_outlier_does_not_decide():
    times = iter([500.0] + [10.0] * 11)
    assert choose(("a",), lambda passes: next(times) + (0.0 if passes else 1.0)) == ("a",)


def test_one_disturbed_measurement_drops_nothing():
    count = 0

    def gpu_us(passes):
        nonlocal count
        count += 1
        return 20.0 if count <= 12 and passes else 10.0

    assert choose(("a",), gpu_us) == ("a",)


def test_choices_are_remembered_in_the_order_of_the_passes(file):
    assert remembered("device", ("a", "b")) is None
    remember("device", ["b", "a"])
    remember("other", [])
    assert remembered("device", ("a", "b")) == ("a", "b")
    assert remembered("other", ("a", "b")) == ()
    assert remembered("device", ("a",)) is None  # it names a pass that is gone


def test_a_damaged_file_is_no_choice_and_is_replaced(file):
    for damaged in ("{", "[1]", '{"device": 1}', '{"device": [["a"]]}'):
        file.parent.mkdir(exist_ok=True)
        file.write_text(damaged)
        assert remembered("device", ("a",)) is None
    remember("device", ["a"])
    assert remembered("device", ("a",)) == ("a",)
