"""The parts of a step on screen: they add up, also as rounded."""

from __future__ import annotations

import builders_cli as build
from hypothesis import given
from hypothesis import strategies as st

from rankscope.cli import parts
from rankscope.store.schema import CAUSES, FULL_CAUSES


def test_idle_groups_hold_every_cause_once() -> None:
    listed = [c for columns in parts.idle_causes().values() for c in columns]
    assert sorted(listed) == sorted((*CAUSES, *FULL_CAUSES))


def test_the_parts_of_a_step_sum_to_its_wall_time() -> None:
    row = build.window()
    assert sum(parts.step_parts(row).values()) == row["wall_ns"]
    assert parts.step_parts(row)["exposed comm: wait unknown"] == 15 * build.MS
    assert parts.step_parts(row)["idle: launch-bound"] == 12 * build.MS


def test_causes_shown_apart_stay_in_their_group() -> None:
    row = build.window(host_dispatch_ns=2 * build.MS, allocator_ns=10 * build.MS)
    assert parts.idle_groups(row)["launch-bound"] == 12 * build.MS


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=12))
def test_shown_parts_add_up_to_the_shown_whole(values: list[int]) -> None:
    shown = parts.shown_ms(values, digits=1)
    whole = parts.shown_ms([sum(values)], digits=1)[0]
    assert sum(round(float(s) * 10) for s in shown) == round(float(whole) * 10)
    for value, text in zip(values, shown, strict=True):
        assert abs(float(text) - value / 1e6) < 0.1000001


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=12))
def test_shown_percentages_add_up_to_a_hundred(values: list[int]) -> None:
    if sum(values):
        assert sum(round(float(p[:-1]) * 10) for p in parts.shown_percent(values)) == 1000
    else:
        assert parts.shown_percent(values) == ["-"] * len(values)


def test_remainders_go_to_the_largest_and_ties_to_the_first() -> None:
    assert parts.rounded([1.5, 1.5, 1.0], unit=1) == [2, 1, 1]
    assert parts.rounded([0.2, 0.7, 0.1], unit=1) == [0, 1, 0]


def test_windows_below_ten_milliseconds_get_three_decimals() -> None:
    assert parts.shown_ms([1_234_567], digits=parts.digits_for(9_000_000)) == ["1.235"]
    assert parts.shown_ms([12_345_678], digits=parts.digits_for(12_345_678)) == ["12.3"]


def test_the_bubble_is_a_range_while_it_is_one() -> None:
    assert parts.bubble_text("20.0", "35.0") == "20.0 to 35.0"
    assert parts.bubble_text("20.0", "20.0") == "20.0"
