"""The analyses of a run: what each needs is read rank by rank, so that memory holds one rank at a time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from rankscope.analysis.aggregate import aggregate, default_keys
from rankscope.analysis.breakdown import STANDARD, breakdown
from rankscope.analysis.findings import findings
from rankscope.analysis.gaps import gaps
from rankscope.analysis.host_states import HOST_CATEGORIES, HOST_COLUMNS, host_events
from rankscope.analysis.idle import idle_segments
from rankscope.analysis.kernels import kernels
from rankscope.analysis.tables import TIMELINE
from rankscope.store.schema import ACTIVITIES, EVENTS, STEPS, Timeline, empty

from ._recorded import captures_of, unrecorded
from ._scope import Scope


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
    rows = breakdown(activities, windows, idle=idle, host_activities=hosts, causes=causes)
    starts = windows.select(["host_start_ns"]).column(0)
    unknown = unrecorded(scope, rank, rows.append_column("host_start_ns", starts), activities)
    if not any(unknown):
        return rows
    mask = pa.array(unknown)
    silent = windows.filter(mask)
    captures = captures_of(scope, rank, silent)
    again = breakdown(activities, silent, idle=idle, unrecorded=captures, causes=causes)
    return pa.concat_tables([rows.filter(pc.invert(mask)), again])


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


def breakdown_table(rows: pa.Table, by: str | Iterable[str] | None = None, *, mean: bool = False) -> pa.Table:
    """Rows of `breakdown_rows` summed by keys: rank and device when None, and the phase where there are phases."""
    keys = default_keys(rows) if by is None else [by] if isinstance(by, str) else list(by)
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
