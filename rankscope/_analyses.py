"""The analyses of a run: what each needs is read rank by rank, so that memory holds one rank at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from rankscope.analysis.aggregate import DEFAULT_BY, aggregate
from rankscope.analysis.breakdown import STANDARD, breakdown
from rankscope.analysis.findings import findings
from rankscope.analysis.gaps import gaps
from rankscope.analysis.host_states import HOST_CATEGORIES, HOST_COLUMNS, host_events
from rankscope.analysis.idle import idle_segments
from rankscope.analysis.kernels import kernels
from rankscope.analysis.tables import TIMELINE
from rankscope.store.schema import ACTIVITIES, EVENTS, STEPS, Timeline, empty

from ._scope import Scope

CAPTURES = pa.schema([("world", pa.string()), ("rank", pa.int64()), ("window", pa.int64())])
_RECORD = "record_param_comms"
_RANGE = "nccl:"


def breakdown_rows(scope: Scope, *, causes: str = STANDARD) -> pa.Table:
    """One row of the breakdown per window, rank by rank."""
    rows = [_rank_rows(scope, *one, causes=causes) for one in scope.by_rank()]
    if not rows:
        rows = [breakdown(empty(ACTIVITIES), empty(STEPS), causes=causes)]
    return pa.concat_tables(rows).unify_dictionaries()


def _rank_rows(scope: Scope, rank: int, windows: pa.Table, tiling: pa.Table, *, causes: str) -> pa.Table:
    activities = scope.activities(rank)
    idle = _idle(scope, rank, activities, tiling)
    hosts = scope.read("host_activities", ranks=[rank])
    unrecorded = _unrecorded(scope, rank)
    if not unrecorded.num_rows:
        return breakdown(activities, windows, idle=idle, host_activities=hosts, causes=causes)
    # Where nothing was issued, no communication is a fact and not a gap in the record.
    issued = pa.array(_issued_in(windows, _issues(scope, rank)))
    with_calls = breakdown(
        activities, windows, idle=idle, host_activities=hosts, unrecorded=unrecorded, causes=causes
    )
    without = breakdown(activities, windows, idle=idle, host_activities=hosts, causes=causes)
    return pa.concat_tables([with_calls.filter(issued), without.filter(pc.invert(issued))])


def _idle(scope: Scope, rank: int, activities: pa.Table, tiling: pa.Table) -> pa.Table:
    query = scope.query
    return idle_segments(
        activities,
        _host_events(scope, rank),
        windows=tiling,
        kernel_gap_ns=query.kernel_gap_ns,
        sync_slack_ns=query.sync_slack_ns,
    )


def _host_events(scope: Scope, rank: int) -> pa.Table:
    """What the host did, piece by piece reduced to what decides a cause (of Python frames a few)."""
    pieces = scope.store.pieces("events", columns=HOST_COLUMNS, cats=HOST_CATEGORIES, **scope.place([rank]))
    kept = [host_events(piece) for piece in pieces]
    return pa.concat_tables(kept).unify_dictionaries() if kept else empty(EVENTS).select(HOST_COLUMNS)


def _unrecorded(scope: Scope, rank: int) -> pa.Table:
    """Captures of a rank in which communication was issued and none was recorded, as the ingest found."""
    stated = scope.store.manifest.get("unrecorded_comm") or []
    rows = [{n: c.get(n) for n in CAPTURES.names} for c in stated if c.get("rank") == rank]
    return pa.Table.from_pylist([r for r in rows if r["world"] == scope.world], schema=CAPTURES)


def _issues(scope: Scope, rank: int) -> pa.Table:
    """Window and start of every communication call a rank issued, as the host's records say."""
    columns = ["window", "name", "start_ns"]
    cats = ["cpu_op", "user_annotation"]
    found = []
    for piece in scope.store.pieces("events", columns=columns, cats=cats, **scope.place([rank])):
        names = piece.column("name").cast(pa.string())
        is_call = pc.or_(pc.equal(names, _RECORD), pc.starts_with(names, _RANGE))
        found.append(piece.filter(pc.and_(is_call, pc.is_valid(piece.column("start_ns")))))
    return pa.concat_tables(found) if found else empty(EVENTS).select(columns)


