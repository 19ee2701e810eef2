"""The full panel's column for this device: period and parts of the same tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from engine import RunSettings, TokenTiming, piece_rows
from tests.zincchat.cli.fake_engine import timing
from zincchat.panel.runs import KEPT_TOKENS, Runs

REUSE = RunSettings("reuse", "needed", True)


def token(scale: float = 1.0, stamped: bool = False, position: int = 10, mode: str = "reuse") -> TokenTiming:
    """A token of 1,000 us at scale 1, whose parts account for all of it."""
    parts = {"weights": 500.0 * scale, "kv": 100.0 * scale, "small": 100.0 * scale, "head": 100.0 * scale}
    return dataclasses.replace(
        timing(1, mode, True, "needed", stamped),
        period_us=1000.0 * scale,
        gpu_idle_before_us=60.0 * scale,
        bubbles_us=100.0 * scale if stamped else None,
        edges_us=40.0 * scale if stamped else None,
        pieces_us=parts if stamped else None,
        position=position,
    )


def tokens(count: int, scale: float, every: int) -> list[TokenTiming]:
    return [token(scale, index % every == every - 1) for index in range(count)]


def unexplained(runs: Runs) -> float | None:
    return piece_rows(runs.medians()[REUSE])[-1].measured_share


def test_a_measurement_takes_the_place_of_all_that_is_known() -> None:
    runs = Runs()
    for each in tokens(1000, 5.0, 16):
        runs.add(each)
    runs.replace([*[token() for _ in range(23)], *[token(stamped=True) for _ in range(6)]])
    assert unexplained(runs) == 0.0
    assert runs.medians()[REUSE].period_us == 1000.0
    assert runs.stamped_tokens(REUSE) == 6


def test_a_measurement_counts_until_the_chat_has_stamped_tokens_of_its_own() -> None:
    runs = Runs()
    runs.replace([*[token() for _ in range(23)], *[token(stamped=True) for _ in range(6)]])
    periods_us = []
    for each in tokens(64, 5.0, 16):
        runs.add(each)
        assert unexplained(runs) == 0.0, "period and parts of the measurement, or both of the chat"
        periods_us.append(runs.medians()[REUSE].period_us)
    assert periods_us == [1000.0] * 47 + [5000.0] * 17


def test_stamped_tokens_reach_back_no_further_than_clean_ones() -> None:
    runs = Runs()
    for each in [*tokens(1000, 5.0, 16), *tokens(KEPT_TOKENS, 1.0, 16)]:
        runs.add(each)
    assert unexplained(runs) == 0.0
    assert runs.stamped_tokens(REUSE) == 4


def test_a_full_window_shows_parts_of_the_few_stamped_tokens_it_holds() -> None:
    runs = Runs()
    for index, each in enumerate(tokens(100, 1.0, 40)):
        assert index < KEPT_TOKENS or unexplained(runs) == 0.0
        runs.add(each)
    assert runs.stamped_tokens(REUSE) in (1, 2)
    young = Runs()
    for each in tokens(60, 1.0, 40):
        young.add(each)
    assert unexplained(young) is None


def test_rows_are_compared_from_eight_tokens_on_and_within_256_of_context() -> None:
    pipelined = RunSettings("pipelined", "needed", True)

    def comparable(here: Iterable[int], there: Iterable[int]) -> bool:
        runs = Runs()
        for position in here:
            runs.add(token(position=position))
        for position in there:
            runs.add(token(position=position, mode="pipelined"))
        assert runs.comparable(REUSE, pipelined) == runs.comparable(pipelined, REUSE)
        return runs.comparable(REUSE, pipelined)

    assert comparable(range(100, 110), range(347, 357))
    assert not comparable(range(100, 110), range(348, 358))
    assert not comparable([3000, *range(10, 30)], range(30, 50)), "a new chat began in between"
    assert comparable([3000, *range(10, 74)], range(80, 90)), "the newest 64 count"
    assert comparable(range(8), range(8, 16))
    assert not comparable(range(8), range(8, 15))
    assert not comparable(range(10), [])
