"""Half-open time intervals in exact int64 nanoseconds: the only place where unions are formed.

A set of intervals is sorted once by start and once by end, separately: the union breaks exactly where the
next start lies after the end of equal rank. Time inside a window is read off the cumulative covered length,
so splitting by many windows costs a binary search per edge, not another sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LARGEST = np.iinfo(np.int64).max
SMALLEST = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Intervals:
    """Disjoint half-open intervals of positive length, ascending.

    Attributes:
        start: first ns of each.
        end: first ns after each.
    """

    start: I64
    end: I64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def measure(self) -> int:
        """Total length in ns."""
        return int(self._before[-1])

    @cached_property
    def _before(self) -> I64:
        """Length covered by the first i intervals."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.end - self.start)])

    def covered(self, edges: I64) -> I64:
        """Length covered before each edge. Cost: O(edges x log n)."""
        if not len(self):
            return np.zeros(len(edges), dtype=np.int64)
        at = np.searchsorted(self.start, edges, side="right")
        beyond = np.maximum(self.end[np.maximum(at - 1, 0)] - edges, 0)
        return np.asarray(self._before[at] - np.where(at > 0, beyond, 0), dtype=np.int64)

    def within(self, start: I64, end: I64) -> I64:
        """Length covered inside each window [start, end)."""
        return self.covered(end) - self.covered(start)

    def holds(self, instants: I64) -> Flags:
        """Whether each instant lies inside."""
        if not len(self):
            return np.zeros(len(instants), dtype=np.bool_)
        at = np.searchsorted(self.start, instants, side="right") - 1
        return np.asarray((at >= 0) & (instants < self.end[np.maximum(at, 0)]), dtype=np.bool_)


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
"""No time at all."""


def merge(start: I64, end: I64) -> Intervals:
    """The union of any intervals: sorted, disjoint, touching ones joined.

    Args:
        start: first ns of each, any order.
        end: first ns after each; intervals with `end <= start` have no length and are left out.

    Returns:
        The union. Its measure never exceeds the sum of the lengths.

    Cost: two sorts of n int64, no argsort; about two further arrays of n.
    Source: this project; the two-sort form of the sweep over endpoints.

    Example:
        >>> merge(np.array([5, 0, 3]), np.array([9, 3, 4])).start.tolist()
        [0, 5]
    """
    lasting = end > start
    if not lasting.all():
        start, end = start[lasting], end[lasting]
    if not len(start):
        return EMPTY
    starts, ends = np.sort(start), np.sort(end)
    breaks = np.flatnonzero(starts[1:] > ends[:-1])
    first = np.concatenate([np.zeros(1, np.int64), breaks + 1])
    last = np.concatenate([breaks, np.full(1, len(ends) - 1)])
    return Intervals(starts[first], ends[last])


def union(a: Intervals, b: Intervals) -> Intervals:
    """Time in either."""
    if not len(a) or not len(b):
        return a if len(a) else b
    return merge(np.concatenate([a.start, b.start]), np.concatenate([a.end, b.end]))


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """Time in both; each must be a union (disjoint, not touching).

    With at most two intervals open at once, both are open from the (i+2)-th start to the i-th end.
    """
    if not len(a) or not len(b):
        return EMPTY
    starts = np.sort(np.concatenate([a.start, b.start]))[1:]
    ends = np.sort(np.concatenate([a.end, b.end]))[:-1]
    both = starts < ends
    return Intervals(starts[both], ends[both])


def complement(a: Intervals, start: int, end: int) -> Intervals:
    """Time of [start, end) that is not in `a`."""
    low, high = np.full(1, start, np.int64), np.full(1, end, np.int64)
    starts = np.concatenate([low, np.clip(a.end, start, end)])
    ends = np.concatenate([np.clip(a.start, start, end), high])
    lasting = ends > starts
    return Intervals(starts[lasting], ends[lasting])


def difference(a: Intervals, b: Intervals) -> Intervals:
    """Time in `a` and not in `b`; each must be a union."""
    if not len(a) or not len(b):
        return a
    return intersection(a, complement(b, int(a.start[0]), int(a.end[-1])))


def split_at(start: I64, end: I64, cuts: I64) -> tuple[I64, I64, I64]:
    """Cut intervals of positive length at ascending instants.

    Args:
        start: first ns of each.
        end: first ns after each.
        cuts: ascending instants; those inside an interval divide it.

    Returns:
        For every piece, in order of the intervals and of time: its interval's row, its start, its end.
    """
    low = np.searchsorted(cuts, start, side="right")
    n = np.searchsorted(cuts, end, side="left") - low + 1
    row = np.repeat(np.arange(len(start)), n)
    first = np.repeat(np.cumsum(n) - n, n)
    position = np.arange(len(row)) - first
    cut = np.concatenate([cuts, np.zeros(1, np.int64)])
    at = low[row] + position
    begins = np.where(position == 0, start[row], cut[at - 1])
    ends = np.where(position == n[row] - 1, end[row], cut[at])
    return row, begins, ends
