"""Windows in which communication was issued but not recorded: their communication time is unknown, not zero."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rankscope.store.schema import EVENTS, Class, empty

from ._scope import Scope

CAPTURES = pa.schema([("world", pa.string()), ("rank", pa.int64()), ("window", pa.int64())])
_RECORD = "record_param_comms"
_RANGE = "nccl:"
_OPERATOR = "c10d::"
_COLUMNS = ["window", "cat", "name", "start_ns", "collective", "group_size"]

Times = dict[int | None, list[int]]
"""Ascending times by capture."""


def unrecorded(scope: Scope, rank: int, rows: pa.Table, activities: pa.Table) -> list[bool]:
    """Whether each window of a rank had communication issued in it of which nothing was recorded.

    A call belongs to the step in whose host time it was issued, wherever its kernel ran: a window without
    communication is unknown when calls were issued in its step and no communication launched in that step was
    recorded. A window without a host start (no steps, or inferred ones) is unknown when its whole capture has
    calls and no communication.

    Args:
        scope: what is looked at.
        rank: the rank.
        rows: breakdown rows of its windows, with `host_start_ns`.
        activities: its device activities.
    """
    windows = rows.select(["window", "timeline", "communication_ns", "host_start_ns"]).to_pylist()
    silent = [w["timeline"] == "device" and w["communication_ns"] == 0 for w in windows]
    captures = {w["window"] for w, s in zip(windows, silent, strict=True) if s}
    if not captures & _with_calls(scope, rank):
        return [False] * len(windows)
    calls = _sorted(_calls(scope, rank))
    launches = _sorted(_communication(activities))
    starts = _sorted(pa.table({"window": rows.column("window"), "start_ns": rows.column("host_start_ns")}))
    return [
        is_silent and _has_any(calls, w, starts) and not _has_any(launches, w, starts)
        for w, is_silent in zip(windows, silent, strict=True)
    ]


def captures_of(scope: Scope, rank: int, windows: pa.Table) -> pa.Table:
    """The captures of these windows."""
    found = sorted(set(windows.column("window").to_pylist()), key=lambda w: (w is None, w or 0))
    return pa.Table.from_pylist(
        [{"world": scope.world, "rank": rank, "window": w} for w in found], schema=CAPTURES
    )


def _with_calls(scope: Scope, rank: int) -> set[int | None]:
    """Captures of the rank in which communication was issued, as the ingest counted."""
    stated = scope.store.manifest.get("issued_comm") or []
    return {c["window"] for c in stated if c["rank"] == rank and c["world"] == scope.world}


def _calls(scope: Scope, rank: int) -> pa.Table:
    """Capture and start of every communication call: its records, or the `nccl:*` ranges of a capture whose
    records do not name their collective (older traces, in which a wait cannot be told from a call), or the
    `c10d::*` operators of a capture without either.
    """
    cats = ["cpu_op", "user_annotation"]
    found = []
    for piece in scope.store.pieces("events", columns=_COLUMNS, cats=cats, **scope.place([rank])):
        names = piece.column("name").cast(pa.string())
        is_call = pc.or_(pc.equal(names, _RECORD), pc.starts_with(names, _RANGE))
        is_call = pc.or_(is_call, pc.starts_with(names, _OPERATOR))
        found.append(piece.filter(pc.and_(is_call, pc.is_valid(piece.column("start_ns")))))
    table = pa.concat_tables(found).unify_dictionaries() if found else empty(EVENTS).select(_COLUMNS)
    is_operator = pc.starts_with(table.column("name").cast(pa.string()), _OPERATOR)
    stated = pc.unique(table.filter(pc.invert(is_operator)).column("window"))
    of_stated = pc.is_in(table.column("window"), value_set=stated)
    bare = table.filter(pc.and_(is_operator, pc.invert(of_stated))).select(["window", "start_ns"])
    return pa.concat_tables([bare, _stated(table.filter(pc.invert(is_operator)))])


def _stated(table: pa.Table) -> pa.Table:
    """Capture and start of the records and ranges that are calls."""
    is_record = pc.equal(table.column("name").cast(pa.string()), _RECORD)
    is_named = pc.and_(is_record, pc.is_valid(table.column("collective")))
    named = pc.unique(table.filter(is_named).column("window"))
    ranged = pc.unique(table.filter(pc.invert(is_record)).column("window"))
    by_range = pc.and_(
        pc.is_in(table.column("window"), value_set=ranged),
        pc.invert(pc.is_in(table.column("window"), value_set=named)),
    )
    # A `wait` repeats the call it waits for, an `init` makes a group, and a group of one moves nothing.
    no_calls = pa.array(["wait", "init"])
    is_real = pc.and_(
        pc.invert(pc.is_in(table.column("collective").cast(pa.string()), value_set=no_calls)),
        pc.fill_null(pc.not_equal(table.column("group_size"), 1), True),
    )
    kept = pc.if_else(is_record, pc.and_(is_real, pc.invert(by_range)), by_range)
    return table.filter(kept).select(["window", "start_ns"])


def _communication(activities: pa.Table) -> pa.Table:
    """Capture and launch of every recorded communication; without a launch record its own start."""
    is_comm = pc.equal(activities.column("class").cast(pa.string()), str(Class.COMM))
    table = activities.filter(pc.and_(is_comm, activities.column("valid")))
    start = pc.coalesce(table.column("launch_start_ns"), table.column("start_ns"))
    return pa.table({"window": table.column("window"), "start_ns": start})


def _sorted(table: pa.Table) -> Times:
    times: Times = {}
    for row in table.to_pylist():
        if row["start_ns"] is not None:
            times.setdefault(row["window"], []).append(row["start_ns"])
    for own in times.values():
        own.sort()
    return times


def _has_any(times: Times, window: dict[str, Any], starts: Times) -> bool:
    """Whether any of the times lies in the host time of the window's step (without one: in its capture)."""
    own, begin = times.get(window["window"], []), window["host_start_ns"]
    if begin is None or not own:
        return bool(own)
    begins = starts[window["window"]]
    first, after = bisect_left(own, begin), bisect_right(begins, begin)
    return first < len(own) and (after == len(begins) or own[first] < begins[after])
