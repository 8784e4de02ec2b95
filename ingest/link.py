"""Launch calls and their device activities, and the host ranges around each launch.

An activity belongs to the runtime or driver call of the same correlation id: one call may have caused many
(a graph launch). The host operator around a call is found by thread and time, never through External id,
which in several generations of traces equals the call's own id or the correlation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .classify import EVIDENCE
from .columns import I32, I64, Flags
from .frame import Frame
from .nesting import Ranges, enclosing, ranges

LAUNCH_NAME = re.compile(r"launch(?!_?host_?func)|memcpy|memset", re.IGNORECASE)
"""Calls that put work on a device: cuda*, hip*, cu* launches, graph launches, copies and memsets."""


@dataclass(frozen=True)
class Links:
    """Launch calls of one rank and the call of each device activity.

    Attributes:
        calls: event row of each launch call, in order of (start, thread, correlation, name).
        activities: event row of each device activity, in the frame's order.
        launch: for each activity, its position in `calls`, -1 without launch record.
        n_activities: activities of each call.
        first_start: start of each call's first valid activity, the largest int64 where it has none.
    """

    calls: I64
    activities: I64
    launch: I64
    n_activities: I64
    first_start: I64


def link(frame: Frame) -> Links:
    """Launch calls with their activities.

    Launch calls are the runtime and driver calls that have an activity, and those whose name says launch,
    memcpy or memset. Of several records with one correlation that overlap in time on one thread (a driver
    call inside the runtime call) one is the launch: one named as a launch before others, then the earliest,
    then the longest. Several disjoint calls with one correlation share its activities by time: each activity
    takes the latest call that began at or before it. Correlation 0 is an id like any other when one call has
    it, and means unknown when several do.
    """
    activities = np.flatnonzero(frame.is_device).astype(np.int64)
    correlation, known = frame.correlation
    is_launch = frame.named(lambda n: bool(LAUNCH_NAME.search(n)))
    calls = _calls(frame, is_launch)
    usable = known[calls] & ~_is_shared_zero(correlation[calls], known[calls])
    with_id = calls[usable]
    found = _call_of(frame, with_id, activities)
    used = np.zeros(len(frame.start), dtype=np.bool_)
    used[with_id[found[found >= 0]]] = True
    kept = calls[used[calls] | is_launch[calls]]
    kept = kept[
        np.lexsort(
            (
                frame.end[kept],
                frame.name.codes[kept],
                correlation[kept],
                frame.thread.codes[kept],
                frame.start[kept],
            )
        )
    ]
    place = np.full(len(frame.start), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    launch = np.full(len(activities), -1, dtype=np.int64)
    launch[found >= 0] = place[with_id[found[found >= 0]]]
    return _links(frame, kept, activities, launch)


def _links(frame: Frame, calls: I64, activities: I64, launch: I64) -> Links:
    linked = launch >= 0
    first = np.full(len(calls), np.iinfo(np.int64).max, dtype=np.int64)
    timed = linked & frame.valid[activities]
    np.minimum.at(first, launch[timed], frame.start[activities[timed]])
    counts = np.bincount(launch[linked], minlength=len(calls)).astype(np.int64)
    return Links(calls, activities, launch, counts, first)


def _is_shared_zero(correlation: I64, known: Flags) -> Flags:
    zero = known & (correlation == 0)
    return zero if np.count_nonzero(zero) > 1 else np.zeros_like(zero)


def _calls(frame: Frame, is_launch: Flags) -> I64:
    """One event row per runtime call: overlapping records of one correlation and thread count once."""
    rows = np.flatnonzero(frame.is_runtime).astype(np.int64)
    correlation, known = frame.correlation
    alone = rows[~known[rows]]
    rows = rows[known[rows]]
    thread, start, end = frame.thread.codes, frame.start, frame.end
    rows = rows[np.lexsort((-end[rows], start[rows], thread[rows], correlation[rows]))]
    fresh = _changes(correlation[rows], thread[rows])
    group = np.cumsum(fresh)
    order = np.argsort(np.argsort(end[rows], kind="stable"), kind="stable")
    reach = np.maximum.accumulate(group * (len(rows) + 1) + order) % (len(rows) + 1)
    until = np.sort(end[rows], kind="stable")[reach] if len(rows) else end[rows]
    fresh[1:] |= start[rows][1:] > until[:-1]
    call = np.cumsum(fresh)
    best = np.lexsort((frame.name.codes[rows], -end[rows], start[rows], ~is_launch[rows], call))
    first = _changes(call[best])
    return np.concatenate([rows[best[first]], alone])


def _changes(*columns: npt.NDArray[Any]) -> Flags:
    """Rows at which any of the columns differs from the row before; the first row is one."""
    n = len(columns[0])
    changed = np.zeros(n, dtype=np.bool_)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _call_of(frame: Frame, calls: I64, activities: I64) -> I64:
    """Position in `calls` of each activity's call: the latest of its correlation that began at or before
    it, else the earliest of its correlation; -1 without one.
    """
    correlation, known = frame.correlation
    result = np.full(len(activities), -1, dtype=np.int64)
    wanted = np.flatnonzero(known[activities])
    if not len(calls) or not len(wanted):
        return result
    order = np.lexsort((frame.start[calls], correlation[calls]))
    ids = correlation[calls][order]
    of = correlation[activities[wanted]]
    low, high = np.searchsorted(ids, of, side="left"), np.searchsorted(ids, of, side="right")
    chosen = np.where(high > low, low, -1)
    several = np.flatnonzero(high - low > 1)
    if len(several):
        at = frame.start[activities[wanted[several]]]
        chosen[several] = _latest_before(frame.start[calls][order], low[several], high[several], at)
    result[wanted] = np.where(chosen >= 0, order[np.maximum(chosen, 0)], -1)
    return result


def _latest_before(starts: I64, low: I64, high: I64, at: I64) -> I64:
    """In each sorted slice [low, high) of `starts`, the last position with start <= at, at least `low`."""
    low, high = low.copy(), high.copy()
    while np.any(high - low > 1):
        middle = (low + high) // 2
        before = starts[np.minimum(middle, len(starts) - 1)] <= at
        open_ = high - low > 1
        low = np.where(open_ & before, middle, low)
        high = np.where(open_ & ~before, middle, high)
    return low


@dataclass(frozen=True)
class Context:
    """What surrounds each launch call: all are event rows or codes, -1 or 0 for nothing.

    Attributes:
        op: row of the innermost host operator.
        record: row of the innermost `record_param_comms` that is a collective.
        evidence: what the surroundings say about communication, a position in `classify.EVIDENCE`.
    """

    op: I64
    record: I64
    evidence: I32


def context(frame: Frame, links: Links) -> Context:
    """The operators and communication scopes around each launch call, by thread and time.

    A call is communication inside `record_param_comms` (not `wait`), an `nccl:*` range or a symmetric-memory
    operator at any depth, or when the innermost operator around it is a `c10d::*` one.
    """
    op = _around(frame, links, frame.is_operator)
    record = _around(frame, links, frame.is_comm_record)
    host = frame.is_operator | frame.is_annotation
    nccl = _around(frame, links, host & frame.named(lambda n: n.startswith("nccl:")))
    symmetric = _around(frame, links, frame.is_operator & frame.named(is_symmetric_memory))
    c10d = frame.named(lambda n: n.startswith("c10d::"))
    evidence = np.zeros(len(op), dtype=np.int32)
    evidence[(op >= 0) & c10d[op]] = EVIDENCE.index("metadata:launched by c10d operator")
    evidence[symmetric >= 0] = EVIDENCE.index("metadata:inside symmetric-memory operator")
    evidence[nccl >= 0] = EVIDENCE.index("metadata:inside nccl annotation")
    evidence[record >= 0] = EVIDENCE.index("metadata:inside record_param_comms")
    return Context(op, record, evidence)


def is_symmetric_memory(name: str) -> bool:
    """Whether an operator works on symmetric memory: `symm_mem::*`, and `*::multimem_*` of other libraries."""
    return name.startswith(("symm_mem::", "multimem_")) or "::multimem_" in name


def operator_ranges(frame: Frame, rows: Flags) -> Ranges:
    """The flagged rows as ranges for look-ups; ranges of equal bounds nest by External id, which grows with
    the time of the call.
    """
    found = np.flatnonzero(rows).astype(np.int64)
    external, known = frame.external_id
    names = frame.name.codes[found]
    tie = np.where(known[found], external[found], -1)
    by_name = found[np.argsort(names, kind="stable")]
    tie = tie[np.argsort(names, kind="stable")]
    among = ranges(frame.thread.codes[by_name], frame.start[by_name], frame.end[by_name], tie)
    return Ranges(by_name[among.rows], among.thread, among.start, among.end, among.outer)


def _around(frame: Frame, links: Links, rows: Flags) -> I64:
    among = operator_ranges(frame, rows)
    return enclosing(among, frame.thread.codes[links.calls], frame.start[links.calls])