def _issued_in(windows: pa.Table, issues: pa.Table) -> list[bool]:
    """Whether a call was issued in each window: from its step's host start to the next one's.

    A window without a host start (no steps, or inferred ones) cannot be told apart from its neighbors: every
    call of its capture may be its own.
    """
    calls: dict[int | None, list[int]] = {}
    for row in issues.select(["window", "start_ns"]).to_pylist():
        calls.setdefault(row["window"], []).append(row["start_ns"])
    rows = windows.select(["window", "host_start_ns"]).to_pylist()
    starts: dict[int | None, list[int]] = {}
    for row in rows:
        if row["host_start_ns"] is not None:
            starts.setdefault(row["window"], []).append(row["host_start_ns"])
    for times in (*calls.values(), *starts.values()):
        times.sort()
    return [
        _has_call(r["host_start_ns"], calls.get(r["window"], []), starts.get(r["window"], [])) for r in rows
    ]


def _has_call(begin: int | None, calls: list[int], starts: list[int]) -> bool:
    if begin is None or not calls:
        return bool(calls)
    after = bisect_right(starts, begin)
    first = bisect_left(calls, begin)
    return first < len(calls) and (after == len(starts) or calls[first] < starts[after])


def breakdown_table(rows: pa.Table, by: str | Iterable[str] | None = None, *, mean: bool = False) -> pa.Table:
    """Rows of `breakdown_rows` summed by keys."""
    keys = DEFAULT_BY if by is None else [by] if isinstance(by, str) else list(by)
    return aggregate(rows, keys, mean=mean)


def kernels_table(scope: Scope) -> pa.Table:
    """Activities by name in the windows of the scope; host ranges only where no rank has device activity."""
    windows = scope.selection.windows
    lines = set(pc.unique(windows.column("timeline").cast(pa.string())).to_pylist())
    timeline = Timeline.HOST if lines == {Timeline.HOST} else Timeline.DEVICE
    mine = windows.filter(pc.equal(windows.column("timeline").cast(pa.string()), timeline))
    columns = [*TIMELINE, "name", "class", "rule", "start_ns", "end_ns", "valid"]
    if timeline == Timeline.HOST:
        activities = scope.read("host_activities", columns, ranks=scope.ranks)
    else:
        activities = scope.read("activities", [*columns, "copy_kind", "recorded_end_ns"], ranks=scope.ranks)
        activities = scope.ended(activities)
    table = kernels(activities, mine)
    named = pa.repeat(pa.scalar(str(timeline)), table.num_rows)
    return table.append_column("timeline", named)


def gaps_table(scope: Scope, *, top: int) -> pa.Table:
    """The longest idle stretches of the scope.

    Idle times of all ranks are needed to say how many share a stretch; what stood around it is read only for
    the ranks that are in the result, and only the host events that touch it.
    """
    idle = []
    for rank, _, tiling in scope.by_rank():
        idle.append(_idle(scope, rank, scope.activities(rank), tiling))
    if not idle:
        idle = [idle_segments(empty(ACTIVITIES), empty(EVENTS))]
    segments = pa.concat_tables(idle).unify_dictionaries()
    windows = scope.selection.windows
    bare = gaps(segments, empty(ACTIVITIES), empty(EVENTS), windows, top=top)
    ranks = sorted(set(bare.column("rank").to_pylist()))
    if not ranks:
        return bare
    names = [*TIMELINE, "name", "stream", "correlation", "start_ns", "end_ns", "recorded_end_ns", "valid"]
    activities = scope.ended(scope.read("activities", names, ranks=ranks))
    events = pa.concat_tables([_around(scope, rank, bare) for rank in ranks]).unify_dictionaries()
    return gaps(segments, activities, events, windows, top=top)


def _around(scope: Scope, rank: int, found: pa.Table) -> pa.Table:
    """Host events of a rank that touch one of its stretches."""
    mine = found.filter(pc.equal(found.column("rank"), rank))
    spans = list(zip(mine.column("start_ns").to_pylist(), mine.column("end_ns").to_pylist(), strict=True))
    kept = [empty(EVENTS).select(HOST_COLUMNS)]
    pieces = scope.store.pieces("events", columns=HOST_COLUMNS, cats=HOST_CATEGORIES, **scope.place([rank]))
    for piece in pieces:
        start = piece.column("start_ns")
        end = pc.add(start, pc.fill_null(piece.column("dur_ns"), 0))
        touching = [pc.and_(pc.less(start, high), pc.greater(end, low)) for low, high in spans]
        kept.append(piece.filter(reduce(pc.or_, touching)))
    return pa.concat_tables(kept)


def summary_table(rows: pa.Table) -> pa.Table:
    """Findings of the breakdown's rows of single windows."""
    return findings(rows)
