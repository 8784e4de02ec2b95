"""Exposed communication that certainly transfers, against a walk over ticks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rankscope.analysis.exposed import solo_transfer

CALLS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10), st.booleans()), max_size=8)


@given(CALLS)
def test_the_owner_is_the_call_that_ends_last(calls: list[tuple[int, int, bool]]) -> None:
    start = np.array([s for s, _, _ in calls], dtype=np.int64)
    end = start + np.array([d for _, d, _ in calls], dtype=np.int64)
    found = solo_transfer(start, end, np.array([alone for *_, alone in calls], dtype=np.bool_))
    wanted = []
    for t in range(40):
        running = [(s + d, alone) for s, d, alone in calls if s <= t < s + d]
        last = max((e for e, _ in running), default=None)
        wanted.append(bool(running) and all(alone for e, alone in running if e == last))
    assert found.holds(np.arange(40)).tolist() == wanted
