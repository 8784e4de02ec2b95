"""The longest idle stretches and what stood around them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from builders_analysis import act, activities, event, events, shuffled, window, windows

from rankscope.analysis.gaps import gaps
from rankscope.analysis.idle import idle_segments
from rankscope.store.schema import CAUSES

ACTS = [
    act("compute", 0, 100, name="first", launch=0, correlation=1),
    act("compute", 150, 200, name="second", launch=140, correlation=2),
    act("comm", 220, 300, name="third", launch=150, correlation=3),
]
HOST = [
    event("python_function", "train.py(1): main", 0, 300),
    event("python_function", "train.py(7): forward", 95, 132),
    event("cpu_op", "aten::mm", 100, 130),
    event("cpu_op", "aten::mm_inner", 105, 129),
    event("user_annotation", "phase", 90, 400),
    event("cuda_runtime", "cudaLaunchKernel", 140, 142),
]
TILES = windows(window(0, 120, 1), window(120, 310, 2))


def found(
    acts: list[dict[str, Any]] = ACTS,
    host: list[dict[str, Any]] = HOST,
    tiles: pa.Table = TILES,
    **given: Any,
):  # type: ignore[no-untyped-def]
    table, hosts = activities(*acts), events(*host)
    idle = idle_segments(table, hosts, windows=tiles, kernel_gap_ns=3, sync_slack_ns=2)
    return gaps(idle, table, hosts, tiles, **given).to_pylist()


def test_stretches_are_clipped_to_steps_and_come_longest_first() -> None:
    rows = found()
    assert [(r["step"], r["start_ns"], r["end_ns"], r["dur_ns"]) for r in rows] == [
        (2, 120, 150, 30),
        (1, 100, 120, 20),
        (2, 200, 220, 20),
        (2, 300, 310, 10),
    ]
    assert [(r["gap_start_ns"], r["gap_end_ns"]) for r in rows[:2]] == [(100, 150), (100, 150)]
    assert [r["dur_ns"] for r in found(top=2)] == [30, 20]


def test_the_split_sums_to_the_stretch_and_names_the_largest_cause() -> None:
    rows = found()
    for row in rows:
        assert sum(row[c] for c in CAUSES) == row["dur_ns"]
    # [120,130) operator, [130,140) nothing, [140,150) latency: a tie of three, the first in order is named
    assert (rows[0]["host_dispatch_ns"], rows[0]["host_other_ns"], rows[0]["launch_latency_ns"]) == (
        10,
        10,
        10,
    )
    assert [r["cause"] for r in rows] == ["host_dispatch", "host_dispatch", "device_other", "tail"]


def test_kernels_before_and_after() -> None:
    assert [(r["previous_kernel"], r["next_kernel"]) for r in found()] == [
        ("first", "second"),
        ("first", "second"),
        ("second", "third"),
        ("third", None),
    ]


def test_the_innermost_python_frame_is_named_then_the_innermost_operator() -> None:
    rows = found()
    assert rows[0]["host_frame"] == "train.py(7): forward"  # at 125
    assert rows[2]["host_frame"] == "train.py(1): main"  # at 210
    assert rows[3]["host_frame"] is None  # no launch, no thread
    no_stacks = found(host=[e for e in HOST if e["cat"] != "python_function"])
    assert [r["host_frame"] for r in no_stacks] == ["aten::mm_inner", "aten::mm_inner", "phase", None]


def test_ranks_idle_for_at_least_half_of_it_in_the_same_step_are_counted() -> None:
    def rank(r: int, *busy: tuple[int, int]) -> list[dict[str, Any]]:
        return [act("compute", s, e, rank=r) for s, e in busy]

    # rank 0 is idle [10,30); rank 1 [15,25) half of it; rank 2 [16,25) less; rank 3 in another step
    acts = [
        *rank(0, (0, 10), (30, 40)),
        *rank(1, (0, 15), (25, 40)),
        *rank(2, (0, 16), (25, 40)),
        *rank(3, (0, 10), (30, 40)),
    ]
    tiles = windows(*(window(0, 40, 2 if r == 3 else 1, rank=r) for r in range(4)))
    rows = found(acts, [], tiles)
    assert [(r["rank"], r["dur_ns"], r["on_ranks"]) for r in rows] == [
        (0, 20, 2),
        (3, 20, 1),
        (1, 10, 3),
        (2, 9, 3),
    ]


def test_the_order_of_rows_changes_nothing() -> None:
    table, hosts = activities(*ACTS), events(*HOST)
    idle = idle_segments(table, hosts, windows=TILES)
    mixed = gaps(shuffled(idle, 1), shuffled(table, 2), shuffled(hosts, 3), TILES)
    assert mixed.to_pylist() == gaps(idle, table, hosts, TILES).to_pylist()


def test_host_windows_and_empty_runs_have_no_gaps() -> None:
    tiles = windows(window(0, 100, device=None, timeline="host"))
    table = gaps(idle_segments(activities(), events(), windows=tiles), activities(), events(), tiles)
    assert table.num_rows == 0
    assert {
        "step",
        "start_ns",
        "end_ns",
        "cause",
        "host_frame",
        "previous_kernel",
        "next_kernel",
        "on_ranks",
    } <= set(table.column_names)
