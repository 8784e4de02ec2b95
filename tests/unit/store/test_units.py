"""Decimal text to exact ns, and lists of whole numbers as text."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.store.units import INT64_MAX, INT64_MIN, fits_int64, ns_from_us, number_ranges


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("12", 12_000),
        ("-0.5", -500),
        ("1712345678901234.567", 1_712_345_678_901_234_567),  # a double would be off by up to 125 ns
        ("1.5e3", 1_500_000),
        ("2E-3", 2),
        ("0.0005", 1),  # halves away from zero
        ("-0.0005", -1),
        ("0.00049999", 0),
        (".5", 500),
        ("5.", 5_000),
        ("9223372036854775.807", INT64_MAX),
        ("-9223372036854775.808", INT64_MIN),
    ],
)
def test_microseconds_become_exact_nanoseconds(text: str, ns: int) -> None:
    assert ns_from_us(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "x",
        "1 2",
        "0x10",
        "NaN",
        "inf",
        "9223372036854775.808",
        "1e999",
        "1" * 401,
        "٣",
        "1e9999999999",
    ],
)
def test_what_is_no_time_or_does_not_fit_is_none(text: str) -> None:
    assert ns_from_us(text) is None


def test_an_exponent_of_a_billion_takes_no_time() -> None:
    assert ns_from_us("1e-999999999") == 0
    assert ns_from_us("0e999999999") == 0


@given(st.decimals(min_value=-(10**14), max_value=10**14, places=6))
def test_every_decimal_rounds_like_the_decimal_module(value: Decimal) -> None:
    expected = int((value * 1000).quantize(Decimal(1), rounding=ROUND_HALF_UP))
    assert ns_from_us(f"{value:f}") == expected


def test_int64_limits_are_inclusive() -> None:
    assert fits_int64(INT64_MAX)
    assert fits_int64(INT64_MIN)
    assert not fits_int64(INT64_MAX + 1)


def test_runs_of_numbers_are_joined_and_the_rest_is_counted() -> None:
    assert number_ranges([9, 1, 2, 3, 3]) == "1-3,9"
    assert number_ranges([]) == ""
    assert number_ranges(range(0, 40, 2), most=2) == "0,2 and 18 more"
    assert number_ranges(range(0, 16, 2)) == "0,2,4,6,8,10 and 2 more"
    assert number_ranges(range(0, 16, 2), most=None) == "0,2,4,6,8,10,12,14"
