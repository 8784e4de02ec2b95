"""Why a device was idle: every stretch without activity is cut into pieces of one cause each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .host_states import NO_THREAD, HostEvents, State, host_columns
from .intervals import I64, LARGEST, Flags, merge, split_at
from .tables import TIMELINE, Key, Text, flags, int_array, ints, need, numbers, rows_by, text
from .thresholds import KERNEL_GAP_NS, SYNC_SLACK_NS

CAUSE_NAMES = (
    "checkpoint", "data_loading", "allocator", "compile", "host_sync", "host_comm_wait", "gc", "host_dispatch",
    "host_other", "launch_latency", "kernel_gap", "graph_gap", "dependency_wait", "tail", "device_other",
    "unattributed",
)  # fmt: skip
"""Causes of idle segments; the first nine are the states of the issuing thread, in their order."""

_LATENCY, _KERNEL_GAP, _GRAPH, _DEPENDENCY, _TAIL, _DEVICE, _UNKNOWN = range(9, 16)
_NO_CAUSE = -1

Pieces = tuple[I64, I64, I64, I64]
"""Gap, start, end and cause (a position in `CAUSE_NAMES`) of pieces of idle time."""


@dataclass(frozen=True)
class Launched:
    """Device activities of all timelines as columns (valid ones take part)."""

    start: I64
    end: I64
    stream: I64
    correlation: I64
    graph_key: tuple[I64, I64]
    launch_start: I64
    has_launch: Flags
    thread: Text
    valid: Flags

    @classmethod
    def of(cls, activities: pa.Table) -> Launched:
        """The columns of an ACTIVITIES table."""
        start, known = ints(activities, "start_ns")
        end, has_end = ints(activities, "end_ns")
        launch_start, has_launch = ints(activities, "launch_start_ns")
        return cls(
            start=start,
            end=end,
            stream=numbers(activities, "stream"),
            correlation=numbers(activities, "correlation"),
            graph_key=_graph_key(activities),
            launch_start=launch_start,
            has_launch=has_launch,
            thread=text(activities, "launch_tid"),
            valid=flags(activities, "valid", default=True) & known & has_end,
        )

    def take(self, rows: I64) -> Launched:
        """The valid ones among the rows, in their order."""
        rows = rows[self.valid[rows]]
        kind, number = self.graph_key
        return Launched(
            start=self.start[rows],
            end=self.end[rows],
            stream=self.stream[rows],
            correlation=self.correlation[rows],
            graph_key=(kind[rows], number[rows]),
            launch_start=self.launch_start[rows],
            has_launch=self.has_launch[rows],
            thread=self.thread.at(rows),
            valid=self.valid[rows],
        )


@dataclass(frozen=True)
class Gaps:
    """The maximal idle stretches of one timeline, ascending.

    Attributes:
        start, end: the stretch.
        is_tail: no activity follows.
        launch: start of the launch call that ended it.
        thread: code of that call's thread.
        was_told: that activity's stream had been told to wait for another one.
        is_graph: everything that ended it belongs to a graph launch already running.
        has_launch: whether any activity that ended it has a launch record.
    """

    start: I64
    end: I64
    is_tail: Flags
    launch: I64
    thread: I64
    was_told: Flags
    is_graph: Flags
    has_launch: Flags

    @property
    def issued(self) -> I64:
        """Until when the host had not issued the work: the launch, held inside the stretch."""
        return np.clip(self.launch, self.start, self.end)


def idle_segments(
    activities: pa.Table,
    host_events: pa.Table,
    *,
    windows: pa.Table | None = None,
    kernel_gap_ns: int = KERNEL_GAP_NS,
    sync_slack_ns: int = SYNC_SLACK_NS,
) -> pa.Table:
    """Every idle instant of every device, with its cause.

    A stretch [a, b) without activity on any stream is maximal. K are the activities of positive length that start
    at b (if any has a launch record, only such), L their earliest launch (then lowest correlation), q = L in [a, b].

    1. All of K share the correlation of an activity that ended by a: `graph_gap`, the whole stretch.
    2. No launch record in K: `unattributed`, the whole stretch.
    3. [a, q), the host had not issued the work. At each instant the strongest of what L's thread did:
       checkpoint, data loading, allocator, compilation; then, if a blocking call began by a and ended no
       earlier than `sync_slack_ns` before a, `host_sync` for all the rest; else a host communication wait,
       garbage collection, dispatch (any operator or call), `host_other` (nothing recorded).
    4. [q, b): `launch_latency` when L > a. Otherwise the work was queued: `kernel_gap` up to `kernel_gap_ns`,
       `dependency_wait` when L's stream had just been told to wait for another one, else `device_other`.
    5. The last stretch, with no later activity: `tail`, whole.

    Args:
        activities: ACTIVITIES rows, any number of ranks and captures, any order; invalid ones are ignored.
        host_events: EVENTS rows of the same ranks with `HOST_COLUMNS`; `host_events()` selects them.
        windows: STEPS rows; a timeline's first stretch begins with its first window and the last ends with its
            last one (without them, at the first and last activity).
        kernel_gap_ns, sync_slack_ns: the limits of rules 4 and 3.

    Returns:
        `world, rank, window, device, start_ns, end_ns, cause` (a name of `CAUSE_NAMES`), `gap_start_ns,
        gap_end_ns` (the whole stretch), `launch_tid` (L's thread); sorted by timeline and time.

    Raises:
        MissingColumn: a needed column is absent.

    Cost: O(n log n); loops over timelines and threads only.
    Source: METHOD 1.3 of this project's design.
    """
    need(activities, [*TIMELINE, "start_ns", "end_ns", "launch_start_ns", "launch_tid"], "activities")
    acts, host = Launched.of(activities), host_columns(host_events)
    rows_of = rows_by(activities)
    bounds = {} if windows is None else _bounds(windows)
    slack, limit, parts = sync_slack_ns, kernel_gap_ns, []
    for key in sorted({*rows_of, *bounds}, key=_order):
        gaps = _gaps(acts.take(rows_of.get(key, np.empty(0, np.int64))), host, key, bounds.get(key))
        pieces = _segments(gaps, host, key, acts.thread, kernel_gap_ns=limit, sync_slack_ns=slack)
        parts.append((key, gaps, pieces))
    return _table(parts, acts.thread)


def _order(key: Key) -> tuple[tuple[bool, object], ...]:
    return tuple((v is None, "" if v is None else v) for v in key)


def _bounds(windows: pa.Table) -> dict[Key, tuple[int, int]]:
    start, end = numbers(windows, "start_ns"), numbers(windows, "end_ns")
    device = text(windows, "timeline").is_one_of("device")
    found = {k: r[device[r]] for k, r in rows_by(windows).items()}
    return {k: (int(start[r].min()), int(end[r].max())) for k, r in found.items() if len(r)}


def _graph_key(activities: pa.Table) -> tuple[I64, I64]:
    """What tells one launch call's activities from another's: two numbers, (0, 0) where unknown.

    The launch record where there is one, else the correlation. Correlation 0 without a launch record or a
    graph id is no identity: several generations of traces write it for "unknown".
    """
    launch, has_launch = ints(activities, "launch_id")
    correlation, known = ints(activities, "correlation")
    known &= (correlation != 0) | has_launch | (numbers(activities, "graph_id") != 0)
    return np.where(has_launch, 2, np.where(known, 1, 0)), np.where(has_launch, launch, correlation)


def _gaps(acts: Launched, host: HostEvents, key: Key, bounds: tuple[int, int] | None) -> Gaps:
    lasting = np.flatnonzero(acts.end > acts.start)
    busy = merge(acts.start[lasting], acts.end[lasting])
    if bounds is None:
        bounds = (int(acts.start.min()), int(acts.end.max())) if len(acts.start) else (0, 0)
    start = np.concatenate([np.full(1, bounds[0]), busy.end])
    end = np.concatenate([busy.start, np.full(1, bounds[1])])
    is_tail = np.arange(len(start)) == len(busy)
    kept = end > start
    start, end, is_tail = start[kept], end[kept], is_tail[kept]
    n = len(start)
    gaps = Gaps(
        start, end, is_tail, np.zeros(n, np.int64), np.full(n, -1, np.int64), np.zeros(n, np.bool_),
        np.zeros(n, np.bool_), np.zeros(n, np.bool_),
    )  # fmt: skip
    at = np.searchsorted(end, acts.start[lasting])
    ends_gap = (at < n) & ~np.append(is_tail, True)[np.minimum(at, n)]
    ends_gap[ends_gap] = end[at[ends_gap]] == acts.start[lasting[ends_gap]]
    if ends_gap.any():
        _look_ahead(gaps, acts, lasting[ends_gap], at[ends_gap], _told(acts, host, key))
    return gaps


def _look_ahead(gaps: Gaps, acts: Launched, after: I64, gap: I64, told: Flags) -> None:
    """Fill in what is known of the activities `after` each gap: its launch, thread, wait and graph."""
    order = np.lexsort(
        (
            acts.thread.codes[after],
            ~told[after],
            acts.correlation[after],
            acts.launch_start[after],
            ~acts.has_launch[after],
            gap,
        )
    )
    after, gap = after[order], gap[order]
    first = np.flatnonzero(np.diff(gap, prepend=-1))
    of, chosen = gap[first], after[first]
    gaps.launch[of] = acts.launch_start[chosen]
    gaps.thread[of] = acts.thread.codes[chosen]
    gaps.has_launch[of] = acts.has_launch[chosen]
    gaps.was_told[of] = told[chosen]
    is_running = _first_end(acts)[after] <= gaps.start[gap]
    counts = acts.has_launch[after] | ~gaps.has_launch[gap]
    gaps.is_graph[of] = np.logical_and.reduceat(is_running | ~counts, first)


def _first_end(acts: Launched) -> I64:
    """For each activity, the earliest end of any of its launch; the largest int64 where that is unknown."""
    kind, number = acts.graph_key
    order = np.lexsort((acts.end, number, kind))
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (np.diff(kind[order]) != 0) | (np.diff(number[order]) != 0)
    earliest = np.full(len(order), LARGEST)
    earliest[order] = acts.end[order[fresh]][np.cumsum(fresh) - 1]
    return np.where(kind > 0, earliest, LARGEST)


def _told(acts: Launched, host: HostEvents, key: Key) -> Flags:
    """Activities that were the first on their stream to be launched after it was told to wait."""
    told = np.zeros(len(acts.start), dtype=np.bool_)
    device, stream, when = host.stream_waits(key[:3])
    mine = device == (0 if key[3] is None else key[3])
    for number in np.unique(stream[mine]).tolist():
        queue = np.flatnonzero(acts.has_launch & (acts.stream == number))
        # of one launch's work that starts at one instant all waited: what lasts stands for it (then by thread)
        order = (acts.thread.codes, -acts.end, acts.start, acts.correlation, acts.launch_start)
        queue = queue[np.lexsort([key[queue] for key in order])]
        at = np.searchsorted(acts.launch_start[queue], when[mine & (stream == number)])
        told[queue[at[at < len(queue)]]] = True
    return told


def _segments(
    gaps: Gaps, host: HostEvents, key: Key, threads: Text, *, kernel_gap_ns: int, sync_slack_ns: int
) -> Pieces:
    """Gap, start, end and cause of every piece, in order of time."""
    whole = np.full(len(gaps.start), _NO_CAUSE, dtype=np.int64)
    whole[~gaps.has_launch] = _UNKNOWN
    whole[gaps.is_graph] = _GRAPH
    whole[gaps.is_tail] = _TAIL
    split = np.flatnonzero(whole == _NO_CAUSE)
    issued = gaps.issued
    on_device = split[issued[split] < gaps.end[split]]
    uncut = np.flatnonzero(whole != _NO_CAUSE)
    pieces = [
        (uncut, gaps.start[uncut], gaps.end[uncut], whole[uncut]),
        (on_device, issued[on_device], gaps.end[on_device], _device_cause(gaps, on_device, kernel_gap_ns)),
        *_host_pieces(gaps, split[issued[split] > gaps.start[split]], host, key, threads, sync_slack_ns),
    ]  # fmt: skip
    gap, start, end, cause = (np.concatenate([p[i] for p in pieces]) for i in range(4))
    order = np.argsort(start, kind="stable")
    return _joined(gap[order], start[order], end[order], cause[order])


def _device_cause(gaps: Gaps, rows: I64, kernel_gap_ns: int) -> I64:
    is_short = gaps.end[rows] - gaps.start[rows] <= kernel_gap_ns
    queued = np.where(is_short, _KERNEL_GAP, np.where(gaps.was_told[rows], _DEPENDENCY, _DEVICE))
    return np.where(gaps.launch[rows] > gaps.start[rows], _LATENCY, queued)


def _host_pieces(
    gaps: Gaps, rows: I64, host: HostEvents, key: Key, threads: Text, slack_ns: int
) -> Iterator[Pieces]:
    """The host's part of each gap, by what the issuing thread did."""
    rows_of = host.threads_of(key[:3]) if len(rows) else {}
    issued = gaps.issued
    for code in np.unique(gaps.thread[rows]).tolist():
        mine = rows[gaps.thread[rows] == code]
        events = rows_of.get(threads.values[code]) if code >= 0 else None
        thread = NO_THREAD if events is None else host.thread_states(events)
        piece, start, end = split_at(gaps.start[mine], issued[mine], thread.cuts)
        cause = thread.states[np.searchsorted(thread.cuts, start, side="right")]
        covered = thread.is_covered(gaps.start[mine], slack_ns)[piece]
        cause = np.where(covered & (cause > State.SYNC), State.SYNC, cause)
        yield mine[piece], start, end, cause


def _joined(gap: I64, start: I64, end: I64, cause: I64) -> Pieces:
    """Touching pieces of one gap and one cause as one."""
    if len(gap) == 0:
        return gap, start, end, cause
    fresh = np.ones(len(gap), dtype=np.bool_)
    fresh[1:] = (np.diff(gap) != 0) | (np.diff(cause) != 0)
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(gap)) - 1
    return gap[first], start[first], end[last], cause[first]


