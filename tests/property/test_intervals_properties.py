"""I1 to I5 of the methodology, and the interval algebra against sets of ticks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rankscope.analysis.intervals import (
    Intervals,
    complement,
    difference,
    intersection,
    merge,
    split_at,
    union,
)

SHIFT = 1_700_000_000_000_000_000
PAIRS = st.lists(st.tuples(st.integers(-30, 30), st.integers(-3, 12)), max_size=14)


def made(pairs: list[tuple[int, int]], shift: int = 0) -> Intervals:
    start = np.array([s + shift for s, _ in pairs], dtype=np.int64)
    return merge(start, start + np.array([d for _, d in pairs], dtype=np.int64))


def ticks(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for s, d in pairs for t in range(s, s + d)}


def held(a: Intervals) -> set[int]:
    return {t for s, e in zip(a.start.tolist(), a.end.tolist(), strict=True) for t in range(s, e)}


def is_union(a: Intervals) -> bool:
    return bool((a.end > a.start).all() and (a.start[1:] > a.end[:-1]).all())


@given(PAIRS, PAIRS)
def test_every_operation_holds_exactly_the_right_ticks(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    x, y = made(a), made(b)
    assert held(x) == ticks(a)
    for result, wanted in (
        (union(x, y), ticks(a) | ticks(b)),
        (intersection(x, y), ticks(a) & ticks(b)),
        (difference(x, y), ticks(a) - ticks(b)),
        (complement(x, -40, 40), set(range(-40, 40)) - ticks(a)),
        (complement(x, 0, 5), set(range(5)) - ticks(a)),
    ):
        assert held(result) == wanted
        assert is_union(result)
        assert result.measure == len(wanted)


@given(PAIRS, PAIRS)
def test_i1_union_is_the_sum_less_the_intersection(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    x, y = made(a), made(b)
    assert union(x, y).measure == x.measure + y.measure - intersection(x, y).measure


@given(PAIRS, PAIRS)
def test_i2_overlap_is_symmetric(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    assert held(intersection(made(a), made(b))) == held(intersection(made(b), made(a)))


@given(PAIRS)
def test_i3_a_union_is_no_longer_than_the_sum_of_durations(a: list[tuple[int, int]]) -> None:
    assert made(a).measure <= sum(max(d, 0) for _, d in a)


@given(PAIRS, PAIRS)
def test_i4_what_is_left_and_what_is_shared_make_the_whole(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    x, y = made(a), made(b)
    assert difference(x, y).measure + intersection(x, y).measure == x.measure


@given(PAIRS, st.randoms(use_true_random=False))
def test_i5_merging_is_idempotent_and_order_free(a: list[tuple[int, int]], random: object) -> None:
    x = made(a)
    again = merge(x.start, x.end)
    assert (again.start.tolist(), again.end.tolist()) == (x.start.tolist(), x.end.tolist())
    other = list(a)
    random.shuffle(other)  # type: ignore[attr-defined]
    assert held(made(other)) == held(x)


@given(PAIRS, st.lists(st.integers(-45, 45), min_size=2, max_size=8))
def test_windows_are_read_off_the_covered_length(a: list[tuple[int, int]], edges: list[int]) -> None:
    x = made(a, SHIFT)
    low = np.array(sorted(edges[::2]), dtype=np.int64)
    high = low + 7
    inside = [len(ticks(a) & set(range(s, s + 7))) for s in low.tolist()]
    assert x.within(low + SHIFT, high + SHIFT).tolist() == inside
    assert x.holds(low + SHIFT).tolist() == [t in ticks(a) for t in low.tolist()]


@given(PAIRS, st.lists(st.integers(-40, 40), max_size=10, unique=True))
def test_cutting_keeps_every_tick_in_its_interval(a: list[tuple[int, int]], cuts: list[int]) -> None:
    lasting = [(s, s + d) for s, d in a if d > 0]
    start, end = (np.array([p[i] for p in lasting], dtype=np.int64) for i in (0, 1))
    row, begins, ends = split_at(start, end, np.array(sorted(cuts), dtype=np.int64))
    for i, (s, e) in enumerate(lasting):
        pieces = [
            (b, f) for r, b, f in zip(row.tolist(), begins.tolist(), ends.tolist(), strict=True) if r == i
        ]
        inner = [c for c in sorted(cuts) if s < c < e]
        assert pieces == list(zip([s, *inner], [*inner, e], strict=True))
