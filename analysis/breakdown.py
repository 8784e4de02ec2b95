"""Where every nanosecond of a window went: the exact partition, and the causes of its idle part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.store.errors import UsageError
from rankscope.store.schema import BREAKDOWN, CAUSES, FULL_CAUSES, PARTS, Class, Timeline, conform

from .closure import check_closure
from .exposed import solo_transfer
from .host_states import CAPTURE
from .intervals import I64, Flags, Intervals, merge, union
from .tables import LABELS, TIMELINE, flags, int_array, ints, need, numbers, rows_by, text

STANDARD, FULL = "standard", "full"

FOLDED = {
    "allocator_ns": "host_dispatch_ns",
    "compile_ns": "host_dispatch_ns",
    "host_comm_wait_ns": "host_other_ns",
}
"""Causes that count in another one unless shown apart."""

_BUSY = PARTS[:-1]
Sums = dict[str, I64]


@dataclass(frozen=True)
class Activity:
    """Activities of one kind of timeline as columns."""

    start: I64
    end: I64
    is_class: Mapping[Class, Flags]
    is_solo: Flags

    @classmethod
    def of(cls, table: pa.Table) -> Activity:
        """The columns of an ACTIVITIES or HOST_ACTIVITIES table; an invalid row is of no class."""
        start, has_start = ints(table, "start_ns")
        end, has_end = ints(table, "end_ns")
        sound = flags(table, "valid", default=True) & has_start & has_end
        named = text(table, "class")
        size, known = ints(table, "group_size")
        return cls(start, end, {c: named.is_one_of(c) & sound for c in Class}, known & (size == 1))


def breakdown(
    activities: pa.Table,
    windows: pa.Table,
    *,
    idle: pa.Table | None = None,
    host_activities: pa.Table | None = None,
    unrecorded: pa.Table | None = None,
    causes: str = STANDARD,
) -> pa.Table:
    """Where every nanosecond of each window went.

    With COMP, COMM, MEM the unions of activity by class, clipped to the window:
    compute_only = |COMP without COMM|, overlap = |COMP and COMM|, exposed_comm = |COMM without COMP|,
    exposed_memcpy = |MEM alone|, idle = the rest; the five sum to `wall_ns` exactly.
    compute, communication, memcpy are the full unions; overlap_ratio = overlap / communication.
    exposed_comm = transfer + pipeline_wait + straggler_wait + unsplit_comm: until collectives are matched across
    ranks only the calls of groups of one are known to transfer, the rest is unsplit.
    idle = the sum of its causes. bubble = idle - graph_gap + pipeline_wait + straggler_wait, known as a range
    while unsplit_comm > 0. Not sums of durations: overlapping activities count once.

    Args:
        activities: ACTIVITIES rows, any order, any number of ranks; invalid ones are ignored.
        windows: STEPS rows, the windows to account for (`timeline` device or host), any order.
        idle: what `idle_segments` returned for the same activities and timelines; without it all idle time
            is `unattributed_ns`.
        host_activities: HOST_ACTIVITIES rows, for windows of host timelines. Nothing in those rows is a GPU
            time; what no range covers is idle and `unattributed_ns`.
        unrecorded: `world, rank, window` of the captures in which communication was issued and none was recorded
            on the device: their `communication_ns` and `overlap_ratio` are null, `is_comm_recorded` is false.
        causes: `standard`, or `full` for `allocator_ns, compile_ns` (else in host_dispatch_ns) and
            `host_comm_wait_ns` (else in host_other_ns) as columns of their own.

    Returns:
        One BREAKDOWN row per window (`n` = 1), in the order of the windows; int64 ns, ratios float64.

    Raises:
        MissingColumn: a needed column is absent. UsageError: `causes` is neither word.
        ClosureError: parts do not sum to their whole (a defect of this program).

    Cost: O((n + windows) log n), two sorts per union.
    Source: METHOD 1.1 of this project's design.
    """
    if causes not in (STANDARD, FULL):
        raise UsageError(f"causes is {causes!r}", hint=f"one of {STANDARD}, {FULL}")
    need(windows, [*TIMELINE, "start_ns", "end_ns", "timeline"], "windows")
    on_host = text(windows, "timeline").is_one_of(Timeline.HOST)
    sums = _accounts(activities, host_activities, windows, on_host)
    _causes(sums, idle, windows, on_host)
    is_unknown = _in_captures(windows, unrecorded) & ~on_host & (sums["communication_ns"] == 0)
    return _rows(sums, windows, is_unknown, full=causes == FULL)


def _accounts(
    activities: pa.Table, host_activities: pa.Table | None, windows: pa.Table, on_host: Flags
) -> Sums:
    """Every time column of every window but the causes of idle time, which are 0."""
    n = windows.num_rows
    names = [c.name for c in BREAKDOWN.columns if c.name.endswith("_ns")]
    sums = {c: np.zeros(n, np.int64) for c in (*names, *FULL_CAUSES)}
    sums["wall_ns"] = numbers(windows, "end_ns") - numbers(windows, "start_ns")
    _partition(sums, activities, windows, ~on_host)
    if host_activities is not None:
        _partition(sums, host_activities, windows, on_host)
    sums["idle_ns"] = sums["wall_ns"] - sum(sums[c] for c in _BUSY)
    return sums


def _in_captures(windows: pa.Table, captures: pa.Table | None) -> Flags:
    """Whether each window belongs to one of the captures."""
    found = np.zeros(windows.num_rows, dtype=np.bool_)
    if captures is not None and captures.num_rows:
        named = rows_by(captures, CAPTURE)
        for key, rows in rows_by(windows, CAPTURE).items():
            found[rows] = key in named
    return found


def _partition(sums: Sums, table: pa.Table, windows: pa.Table, chosen: Flags) -> None:
    """The classes' shares of the chosen windows, from the activities of their timelines."""
    need(table, [*TIMELINE, "start_ns", "end_ns", "class"], "activities")
    acts, rows_of = Activity.of(table), rows_by(table)
    start, end = numbers(windows, "start_ns"), numbers(windows, "end_ns")
    for key, places in rows_by(windows).items():
        at = places[chosen[places]]
        rows = rows_of.get(key)
        if len(at) and rows is not None:
            for name, value in _shares(acts, rows, start[at], end[at]).items():
                sums[name][at] = value


