"""The choice of fusion passes."""

from __future__ import annotations

import json

from engine.profile.choose import Choices, choose


def test_a_pass_that_makes_tokens_slower_is_dropped_and_the_others_stay():
    gain = {"a": 5.0, "b": -5.0, "c": 2.0, "d": -1.0}
    chosen = choose(tuple(gain), lambda passes: 100.0 - sum(gain[name] for name in passes))
    assert chosen == ("a", "c", "d")  # d's loss is within the noise


def test_an_outlier_does_not_decide():
    times = iter([500.0] + [10.0] * 11)
    assert choose(("a",), lambda passes: next(times) + (0.0 if passes else 1.0)) == ("a",)


def test_choices_are_remembered_in_the_order_of_the_passes(tmp_path):
    choices = Choices(tmp_path / "cache" / "fusion.json")
    assert choices.get("device", ("a", "b")) is None
    choices.put("device", ["b", "a"])
    choices.put("other", [])
    assert Choices(tmp_path / "cache" / "fusion.json").get("device", ("a", "b")) == ("a", "b")
    assert choices.get("other", ("a", "b")) == ()
    assert choices.get("device", ("a",)) is None  # it names a pass that is gone


def test_a_damaged_or_unwritable_file_is_no_choice(tmp_path):
    path = tmp_path / "fusion.json"
    path.write_text("{")
    assert Choices(path).get("device", ("a",)) is None
    path.write_text(json.dumps([1]))
    assert Choices(path).get("device", ("a",)) is None
    blocked = tmp_path / "file"
    blocked.write_text("")
    Choices(blocked / "fusion.json").put("device", ["a"])
