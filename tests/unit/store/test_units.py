"""Decimal text to exact ns and back, and quantities as text."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.store.units import (
    INT64_MAX,
    INT64_MIN,
    bytes_text,
    decimal_text,
    fits_int64,
    ms_text,
    ns_from_us,
    percent_text,
    rate_gbps,
    rate_text,
    time_text,
    us_from_ns,
)


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


@given(st.integers(INT64_MIN, INT64_MAX))
def test_nanoseconds_survive_the_way_to_text_and_back(ns: int) -> None:
    assert ns_from_us(us_from_ns(ns)) == ns


def test_int64_limits_are_inclusive() -> None:
    assert fits_int64(INT64_MAX)
    assert fits_int64(INT64_MIN)
    assert not fits_int64(INT64_MAX + 1)


def test_decimals_round_half_away_from_zero_in_integers() -> None:
    assert decimal_text(1250, 1000, 1) == "1.3"
    assert decimal_text(-1250, 1000, 1) == "-1.3"
    assert decimal_text(-1, 1000, 1) == "0.0"  # no minus sign on a zero
    assert decimal_text(2500, 1000, 0) == "3"


def test_quantities_read_as_a_person_would_write_them() -> None:
    assert ms_text(12_345_678) == "12.3"
    assert [time_text(t) for t in (850, 12_300, 4_500_000, 61_200_000_000)] == [
        "850 ns",
        "12.3 us",
        "4.5 ms",
        "61.2 s",
    ]
    assert [bytes_text(b) for b in (512, 4_096, 2_500_000_000)] == ["512 B", "4.1 kB", "2.5 GB"]
    assert percent_text(0.1234) == "12.3 %"


def test_a_rate_is_bytes_per_nanosecond_and_unknown_without_time() -> None:
    assert rate_gbps(8_000, 1_000) == 8.0
    assert rate_gbps(8_000, 0) is None
    assert rate_gbps(None, 5) is None
    assert rate_text(123.44) == "123.4 GB/s"


def test_unknown_is_a_dash_everywhere() -> None:
    assert {f(None) for f in (ms_text, time_text, bytes_text, rate_text, percent_text)} == {"-"}
