"""The longest idle stretches, with what stood around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rankscope.store.schema import CAUSES, TEXT, Timeline

from .breakdown import FOLDED
from .host_states import CAPTURE, RUNTIME
from .intervals import I64, Intervals, merge
from .tables import LABELS, TIMELINE, Key, flags, int_array, ints, need, numbers, rows_by, text, threads

TOP = 20
SHARED_PART = 2
"""Another rank shares a stretch when it is idle for at least one part in so many of it."""

_FRAME_CATEGORIES = ("python_function",)
_OPERATOR_CATEGORIES = ("cpu_op", "user_annotation")


@dataclass(frozen=True)
class Stretches:
    """Idle stretches clipped to windows, longest first.

    Attributes:
        window: row of the window.
        start, end: the clipped stretch.
        gap_start, gap_end: the whole stretch on the device.
        rows: idle segments of each.
    """

    window: I64
    start: I64
    end: I64
    gap_start: I64
    gap_end: I64
    rows: list[I64]


def gaps(
    idle: pa.Table,
    activities: pa.Table,
    host_events: pa.Table,
    windows: pa.Table,
    *,
    top: int = TOP,
) -> pa.Table:
    """The longest idle stretches of the devices, longest first.

    A stretch is a maximal time without activity, clipped to the windows: one that spans a step boundary is a row
    in each step, and `gap_start_ns`, `gap_end_ns` give the whole. `cause` is the cause of most of it (ties: the
    earlier in the order of the breakdown's columns); `*_ns` split it by all causes and sum to `dur_ns`.
    `host_frame` is what the issuing thread was in at the middle of the longest piece of that cause: the innermost
    Python frame, else the innermost operator, annotation or call; null where no launch is known. `on_ranks` counts
    the ranks of the world idle for at least half of the stretch inside their windows of the same step and capture,
    itself among them, by the clocks as recorded (not corrected between hosts).

    Args:
        idle: what `idle_segments` returned.
        activities: ACTIVITIES rows of the same ranks.
        host_events: EVENTS rows of the same ranks, Python frames among them where they were recorded.
        windows: STEPS rows in use; those of host timelines are left out.
        top: how many rows.

    Returns:
        Identity, `world, window, step, phase, start_ns, end_ns, dur_ns, cause, host_frame, previous_kernel,
        next_kernel, on_ranks, gap_start_ns, gap_end_ns`, and a column per cause.

    Raises:
        MissingColumn: a needed column is absent.

    Cost: O(n log n) for the stretches, O(top x ranks) for their surroundings.
    Source: this project.
    """
    need(
        idle,
        [*TIMELINE, "start_ns", "end_ns", "cause", "gap_start_ns", "gap_end_ns", "launch_tid"],
        "idle segments",
    )
    windows = windows.filter(pa.array(text(windows, "timeline").is_one_of(Timeline.DEVICE)))
    return _described(_longest(idle, windows, top), idle, activities, windows, host_events)


def _described(
    found: Stretches, idle: pa.Table, activities: pa.Table, windows: pa.Table, events: pa.Table
) -> pa.Table:
    columns: dict[str, Any] = {c: windows.column(c).take(pa.array(found.window)) for c in LABELS}
    columns |= {"start_ns": int_array(found.start), "end_ns": int_array(found.end)}
    columns["dur_ns"] = int_array(found.end - found.start)
    split = _by_cause(idle, found)
    largest = [max(CAUSES, key=lambda c: (row[c], -CAUSES.index(c))) for row in split]
    columns["cause"] = pa.array([c.removesuffix("_ns") for c in largest], pa.string()).cast(TEXT)
    columns["host_frame"] = _host_frames(idle, found, largest, events)
    columns["previous_kernel"], columns["next_kernel"] = _neighbors(activities, windows, found)
    columns["on_ranks"] = _on_ranks(idle, windows, found)
    columns |= {"gap_start_ns": int_array(found.gap_start), "gap_end_ns": int_array(found.gap_end)}
    columns |= {c: pa.array([row[c] for row in split], pa.int64()) for c in CAUSES}
    return pa.table(columns)


def _longest(idle: pa.Table, windows: pa.Table, top: int) -> Stretches:
    """The stretches, clipped to windows; ties by timeline and time."""
    gap_start, gap_end = numbers(idle, "gap_start_ns"), numbers(idle, "gap_end_ns")
    start, end = numbers(windows, "start_ns"), numbers(windows, "end_ns")
    idle_rows = rows_by(idle)
    pieces: list[tuple[I64, I64, I64]] = [(np.empty(0, np.int64),) * 3]
    for key, at in rows_by(windows).items():
        rows = idle_rows.get(key, np.empty(0, np.int64))
        rows = rows[np.argsort(gap_start[rows], kind="stable")]
        rows = rows[np.flatnonzero(np.diff(gap_start[rows], prepend=np.iinfo(np.int64).min))]
        low = np.searchsorted(gap_end[rows], start[at], side="right")
        high = np.searchsorted(gap_start[rows], end[at], side="left")
        n = np.maximum(high - low, 0)
        position = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
        gap, window = rows[np.repeat(low, n) + position], np.repeat(at, n)
        length = np.minimum(gap_end[gap], end[window]) - np.maximum(gap_start[gap], start[window])
        best = np.argsort(-length, kind="stable")[:top]
        pieces.append((gap[best], window[best], length[best]))
    gap, window, length = (np.concatenate([p[i] for p in pieces]) for i in range(3))
    best = np.argsort(-length, kind="stable")[:top]
    gap, window = gap[best], window[best]
    begins = np.maximum(gap_start[gap], start[window])
    ends = np.minimum(gap_end[gap], end[window])
    members = _members(idle, windows, gap, window)
    return Stretches(window, begins, ends, gap_start[gap], gap_end[gap], members)


def _members(idle: pa.Table, windows: pa.Table, gap: I64, window: I64) -> list[I64]:
    """Segments of each stretch that lie in its window, in order of time."""
    start, end = numbers(idle, "start_ns"), numbers(idle, "end_ns")
    gap_start = numbers(idle, "gap_start_ns")
    low, high = numbers(windows, "start_ns"), numbers(windows, "end_ns")
    idle_rows, keys = rows_by(idle), _keys(idle, gap)
    found = []
    for key, g, w in zip(keys, gap.tolist(), window.tolist(), strict=True):
        rows = idle_rows[key]
        mine = rows[(gap_start[rows] == gap_start[g]) & (start[rows] < high[w]) & (end[rows] > low[w])]
        found.append(mine[np.argsort(start[mine], kind="stable")])
    return found


def _keys(table: pa.Table, rows: I64, columns: tuple[str, ...] = TIMELINE) -> list[Key]:
    values = [table.column(c).take(pa.array(rows)).to_pylist() for c in columns]
    return list(zip(*values, strict=True))


def _by_cause(idle: pa.Table, found: Stretches) -> list[dict[str, int]]:
    start, end, cause = numbers(idle, "start_ns"), numbers(idle, "end_ns"), text(idle, "cause")
    split = []
    for i, rows in enumerate(found.rows):
        row = dict.fromkeys(CAUSES, 0)
        for r in rows.tolist():
            column = f"{cause.values[int(cause.codes[r])]}_ns"
            row[FOLDED.get(column, column)] += int(min(end[r], found.end[i]) - max(start[r], found.start[i]))
        split.append(row)
    return split


def _host_frames(idle: pa.Table, found: Stretches, largest: list[str], events: pa.Table) -> pa.Array:
    """Name of what the issuing thread was in, at the middle of the longest piece of the largest cause."""
    start, end, cause = numbers(idle, "start_ns"), numbers(idle, "end_ns"), text(idle, "cause")
    issuer = text(idle, "launch_tid")
    frames = _Frames(events)
    names: list[str | None] = []
    for i, rows in enumerate(found.rows):
        columns = [f"{cause.values[c]}_ns" for c in cause.codes[rows].tolist()]
        pieces = [r for r, c in zip(rows.tolist(), columns, strict=True) if FOLDED.get(c, c) == largest[i]]
        begins = np.maximum(start[pieces], found.start[i])
        ends = np.minimum(end[pieces], found.end[i])
        best = int(np.argmax(ends - begins))
        code = int(issuer.codes[pieces[best]])
        instant = int(begins[best] + (ends[best] - begins[best]) // 2)
        capture = _keys(idle, rows[:1], CAPTURE)[0]
        names.append(frames.innermost(capture, issuer.values[code], instant) if code >= 0 else None)
    return pa.array(names, pa.string())


class _Frames:
    """Host ranges by capture and thread, looked at a few times only."""

    def __init__(self, events: pa.Table) -> None:
        self.thread, self.name, cat = threads(events), text(events, "name"), text(events, "cat")
        start, known = ints(events, "start_ns")
        dur, has_dur = ints(events, "dur_ns")
        self.start, self.end = start, start + np.where(has_dur, dur, 0)
        self.sound = known & has_dur & (dur > 0) & flags(events, "valid", default=True)
        self.is_frame = cat.is_one_of(*_FRAME_CATEGORIES)
        is_call = cat.where([bool(RUNTIME.match(c)) for c in cat.values])
        self.is_operator = cat.is_one_of(*_OPERATOR_CATEGORIES) | is_call
        self.captures = rows_by(events, CAPTURE)

    def innermost(self, capture: Key, thread: str, instant: int) -> str | None:
        """Name of what the thread was in: the innermost Python frame, else the innermost operator or call."""
        rows = self.captures.get(capture)
        if rows is None or thread not in self.thread.values:
            return None
        mine = rows[(self.thread.codes[rows] == self.thread.values.index(thread)) & self.sound[rows]]
        mine = mine[(self.start[mine] <= instant) & (self.end[mine] > instant)]
        return self._begun_last(mine[self.is_frame[mine]]) or self._begun_last(mine[self.is_operator[mine]])

    def _begun_last(self, mine: I64) -> str | None:
        """Name of the range that begins last (ties: ends first); None where there is none or it has no name."""
        if not len(mine):
            return None
        last = mine[np.lexsort((self.name.codes[mine], -self.end[mine], self.start[mine]))[-1]]
        code = int(self.name.codes[last])
        return self.name.values[code] if code >= 0 else None


def _neighbors(activities: pa.Table, windows: pa.Table, found: Stretches) -> tuple[pa.Array, pa.Array]:
    """Names of the activities that end where the stretch begins, and begin where it ends (ties: lowest stream,
    then correlation, then name); null where there is none.
    """
    start, end, name = (
        numbers(activities, "start_ns"),
        numbers(activities, "end_ns"),
        text(activities, "name"),
    )
    stream, correlation = numbers(activities, "stream"), numbers(activities, "correlation")
    lasting = flags(activities, "valid", default=True) & (end > start)
    rows_of = rows_by(activities)
    before: list[str | None] = []
    after: list[str | None] = []
    for i, key in enumerate(_keys(windows, found.window)):
        rows = rows_of.get(key, np.empty(0, np.int64))
        rows = rows[lasting[rows]]
        for out, side, edge in ((before, end, found.gap_start[i]), (after, start, found.gap_end[i])):
            mine = rows[side[rows] == edge]
            mine = mine[np.lexsort((name.codes[mine], correlation[mine], stream[mine]))]
            code = int(name.codes[mine[0]]) if len(mine) else -1
            out.append(name.values[code] if code >= 0 else None)
    return pa.array(before, pa.string()), pa.array(after, pa.string())


def _on_ranks(idle: pa.Table, windows: pa.Table, found: Stretches) -> pa.Array:
    start, end = numbers(windows, "start_ns"), numbers(windows, "end_ns")
    times: dict[Key, Intervals] = {}
    begins, ends = numbers(idle, "start_ns"), numbers(idle, "end_ns")
    peers = rows_by(windows, ("world", "window", "step"))
    keys = _keys(windows, np.arange(windows.num_rows))
    idle_rows = rows_by(idle)
    counts = []
    for i, key in enumerate(_keys(windows, found.window, ("world", "window", "step"))):
        low, high = int(found.start[i]), int(found.end[i])
        ranks = set()
        for w in peers[key].tolist():
            if keys[w] not in times:
                rows = idle_rows.get(keys[w], np.empty(0, np.int64))
                times[keys[w]] = merge(begins[rows], ends[rows])
            edges = np.array([max(low, int(start[w])), max(low, min(high, int(end[w])))])
            before, until = times[keys[w]].covered(np.maximum.accumulate(edges)).tolist()
            if SHARED_PART * (until - before) >= high - low:
                ranks.add(keys[w][1])
        counts.append(len(ranks))
    return pa.array(counts, pa.int64())
