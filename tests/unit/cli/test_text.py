"""Numbers and names on screen."""

from __future__ import annotations

import pytest

from rankscope.cli import text


def test_times_have_one_decimal_and_unknown_is_a_dash() -> None:
    assert text.ms(1_250_000) == "1.2"
    assert text.ms(123_456_789_000) == "123456.8"
    assert text.us(1_500) == "1.5"
    assert (
        text.ms(None)
        == text.us(None)
        == text.ratio(None)
        == text.percent(3, None)
        == text.percent(None, 4)
        == "-"
    )
    assert text.percent(1, 8) == text.ratio(0.125) == "12.5%"
    assert text.percent(1, 0) == "-"


def test_counts_take_the_plural() -> None:
    assert text.count(1, "warning") == "1 warning"
    assert text.count(2000, "rank") == "2,000 ranks"
    assert text.count(0, "activity", "activities") == "0 activities"


def test_control_characters_of_a_name_never_reach_the_terminal() -> None:
    assert text.clean("a\x1b[31mred\x07\nnext\ttab") == "a?[31mred? next tab"


@pytest.mark.parametrize("room", range(1, 30))
def test_a_shortened_name_fits_and_keeps_both_ends(room: int) -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    short = text.shorten(name, room)
    assert text.width(short) <= room
    if room > 5:
        assert short[0] == name[0]
        assert short[-1] == name[-1]


def test_wide_characters_count_twice() -> None:
    assert text.width("\u5185\u6838") == 4
    assert text.width("e\u0301") == 1
    assert text.pad("\u5185", 4) == "\u5185  "
    assert text.shorten("\u5185" * 10, 9) == "\u5185...\u5185"


def test_runs_of_ranks_are_joined() -> None:
    assert text.ranges([8, 0, 1, 2, 3, 6, 9, 3]) == "0-3,6,8-9"
    assert text.ranges([]) == ""


def test_wrapped_lines_never_exceed_the_width() -> None:
    lines = text.wrap("one two " + "x" * 50 + " three", 20, indent="  ")
    assert all(text.width(line) <= 20 for line in lines)
    assert lines[0] == "one two"
    assert lines[-1].endswith("three")
    assert text.wrap("", 20) == []