def _table(parts: list[tuple[Key, Gaps, Pieces]], threads: Text) -> pa.Table:
    n = np.array([len(pieces[0]) for _, _, pieces in parts], dtype=np.int64)
    place = pa.array(np.repeat(np.arange(len(parts)), n))
    columns: dict[str, pa.Array] = {}
    for i, name in enumerate(TIMELINE):
        kind = pa.string() if name == "world" else pa.int64()
        values = pa.array([key[i] for key, _, _ in parts], kind).take(place)
        columns[name] = values.dictionary_encode() if name == "world" else values

    def joined(values: list[I64]) -> I64:
        return np.concatenate([np.empty(0, np.int64), *values])

    columns["start_ns"] = int_array(joined([p[1] for _, _, p in parts]))
    columns["end_ns"] = int_array(joined([p[2] for _, _, p in parts]))
    columns["cause"] = Text(joined([p[3] for _, _, p in parts]), CAUSE_NAMES).arrow()
    columns["gap_start_ns"] = int_array(joined([g.start[p[0]] for _, g, p in parts]))
    columns["gap_end_ns"] = int_array(joined([g.end[p[0]] for _, g, p in parts]))
    issuers = [np.where(g.has_launch, g.thread, -1)[p[0]] for _, g, p in parts]
    columns["launch_tid"] = Text(joined(issuers), threads.values).arrow()
    return pa.table(columns)
