"""Impossible times, stacks of begins and ends, and files of several ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.ingest.fused import ranks_of_pids
from rankscope.ingest.pairing import paired
from rankscope.ingest.validity import HOUR_NS, LimitsFinder, Times
from rankscope.store.units import INT64_MAX

S = 1_000_000_000


def spans(*pairs: tuple[int, int]) -> Times:
    """Events with an extent, as (start, duration)."""
    n = len(pairs)
    yes, no = np.ones(n, np.bool_), np.zeros(n, np.bool_)
    start = np.array([s for s, _ in pairs], np.int64)
    dur = np.array([d for _, d in pairs], np.int64)
    return Times(start, yes, dur, yes, no, yes)


def judged(*pairs: tuple[int, int], base_ns: int = 0) -> tuple[list[bool], list[bool]]:
    """Which starts and which durations are impossible, given only these events."""
    times = spans(*pairs)
    finder = LimitsFinder()
    finder.add(times)
    limits = finder.limits(base_ns)
    return limits.bad_ts(times).tolist(), limits.bad_duration(times).tolist()


@pytest.mark.parametrize(("following", "is_bad"), [(S - 1, False), (S, True), (10**15, True)])
def test_a_zero_start_is_impossible_when_the_next_is_a_second_away(following: int, is_bad: bool) -> None:
    assert judged((0, 5), (following, 5))[0] == [is_bad, False]


def test_a_lone_zero_start_is_a_start() -> None:
    assert judged((0, 5))[0] == [False]


def test_a_duration_longer_than_everything_else_plus_an_hour_is_impossible() -> None:
    others = ((5 * S, S), (14 * S, S))  # span 10 s
    assert judged(*others, (5 * S, 10 * S + HOUR_NS))[1] == [False, False, False]
    assert judged(*others, (5 * S, 10 * S + HOUR_NS + 1))[1] == [False, False, True]


def test_garbage_cannot_vouch_for_garbage() -> None:
    assert judged((0, S), (5, 8 * 10**18), (6, 8 * 10**18))[1] == [False, True, True]


def test_a_long_run_supports_long_events() -> None:
    points = [(i * HOUR_NS, S) for i in range(10)]
    assert not any(judged(*points, (0, 9 * HOUR_NS))[1])


def test_an_end_beyond_int64_is_impossible_also_through_the_base() -> None:
    assert judged((INT64_MAX - 10, 11), (INT64_MAX - 10, 10))[1] == [True, False]
    assert judged((0, 5), (100, 5), base_ns=INT64_MAX - 102)[1] == [False, True]
    assert judged((5, 1), (100, 0), base_ns=INT64_MAX - 50)[0] == [False, True]


def brute_pairs(threads: list[int], starts: list[int], begins: list[bool]) -> set[tuple[int, int]]:
    stacks: dict[int, list[int]] = {}
    found = set()
    for i in sorted(range(len(starts)), key=lambda i: (starts[i], i)):
        stack = stacks.setdefault(threads[i], [])
        if begins[i]:
            stack.append(i)
        elif stack:
            found.add((stack.pop(), i))
    return found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans()), max_size=40))
def test_pairs_are_those_of_a_stack_per_thread(events: list[tuple[int, int, bool]]) -> None:
    threads, starts, begins = ([e[k] for e in events] for k in range(3))
    pairs = paired(np.array(threads, np.int64), np.array(starts, np.int64), np.array(begins, np.bool_))
    expected = brute_pairs(threads, starts, begins)
    assert set(zip(pairs.begin.tolist(), pairs.end.tolist(), strict=True)) == expected
    matched = {i for pair in expected for i in pair}
    left = set(range(len(events))) - matched
    assert set(pairs.open_begin.tolist()) == {i for i in left if begins[i]}
    assert set(pairs.lone_end.tolist()) == {i for i in left if not begins[i]}


def test_fused_ranks_follow_labels_and_the_nearest_smaller_process() -> None:
    labels = {"0": ["rank 0 GPU"], "100000": ["rank 1 GPU"]}
    ranks, of, quality = ranks_of_pids(labels, ["0", "100", "100000", "100100", "Spans"])
    assert ranks == (0, 1)
    assert of == {"0": 0, "100": 0, "100000": 1, "100100": 1, "Spans": 0}
    assert [(q.code, q.count) for q in quality] == [("rank_assumed", 3)]


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"1": ["python"], "0": ["GPU 0"], "2": ["GPU 1"]},
        {"10": ["python 0"], "11": ["python 1"]},
        {"0": ["Rank 0 training loop process"], "1": ["Rank 0 data loader"]},  # composer: one rank's own file
        {"0": ["rank 0"], "99": ["rank 1"]},  # 99 has no events of its own
        {"0": ["ranking 0"], "1": ["frank 1"]},
    ],
)
def test_files_of_one_rank_are_not_taken_apart(labels: dict[str, list[str]]) -> None:
    assert ranks_of_pids(labels, ["0", "1", "2", "10", "11"]) == ((), {}, [])
