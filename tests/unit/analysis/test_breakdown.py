"""The breakdown of hand-made windows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from builders_analysis import act, activities, event, events, host_activities, window, windows

from rankscope.analysis.breakdown import breakdown
from rankscope.analysis.idle import idle_segments
from rankscope.store.errors import MissingColumn, UsageError
from rankscope.store.schema import BREAKDOWN, PARTS

EXPOSED = ("transfer_ns", "pipeline_wait_ns", "straggler_wait_ns", "unsplit_comm_ns")


def one(*acts: dict[str, Any], end: int = 100, **given: Any) -> dict[str, Any]:
    (row,) = breakdown(activities(*acts), windows(window(0, end)), **given).to_pylist()
    return row


def test_the_worked_example_of_the_methodology() -> None:
    row = one(act("compute", 0, 40), act("comm", 30, 70), act("compute", 60, 80), act("memcpy", 85, 95))
    assert [row[p] for p in PARTS] == [40, 20, 20, 10, 10]
    assert (row["compute_ns"], row["communication_ns"], row["memcpy_ns"]) == (60, 40, 10)
    assert row["overlap_ratio"] == 0.5
    assert [row[c] for c in EXPOSED] == [0, 0, 0, 20]
    assert (row["bubble_ns"], row["bubble_min_ns"], row["bubble_max_ns"]) == (None, 10, 30)
    assert row["unattributed_ns"] == 10
    assert (row["n"], row["is_comm_recorded"], row["pipeline_bubble_ns"]) == (1, True, 0)


def test_the_columns_are_the_schemas() -> None:
    table = breakdown(activities(act("compute", 0, 40)), windows(window(0, 100)))
    assert table.schema == BREAKDOWN.arrow
    assert breakdown(activities(), windows()).schema == BREAKDOWN.arrow


def test_compute_hides_copies_and_communication_hides_copies() -> None:
    row = one(act("memcpy", 0, 30), act("compute", 10, 20), act("comm", 20, 40))
    assert [row[p] for p in PARTS] == [10, 0, 20, 10, 60]
    assert row["memcpy_ns"] == 30


def test_activity_is_clipped_to_the_window_on_both_sides() -> None:
    row = one(act("compute", -50, 10), act("comm", 90, 300))
    assert [row[p] for p in PARTS] == [10, 0, 10, 0, 80]


def test_overlapping_activities_count_once() -> None:
    assert (
        one(act("compute", 0, 50), act("compute", 10, 60, stream=8), act("compute", 20, 30))["compute_ns"]
        == 60
    )


def test_invalid_and_empty_activities_enter_no_sum() -> None:
    assert one(act("compute", 0, 50, valid=False), act("comm", 20, 20))["idle_ns"] == 100


def test_without_communication_the_ratio_is_unknown_and_the_bubble_known() -> None:
    row = one(act("compute", 0, 40))
    assert row["overlap_ratio"] is None
    assert row["communication_ns"] == 0
    assert row["bubble_ns"] == row["bubble_min_ns"] == row["bubble_max_ns"] == 60


def test_communication_that_was_not_recorded_is_unknown() -> None:
    captures = pa.table({"world": ["0"], "rank": [0], "window": [0]})
    row = one(act("compute", 0, 40), unrecorded=captures)
    assert (row["communication_ns"], row["overlap_ratio"], row["is_comm_recorded"]) == (None, None, False)
    assert (row["exposed_comm_ns"], row["overlap_ns"], row["compute_ns"]) == (0, 0, 40)
    other = one(act("compute", 0, 40), unrecorded=captures.slice(0, 0))
    assert (other["communication_ns"], other["is_comm_recorded"]) == (0, True)


def test_a_group_of_one_transfers() -> None:
    row = one(act("comm", 0, 30, group_size=1), act("comm", 50, 60, group_size=8), act("compute", 20, 25))
    assert [row[c] for c in EXPOSED] == [25, 0, 0, 10]


def test_an_exposed_instant_belongs_to_the_call_that_ends_last() -> None:
    # [0,10) solo alone; [10,20) both, the large group ends last; [20,30) large alone
    row = one(act("comm", 0, 20, group_size=1), act("comm", 10, 30, group_size=8))
    assert [row[c] for c in EXPOSED] == [10, 0, 0, 20]
    # the solo call ends last: its own time and the shared time transfer
    row = one(act("comm", 0, 40, group_size=1), act("comm", 10, 30, group_size=8))
    assert [row[c] for c in EXPOSED] == [40, 0, 0, 0]
    # both end together: who owns it depends on roles, so it is not split
    row = one(act("comm", 0, 30, group_size=1), act("comm", 10, 30, group_size=8))
    assert [row[c] for c in EXPOSED] == [10, 0, 0, 20]


def test_causes_are_clipped_to_windows_and_folded() -> None:
    acts = activities(act("compute", 0, 10), act("compute", 60, 70, launch=60, correlation=3))
    hosts = events(
        event("cuda_runtime", "cudaMalloc", 10, 20),
        event("cuda_driver", "cuModuleLoadData", 20, 25),
        event("cpu_op", "c10d::wait_x", 25, 30),
        event("cpu_op", "aten::mm", 30, 50),
    )
    tiles = windows(window(0, 40, 1), window(40, 80, 2))
    idle = idle_segments(acts, hosts, windows=tiles)
    first, second = breakdown(acts, tiles, idle=idle).to_pylist()
    assert (first["host_dispatch_ns"], first["host_other_ns"]) == (10 + 5 + 10, 5)
    assert (second["host_dispatch_ns"], second["host_other_ns"], second["tail_ns"]) == (10, 10, 10)
    full = breakdown(acts, tiles, idle=idle, causes="full")
    first = full.to_pylist()[0]
    assert [first[c] for c in ("allocator_ns", "compile_ns", "host_comm_wait_ns")] == [10, 5, 5]
    assert (first["host_dispatch_ns"], first["host_other_ns"]) == (10, 0)
    assert full.column_names.index("allocator_ns") == full.column_names.index("unattributed_ns") + 1


def test_graph_gaps_are_idle_but_no_bubble() -> None:
    acts = activities(act("compute", 0, 10, correlation=4), act("compute", 30, 40, correlation=4))
    tiles = windows(window(0, 50))
    (row,) = breakdown(acts, tiles, idle=idle_segments(acts, events(), windows=tiles)).to_pylist()
    assert (row["graph_gap_ns"], row["idle_ns"], row["bubble_ns"]) == (20, 30, 10)


def test_host_timelines_have_rows_of_their_own() -> None:
    tiles = windows(window(0, 100, device=None, timeline="host"), window(0, 50))
    hosts = host_activities(("compute", 0, 40), ("comm", 30, 60))
    acts = activities(act("compute", 0, 10))
    idle = idle_segments(acts, events(), windows=tiles)
    host, device = breakdown(acts, tiles, idle=idle, host_activities=hosts).to_pylist()
    assert (host["timeline"], host["device"]) == ("host", None)
    assert [host[p] for p in PARTS] == [30, 10, 20, 0, 40]
    assert host["unattributed_ns"] == 40
    assert (device["timeline"], device["compute_ns"], device["tail_ns"]) == ("device", 10, 40)


def test_ranks_devices_and_captures_are_apart() -> None:
    acts = activities(
        act("compute", 0, 10),
        act("compute", 0, 20, rank=1),
        act("compute", 0, 30, device=1),
        act("compute", 0, 40, window=1),
        act("compute", 0, 50, world="b"),
    )
    tiles = windows(
        window(0, 60, world="b"),
        window(0, 60, window=1),
        window(0, 60, device=1),
        window(0, 60, rank=1),
        window(0, 60),
    )
    assert breakdown(acts, tiles).column("compute_ns").to_pylist() == [50, 40, 30, 20, 10]


def test_wrong_words_and_columns_are_named() -> None:
    with pytest.raises(UsageError, match="some"):
        breakdown(activities(), windows(), causes="some")
    with pytest.raises(MissingColumn, match="class"):
        breakdown(activities().drop_columns(["class"]), windows(window(0, 1)))
