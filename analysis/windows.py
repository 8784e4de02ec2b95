"""Which windows an analysis looks at: steady steps, all, some, or one per device."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankscope.store.errors import UsageError
from rankscope.store.schema import IDENTITY, STEPS, Timeline, conform
from rankscope.store.units import number_ranges

from .intervals import I64, Flags
from .tables import flags, ints, numbers, rows_by, text

STEADY, ALL, NONE = "steady", "all", "none"
LEAVE_OUT_FROM = 4
"""With so many steps the first and last of a capture are left out: warm-up and the cut-off end."""

_SOURCES = {
    "regex": "by --step-regex", "profiler_step": "profiler step", "inference": "inference iterations",
    "optimizer": "optimizer", "sequence": "inferred from repeating kernels", "none": "no steps found",
}  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """Windows in use.

    Attributes:
        windows: STEPS rows.
        tiling: STEPS rows of whole timelines, with the windows among them: what idle causes are decided on.
        note: which these are and what was left out, one line.
        n_left_out: windows not in use.
    """

    windows: pa.Table
    tiling: pa.Table
    note: str
    n_left_out: int


def select_windows(
    steps: pa.Table,
    activities: pa.Table,
    host_activities: pa.Table | None = None,
    *,
    which: str | Sequence[int] = STEADY,
) -> Selection:
    """The windows to report on.

    `steady`: in each world, capture and timeline, the steps that every rank of the capture has; with four or
    more of them the first and last in time are left out. `all`: every step. `none`: one window per device
    and capture, from the first valid activity's start to the last one's end (those of zero length count), `step`
    null; host timelines likewise. A list: those step numbers.

    Args:
        steps: STEPS rows.
        activities: ACTIVITIES rows (needed for `none`).
        host_activities: HOST_ACTIVITIES rows (for `none` on host timelines).
        which: `steady`, `all`, `none`, or a list of step numbers.

    Returns:
        The selection; windows sorted by timeline and start.

    Raises:
        UsageError: no such step.

    Source: CONTRACT section 4 of this project's design.
    """
    if which == NONE:
        tables = [
            (activities, Timeline.DEVICE),
            *([(host_activities, Timeline.HOST)] if host_activities else []),
        ]
        whole = _sorted(pa.concat_tables([_whole(t, kind) for t, kind in tables]))
        return Selection(whole, whole, "whole run, no steps", 0)
    tiling = _sorted(conform(steps, STEPS))
    if which == ALL:
        return Selection(tiling, tiling, _described(tiling, tiling, ""), 0)
    if which == STEADY:
        chosen, why = _steady(tiling)
    else:
        chosen, why = _listed(tiling, {int(s) for s in which})
    windows = tiling.filter(pa.array(chosen))
    return Selection(windows, tiling, _described(windows, tiling, why), tiling.num_rows - windows.num_rows)


def as_recorded(activities: pa.Table) -> pa.Table:
    """Activities with their ends as recorded: late completion stamps are not clipped."""
    ends = pc.if_else(
        pc.fill_null(activities.column("valid"), False),
        pc.coalesce(activities.column("recorded_end_ns"), activities.column("end_ns")),
        activities.column("end_ns"),
    )
    return activities.set_column(activities.column_names.index("end_ns"), "end_ns", ends)


def _whole(table: pa.Table, timeline: Timeline) -> pa.Table:
    """One window per timeline of an activities table."""
    start, has_start = ints(table, "start_ns")
    end, has_end = ints(table, "end_ns")
    sound = flags(table, "valid", default=True) & has_start & has_end
    groups = [rows[sound[rows]] for rows in rows_by(table).values()]
    groups = [rows for rows in groups if len(rows)]
    heads = pa.array([int(rows[0]) for rows in groups], pa.int64())
    columns = {c: table.column(c).take(heads) for c in (*(i.name for i in IDENTITY), "world", "window")
               if c in table.column_names}  # fmt: skip
    columns["start_ns"] = pa.array([int(start[r].min()) for r in groups], pa.int64())
    columns["end_ns"] = pa.array([int(end[r].max()) for r in groups], pa.int64())
    columns["source"] = pa.array(["none"] * len(groups), pa.string())
    columns["timeline"] = pa.array([timeline.value] * len(groups), pa.string())
    return conform(pa.table(columns), STEPS)


def _sorted(windows: pa.Table) -> pa.Table:
    """By world, rank, capture, device and time: the order never depends on that of the input."""
    windows = windows.unify_dictionaries()
    order: list[I64] = [np.empty(0, np.int64)]
    start, end, step = (numbers(windows, c) for c in ("start_ns", "end_ns", "step"))
    for rows in rows_by(windows).values():
        order.append(rows[np.lexsort((step[rows], end[rows], start[rows]))])
    return windows.take(pa.array(np.concatenate(order)))


def _groups(tiling: pa.Table) -> Iterator[tuple[I64, dict[int, I64]]]:
    """Rows of each (world, capture, timeline), and of each rank in it."""
    rank = numbers(tiling, "rank")
    for rows in rows_by(tiling, ("world", "window", "timeline")).values():
        yield rows, {r: rows[rank[rows] == r] for r in np.unique(rank[rows]).tolist()}


def _steady(tiling: pa.Table) -> tuple[Flags, str]:
    step, start = numbers(tiling, "step"), numbers(tiling, "start_ns")
    chosen = np.zeros(tiling.num_rows, dtype=np.bool_)
    trimmed, lacking, disjoint = False, set(), False
    for rows, by_rank in _groups(tiling):
        everything = set(step[rows].tolist())
        common = everything.intersection(*(step[r].tolist() for r in by_rank.values()))
        lacking |= {rank for rank, r in by_rank.items() if everything - set(step[r].tolist())}
        disjoint |= not common
        used = common or everything
        if len(common) >= LEAVE_OUT_FROM:
            used, trimmed = common - set(_ends(common, rows, step, start)), True
        chosen[rows] = np.isin(step[rows], sorted(used))
    reasons = ["first and last left out"] if trimmed else []
    if lacking:
        reasons.append(f"not all ranks have all steps ({_ranks(lacking)} lack some)")
    if disjoint:
        reasons.append("no step is common to all ranks, all are used")
    return chosen, ", ".join(reasons)


def _ends(common: Collection[int], rows: I64, step: I64, start: I64) -> tuple[int, int]:
    """First and last of the common steps in time (by their earliest start on any rank)."""
    order = rows[np.lexsort((step[rows], start[rows]))]
    firsts = list(dict.fromkeys(s for s in step[order].tolist() if s in common))
    return firsts[0], firsts[-1]


def _listed(tiling: pa.Table, wanted: set[int]) -> tuple[Flags, str]:
    step, known = ints(tiling, "step")
    chosen = known & np.isin(step, sorted(wanted))
    if not chosen.any() and tiling.num_rows:
        raise UsageError(
            f"no step {number_ranges(wanted)} in this run",
            hint=f"steps: {number_ranges(step[known].tolist())}",
        )
    absent = wanted - set(step[chosen].tolist())
    return chosen, f"no step {number_ranges(absent)}" if absent else ""


def _described(windows: pa.Table, tiling: pa.Table, why: str) -> str:
    if not tiling.num_rows:
        return "no steps"
    step, known = ints(windows, "step")
    every, every_known = ints(tiling, "step")
    used, there = set(step[known].tolist()), set(every[every_known].tolist())
    source = text(tiling, "source")
    named = " and ".join(_SOURCES.get(v, v) for v in source.values)
    of = f" of {number_ranges(there)}" if used != there else ""
    word = "step" if len(used) == 1 else "steps"
    shown = f"{word} {number_ranges(used)}{of}" if used else "whole run"
    return f"{shown}{f' ({named})' if named else ''}{f', {why}' if why else ''}"


def _ranks(ranks: Collection[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {number_ranges(ranks)}"
