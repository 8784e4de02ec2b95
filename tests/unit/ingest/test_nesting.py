from __future__ import annotations

import numpy as np
import pytest

from rankscope.ingest.nesting import enclosing, parents, ranges, self_times


def _ranges(rows: list[tuple[int, int, int]], tie: list[int] | None = None):  # type: ignore[no-untyped-def]
    thread, start, end = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    return ranges(thread.astype(np.int32), start, end, None if tie is None else np.array(tie, np.int64))


def test_a_child_that_ends_one_microsecond_late_keeps_its_parent_and_no_self_time_is_negative() -> None:
    among = _ranges([(0, 100_000, 200_000), (0, 110_000, 150_000), (0, 120_000, 151_000)])
    assert parents(among).tolist() == [-1, 0, 1]
    assert self_times(among).tolist() == [60_000, 10_000, 31_000]


def test_a_range_that_ends_well_after_another_is_not_its_child() -> None:
    among = _ranges([(0, 0, 10_000), (0, 5_000, 15_000)])
    assert parents(among).tolist() == [-1, -1]
    assert self_times(among).tolist() == [10_000, 10_000]


def test_ranges_of_other_threads_never_enclose() -> None:
    among = _ranges([(0, 0, 100), (1, 10, 20)])
    assert parents(among).tolist() == [-1, -1]
    assert enclosing(among, np.array([1, 0, 2], np.int32), np.array([50, 15, 15])).tolist() == [-1, 0, -1]


def test_equal_ranges_nest_by_their_tie() -> None:
    among = _ranges([(0, 0, 10), (0, 0, 10)], tie=[8, 7])
    assert enclosing(among, np.zeros(1, np.int32), np.array([5])).tolist() == [0]
    assert parents(among).tolist() == [1, -1]


def test_no_ranges_enclose_nothing() -> None:
    among = ranges(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
    assert enclosing(among, np.zeros(2, np.int32), np.array([1, 2])).tolist() == [-1, -1]
    assert parents(among).tolist() == []
    assert self_times(among).tolist() == []


def _innermost(rows: list[tuple[int, int, int]], thread: int, at: int) -> tuple[int, int, int] | None:
    holding = [r for r in rows if r[0] == thread and r[1] <= at < r[2]]
    return max(holding, key=lambda r: (r[1], -r[2]), default=None)


@pytest.mark.parametrize("seed", range(30))
def test_the_innermost_range_is_that_of_a_plain_search(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(60):
        start = int(random.integers(0, 100))
        rows.append((int(random.integers(0, 3)), start, start + int(random.integers(0, 40))))
    among = _ranges(rows)
    points = [(int(random.integers(0, 4)), int(random.integers(-5, 150))) for _ in range(200)]
    thread, at = np.array(points).T
    found = enclosing(among, thread.astype(np.int32), at).tolist()
    for (t, p), row in zip(points, found, strict=True):
        assert (None if row < 0 else rows[row]) == _innermost(rows, t, p)


@pytest.mark.parametrize("seed", range(20))
def test_parents_are_those_of_a_plain_search(seed: int) -> None:
    random = np.random.default_rng(100 + seed)
    starts = random.choice(200, 40, replace=False)
    rows = [(int(random.integers(0, 2)), int(s), int(s + random.integers(1, 60))) for s in starts]
    tolerance = 3
    expected = []
    for t, s, e in rows:
        holding = [
            (start, i)
            for i, (thread, start, end) in enumerate(rows)
            if thread == t and start < s < end and e - tolerance <= end
        ]
        expected.append(max(holding)[1] if holding else -1)
    assert parents(_ranges(rows), tolerance).tolist() == expected
