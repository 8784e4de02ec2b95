"""Which range contains which: enclosing ranges by thread and time, and self times.

Ranges of one thread are sorted by start, longer first. `previous_greater` points from each range to the
nearest earlier one that ends later; every range between the two has ended before, so a chase along these
pointers visits candidates from the innermost outwards. Both the pointers and the chase advance all rows at
once: the number of rounds is about the nesting depth, not the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import I32, I64

TRUNCATION_NS = 1_000
"""A child may seem to end up to 1 us after its parent: older traces cut both to whole microseconds."""


@dataclass(frozen=True)
class Ranges:
    """Ranges sorted by (thread, start, longest first, tie), ready for look-ups.

    Attributes:
        rows: the caller's row of each sorted range.
        thread, start, end: of each sorted range.
        outer: sorted position of the nearest earlier range of the thread that ends later, else -1.
    """

    rows: I64
    thread: I32
    start: I64
    end: I64
    outer: I64


def ranges(thread: I32, start: I64, end: I64, tie: I64 | None = None) -> Ranges:
    """Sort ranges for look-ups.

    Args:
        thread: code of the thread of each range.
        start: start of each range, ns.
        end: end of each range, ns, at least its start.
        tie: order among ranges with the same thread, start and end, outer first (an id that grows with the
            time of the call, such as External id).
    """
    keys = (tie if tie is not None else np.zeros(len(start), np.int64), -end, start, thread)
    rows = np.lexsort(keys).astype(np.int64)
    thread, start, end = thread[rows], start[rows], end[rows]
    return Ranges(rows, thread, start, end, _previous_greater(thread, end))


def _previous_greater(thread: I32, end: I64) -> I64:
    outer = np.arange(-1, len(end) - 1, dtype=np.int64)
    moving = np.flatnonzero(outer >= 0)
    while len(moving):
        at = outer[moving]
        same = thread[at] == thread[moving]
        outer[moving[~same]] = -1
        moving, at = moving[same], at[same]
        past = end[at] <= end[moving]
        moving = moving[past]
        outer[moving] = outer[at[past]]
        moving = moving[outer[moving] >= 0]
    return outer


def enclosing(among: Ranges, thread: I32, at: I64) -> I64:
    """The innermost range of the same thread that contains each instant: start <= at < end.

    Innermost is the one that started last (equal starts: the shorter, then the higher tie).

    Returns:
        The caller's row of that range for each instant, -1 where there is none.
    """
    place = _last_started(among, thread, at)
    chasing = np.flatnonzero(place >= 0)
    while len(chasing):
        here = place[chasing]
        wrong = among.thread[here] != thread[chasing]
        place[chasing[wrong]] = -1
        ended = ~wrong & (among.end[here] <= at[chasing])
        chasing, here = chasing[ended], here[ended]
        place[chasing] = among.outer[here]
        chasing = chasing[place[chasing] >= 0]
    return _rows(among, place)


def _last_started(among: Ranges, thread: I32, at: I64) -> I64:
    """Sorted position of the last range of the thread that starts at or before each instant, else -1."""
    place = np.full(len(at), -1, dtype=np.int64)
    for code in np.unique(thread):
        first, last = np.searchsorted(among.thread, [code, code + 1])
        mine = np.flatnonzero(thread == code)
        found = np.searchsorted(among.start[first:last], at[mine], side="right") - 1
        place[mine] = np.where(found >= 0, found + first, -1)
    return place


def parents(among: Ranges, tolerance_ns: int = TRUNCATION_NS) -> I64:
    """The innermost other range that contains each range: it starts no later, and ends no more than
    `tolerance_ns` before the range's end.

    Returns:
        For each of the caller's rows, the row of its parent, -1 for outermost ranges.
    """
    place = np.arange(-1, len(among.start) - 1, dtype=np.int64)
    chasing = np.flatnonzero(place >= 0)
    while len(chasing):
        here = place[chasing]
        other = among.thread[here] != among.thread[chasing]
        place[chasing[other]] = -1
        late = among.end[chasing] - tolerance_ns > among.end[here]
        over = among.end[here] <= among.start[chasing]
        leave = ~other & (late | over)
        chasing, here = chasing[leave], here[leave]
        place[chasing] = among.outer[here]
        chasing = chasing[place[chasing] >= 0]
    result = np.full(len(place), -1, dtype=np.int64)
    result[among.rows] = _rows(among, place)
    return result


def self_times(among: Ranges, tolerance_ns: int = TRUNCATION_NS) -> I64:
    """Time of each range that none of its children covers, ns, never negative.

    self = duration - sum of the children's durations, each child clipped to its parent.

    Returns:
        One value per row of the caller.
    """
    up = parents(among, tolerance_ns)
    start, end = np.empty_like(among.start), np.empty_like(among.end)
    start[among.rows], end[among.rows] = among.start, among.end
    children = np.flatnonzero(up >= 0)
    covered = np.zeros(len(up), dtype=np.int64)
    clipped = np.minimum(end[children], end[up[children]]) - start[children]
    np.add.at(covered, up[children], np.maximum(clipped, 0))
    own: I64 = np.maximum(end - start - covered, 0)
    return own


def _rows(among: Ranges, place: I64) -> I64:
    if not len(among.rows):
        return np.full(len(place), -1, dtype=np.int64)
    return np.where(place >= 0, among.rows[np.maximum(place, 0)], -1)