def _shares(acts: Activity, rows: I64, start: I64, end: I64) -> Sums:
    """Columns of one timeline's windows."""

    def of(name: Class) -> Intervals:
        mine = rows[acts.is_class[name][rows]]
        return merge(acts.start[mine], acts.end[mine])

    comp, comm, mem = of(Class.COMPUTE), of(Class.COMM), of(Class.MEMCPY)
    work = union(comp, comm)
    compute, communication = comp.within(start, end), comm.within(start, end)
    either = work.within(start, end)
    sums = {
        "compute_ns": compute,
        "communication_ns": communication,
        "memcpy_ns": mem.within(start, end),
        "compute_only_ns": either - communication,
        "overlap_ns": compute + communication - either,
        "exposed_comm_ns": either - compute,
        "exposed_memcpy_ns": union(work, mem).within(start, end) - either,
    }
    calls = rows[acts.is_class[Class.COMM][rows]]
    alone = solo_transfer(acts.start[calls], acts.end[calls], acts.is_solo[calls])
    sums["transfer_ns"] = union(alone, comp).within(start, end) - compute
    sums["unsplit_comm_ns"] = sums["exposed_comm_ns"] - sums["transfer_ns"]
    return sums


def _causes(sums: Sums, idle: pa.Table | None, windows: pa.Table, on_host: Flags) -> None:
    """Idle time of every window by cause; host timelines and runs without segments are unattributed."""
    if idle is None:
        sums["unattributed_ns"] = sums["idle_ns"].copy()
        return
    need(idle, [*TIMELINE, "start_ns", "end_ns", "cause"], "idle segments")
    sums["unattributed_ns"][on_host] = sums["idle_ns"][on_host]
    begins, ends, cause = numbers(idle, "start_ns"), numbers(idle, "end_ns"), text(idle, "cause")
    start, end = numbers(windows, "start_ns"), numbers(windows, "end_ns")
    rows_of = rows_by(idle)
    for key, places in rows_by(windows).items():
        at = places[~on_host[places]]
        rows = rows_of.get(key, np.empty(0, np.int64)) if len(at) else np.empty(0, np.int64)
        for code in np.unique(cause.codes[rows]).tolist():
            mine = rows[cause.codes[rows] == code]
            time = merge(begins[mine], ends[mine])
            sums[f"{cause.values[code]}_ns"][at] += time.within(start[at], end[at])


def _rows(sums: Sums, windows: pa.Table, is_unknown: Flags, *, full: bool) -> pa.Table:
    if not full:
        for part, whole in FOLDED.items():
            sums[whole] = sums[whole] + sums.pop(part)
    waits = sums["pipeline_wait_ns"] + sums["straggler_wait_ns"]
    sums["bubble_min_ns"] = sums["idle_ns"] - sums["graph_gap_ns"] + waits
    sums["bubble_max_ns"] = sums["bubble_min_ns"] + sums["unsplit_comm_ns"]
    sums["bubble_ns"] = sums["bubble_min_ns"].copy()
    sums["pipeline_bubble_ns"] = sums["pipeline_wait_ns"] + sums["pipeline_idle_ns"]
    known = {"bubble_ns": sums["unsplit_comm_ns"] == 0, "communication_ns": ~is_unknown}
    columns = {name: int_array(values, known.get(name)) for name, values in sums.items()}
    columns["overlap_ratio"] = ratio(sums["overlap_ns"], sums["communication_ns"])
    columns["is_comm_recorded"] = pa.array(~is_unknown)
    columns["n"] = pa.array(np.ones(windows.num_rows, np.int64))
    labels = {c: windows.column(c) for c in (*LABELS, "timeline") if c in windows.column_names}
    table = in_order(pa.table(labels | columns))
    check_closure(table)
    return table


def in_order(table: pa.Table) -> pa.Table:
    """BREAKDOWN's columns in its order, `--causes full` columns after the causes, others at the end."""
    base = conform(table, BREAKDOWN)
    where = base.column_names.index(CAUSES[-1]) + 1
    for name in reversed(FULL_CAUSES):
        if name in table.column_names:
            base = base.add_column(where, name, table.column(name))
    for name in table.column_names:
        if name not in base.column_names:
            base = base.append_column(name, table.column(name))
    return base


def ratio(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> pa.Array:
    """Quotient of two columns as float64, null where the whole is 0."""
    is_known = whole > 0
    return pa.array(part / np.where(is_known, whole, 1), mask=~is_known)
