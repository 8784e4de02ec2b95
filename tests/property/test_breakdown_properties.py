"""T1 to T11 of the methodology on random programs: activities, launches, host ranges, windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from builders_analysis import LAST, Act, Program, programs, shuffled
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.analysis.aggregate import aggregate
from rankscope.analysis.breakdown import breakdown
from rankscope.analysis.idle import idle_segments
from rankscope.store.schema import PARTS

FEW = settings(max_examples=40, deadline=None)
CALENDAR = 1_700_000_000_000_000_000


def account(program: Program, *, scale: int = 1, seed: int | None = None, **given_: Any) -> pa.Table:
    """The breakdown with idle causes."""
    acts, events, windows = program.activities(), program.events(), program.windows()
    if seed is not None:
        acts, events = shuffled(acts, seed), shuffled(events, seed)
    idle = idle_segments(acts, events, windows=windows, kernel_gap_ns=3 * scale, sync_slack_ns=2 * scale)
    return breakdown(acts, windows, idle=idle, **given_)


def rows(program: Program, **given_: Any) -> list[dict[str, Any]]:
    return account(program, **given_).to_pylist()


def times(row: dict[str, Any]) -> dict[str, int | None]:
    return {c: v for c, v in row.items() if c.endswith("_ns")}


@FEW
@given(programs(launched=True))
def test_t1_leaves_sum_to_the_window(program: Program) -> None:
    for row in rows(program):
        assert sum(row[p] for p in PARTS) == row["wall_ns"]
        assert row["wall_ns"] == sum(
            row[c] for c in ("compute_only_ns", "overlap_ns", "transfer_ns", "unsplit_comm_ns", "exposed_memcpy_ns",
                             "graph_gap_ns", "bubble_min_ns")
        )  # fmt: skip


@FEW
@given(programs(launched=True), st.integers(0, 99))
def test_t2_the_order_of_rows_changes_nothing(program: Program, seed: int) -> None:
    assert rows(program, seed=seed) == rows(program)


@FEW
@given(programs(launched=True), st.sampled_from((CALENDAR, -CALENDAR, 12345)))
def test_t3_a_shift_of_all_times_changes_nothing(program: Program, shift: int) -> None:
    assert rows(program.moved(shift)) == rows(program)


@FEW
@given(programs(launched=True), st.integers(2, 1000))
def test_t4_scaled_times_scale_every_leaf(program: Program, factor: int) -> None:
    scaled = rows(program.mapped(lambda t: t * factor), scale=factor)
    for row, larger in zip(rows(program), scaled, strict=True):
        assert times(larger) == {c: None if v is None else v * factor for c, v in times(row).items()}
        assert larger["overlap_ratio"] == row["overlap_ratio"]


@FEW
@given(programs(launched=True))
def test_t5_leaves_of_a_split_window_add(program: Program) -> None:
    whole = account(replace(program, cuts=(0, LAST)))
    split = aggregate(account(program), ["rank"])
    assert {c: v for c, v in split.to_pylist()[0].items() if c in times(whole.to_pylist()[0])} == times(
        whole.to_pylist()[0]
    )


@FEW
@given(programs(), st.integers(0, 9), st.integers(1, 7))
def test_t6_cutting_an_activity_in_two_changes_nothing(program: Program, which: int, after: int) -> None:
    if not program.acts:
        return
    a = program.acts[which % len(program.acts)]
    middle = min(a.start + after, a.end)
    pieces = (replace(a, end=middle), replace(a, start=middle))
    cut = replace(program, acts=(*(x for x in program.acts if x is not a), *pieces))
    # who owns an exposed instant depends on where a call ends, so groups of one are left out here
    plain = [replace(p, acts=tuple(replace(x, group_size=None) for x in p.acts)) for p in (program, cut)]
    assert rows(plain[1]) == rows(plain[0])


@FEW
@given(programs(), st.integers(0, 9), st.integers(0, 3), st.integers(0, 3))
def test_t7_an_activity_inside_one_of_its_class_changes_nothing(
    program: Program, which: int, later: int, earlier: int
) -> None:
    if not program.acts:
        return
    a = replace(program.acts[which % len(program.acts)], group_size=None, valid=True)
    inner = replace(
        a, start=min(a.start + later, a.end), end=max(a.end - earlier, min(a.start + later, a.end))
    )
    base = replace(program, acts=(*(replace(x, group_size=None) for x in program.acts), a))
    assert rows(replace(base, acts=(*base.acts, inner))) == rows(base)


@FEW
@given(programs(launched=True))
def test_t8_the_names_of_streams_do_not_matter(program: Program) -> None:
    names = {7: 131, 20: 2}
    acts = tuple(replace(a, stream=names[a.stream]) for a in program.acts)
    waits = tuple((names[s], t) for s, t in program.waits)
    assert rows(replace(program, acts=acts, waits=waits)) == rows(program)


@FEW
@given(programs())
def test_t9_the_overlap_ratio_is_a_ratio(program: Program) -> None:
    for row in rows(program):
        assert (row["overlap_ratio"] is None) == (row["communication_ns"] == 0)
        assert row["overlap_ratio"] is None or 0 <= row["overlap_ratio"] <= 1


@FEW
@given(programs(), st.integers(0, LAST), st.integers(0, 10))
def test_t10_more_compute_never_exposes_more_communication(program: Program, start: int, length: int) -> None:
    more = replace(program, acts=(*program.acts, Act("compute", start, min(start + length, LAST))))
    for row, with_more in zip(rows(program), rows(more), strict=True):
        assert with_more["exposed_comm_ns"] <= row["exposed_comm_ns"]


def with_rank(table: pa.Table, rank: int) -> pa.Table:
    at = table.column_names.index("rank")
    return table.set_column(at, "rank", pa.array([rank] * table.num_rows, pa.int64()))


@FEW
@given(programs(launched=True), programs(launched=True))
def test_t11_ranks_do_not_touch_one_another(first: Program, second: Program) -> None:
    both = [
        pa.concat_tables([getattr(first, name)(), with_rank(getattr(second, name)(), 1)])
        for name in ("activities", "events", "windows")
    ]
    idle = idle_segments(both[0], both[1], windows=both[2], kernel_gap_ns=3, sync_slack_ns=2)
    together = [times(r) for r in breakdown(both[0], both[2], idle=idle).to_pylist()]
    assert together == [times(r) for p in (first, second) for r in rows(p)]


@FEW
@given(programs(launched=True), programs(launched=True))
def test_sums_of_sums_are_sums(first: Program, second: Program) -> None:
    tables = [account(first), with_rank(account(second), 1)]
    together = aggregate(pa.concat_tables(tables), ["run"]).to_pylist()
    assert aggregate(aggregate(pa.concat_tables(tables), ["rank"]), ["run"]).to_pylist() == together
