"""The interval algebra on hand-made cases, at calendar times."""

from __future__ import annotations

import numpy as np

from rankscope.analysis.intervals import EMPTY, complement, difference, intersection, merge, union

NOW = 1_700_000_000_000_000_001


def made(*pairs: tuple[int, int]):  # type: ignore[no-untyped-def]
    return merge(*(np.array([p[i] + NOW for p in pairs], dtype=np.int64) for i in (0, 1)))


def pairs(a) -> list[tuple[int, int]]:  # type: ignore[no-untyped-def]
    return [(s - NOW, e - NOW) for s, e in zip(a.start.tolist(), a.end.tolist(), strict=True)]


def test_touching_intervals_join_and_empty_ones_vanish() -> None:
    assert pairs(made((5, 7), (0, 3), (3, 5), (20, 20), (30, 29), (7, 8))) == [(0, 8)]


def test_nested_and_overlapping_intervals_are_one() -> None:
    assert pairs(made((0, 100), (10, 20), (90, 120), (130, 131))) == [(0, 120), (130, 131)]


def test_lengths_are_exact_to_the_nanosecond_at_calendar_times() -> None:
    assert made((0, 1), (2, 3), (4, 1_000_000_007)).measure == 2 + 1_000_000_003


def test_nothing_in_gives_nothing_out() -> None:
    a = made((0, 5))
    assert len(made()) == 0
    assert pairs(union(EMPTY, a)) == [(0, 5)]
    assert len(intersection(a, EMPTY)) == 0
    assert difference(a, EMPTY) is a
    assert EMPTY.within(np.array([0]), np.array([9])).tolist() == [0]
    assert EMPTY.holds(np.array([0])).tolist() == [False]


def test_set_operations() -> None:
    a, b = made((0, 40), (60, 80)), made((30, 70))
    assert pairs(intersection(a, b)) == [(30, 40), (60, 70)]
    assert pairs(difference(a, b)) == [(0, 30), (70, 80)]
    assert pairs(complement(a, NOW - 10, NOW + 90)) == [(-10, 0), (40, 60), (80, 90)]


def test_time_in_windows_is_clipped_at_their_edges() -> None:
    a = made((0, 40), (60, 80))
    low = np.array([-5, 10, 40, 70], dtype=np.int64) + NOW
    high = np.array([5, 65, 60, 200], dtype=np.int64) + NOW
    assert a.within(low, high).tolist() == [5, 35, 0, 10]
