"""Rules of sums, bubble ranges and the tables of gaps, kernels and launches, with numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders_rules import US, five, note, op, opened, opened_ranks, whole
from builders_trace import NCCL, host, kernel, launch, memcpy, trace, write

import rankscope

GEMM = "gemm"


def two_steps(extra: float = 0, at: float = 0) -> list[dict[str, Any]]:
    """Steps 1 and 2 of 100 us: compute [10,30+extra), communication [20,60) and [10,30), [40,50)."""
    events = [note("ProfilerStep#1", at, 100), note("ProfilerStep#2", at + 100, 100)]
    events += [launch(at + 5, 1), kernel(GEMM, at + 10, 20 + extra, corr=1)]
    events += [launch(at + 6, 2), kernel(NCCL, at + 20, 40, stream=20, corr=2)]
    events += [launch(at + 105, 3), kernel(GEMM, at + 110, 20, corr=3)]
    events += [launch(at + 106, 4), kernel(NCCL, at + 140, 10, stream=20, corr=4)]
    return events


def test_sums_are_exact_and_ratios_come_from_the_sums(tmp_path: Path) -> None:
    (row,) = opened(tmp_path, two_steps()).breakdown_table(steps="all").to_pylist()
    # step 1: 10, 10, 30, 0, 50; step 2: 20, 0, 10, 0, 70
    assert five(row) == (30, 10, 40, 0, 120)
    assert (row["n"], row["wall_ns"], row["communication_ns"]) == (2, 200 * US, 50 * US)
    assert row["overlap_ratio"] == 0.2  # not the mean of 0.25 and 0
    assert (row["bubble_ns"], row["bubble_min_ns"], row["bubble_max_ns"]) == (None, 120 * US, 160 * US)
    assert row["unsplit_comm_ns"] == 40 * US


def test_means_are_sums_over_windows_in_milliseconds(tmp_path: Path) -> None:
    (row,) = opened(tmp_path, two_steps()).breakdown_table(steps="all", mean=True).to_pylist()
    assert (row["wall_ms"], row["compute_only_ms"], row["overlap_ms"]) == (0.1, 0.015, 0.005)
    assert (row["exposed_comm_ms"], row["idle_ms"], row["overlap_ratio"]) == (0.02, 0.06, 0.2)
    assert row["bubble_ms"] is None
    assert not [c for c in row if c.endswith("_ns")]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("run", [(4, 400)]),
        ("rank", [(2, 200), (2, 200)]),
        ("step", [(2, 200), (2, 200)]),
        ("device", [(4, 400)]),
        ("world", [(4, 400)]),
        ("window", [(4, 400)]),
        (["rank", "step"], [(1, 100)] * 4),
        ("phase", [(4, 400)]),
        ("host", [(4, 400)]),
        ("coords", [(4, 400)]),
    ],
)
def test_rows_can_be_summed_by_every_key(tmp_path: Path, by: Any, expected: list[tuple[int, int]]) -> None:
    run = opened_ranks(tmp_path, [two_steps(), two_steps(5)])
    rows = run.breakdown_table(by=by, steps="all").to_pylist()
    assert [(r["n"], r["wall_ns"] // US) for r in rows] == expected
    assert sum(r["compute_ns"] for r in rows) == 85 * US


def test_a_sum_over_an_unknown_communication_is_unknown(tmp_path: Path) -> None:
    silent = [op("record_param_comms", 0, 5, **{"Collective name": "allreduce"}), kernel(GEMM, 10, 90)]
    run = opened_ranks(tmp_path, [[kernel(GEMM, 0, 40), kernel(NCCL, 30, 40, stream=2)], silent])
    rows = {r["rank"]: r for r in run.breakdown_table(steps="none").to_pylist()}
    assert [rows[r]["communication_ns"] for r in (0, 1)] == [40 * US, None]
    (total,) = run.breakdown_table(by="run", steps="none").to_pylist()
    assert (total["communication_ns"], total["overlap_ratio"], total["is_comm_recorded"]) == (
        None,
        None,
        False,
    )
    assert (total["exposed_comm_ns"], total["overlap_ns"]) == (30 * US, 10 * US)


def test_device_and_host_rows_are_never_summed(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", trace([kernel(GEMM, 0, 40)], world_size=2))
    write(tmp_path / "rank1.json", trace([op("aten::mm", 0, 30)], rank=1, world_size=2))
    rows = rankscope.open(str(tmp_path), cache=False).breakdown_table(by="run", steps="none").to_pylist()
    assert [(r["timeline"], r["wall_ns"] // US) for r in rows] == [("device", 40), ("host", 30)]


def test_the_bubble_is_exact_without_unsplit_communication(tmp_path: Path) -> None:
    events = [kernel(GEMM, 0, 40), memcpy(40, 20), kernel(GEMM, 90, 10)]
    (row,) = opened(tmp_path, events).breakdown_table(steps="none").to_pylist()
    assert (row["bubble_ns"], row["bubble_min_ns"], row["bubble_max_ns"]) == (30 * US,) * 3
    assert row["overlap_ratio"] is None
    assert (row["communication_ns"], row["memcpy_ns"]) == (0, 20 * US)


def test_a_group_of_one_transfers_and_leaves_no_range(tmp_path: Path) -> None:
    args = {"Collective name": "allreduce", "Group size": 1}
    events = [kernel(GEMM, 0, 40), kernel(NCCL, 30, 40, stream=2, **args)]
    (row,) = opened(tmp_path, events).breakdown_table(steps="none").to_pylist()
    assert (row["exposed_comm_ns"], row["transfer_ns"], row["unsplit_comm_ns"]) == (30 * US, 30 * US, 0)
    assert row["bubble_ns"] == 0


def test_fewer_ranks_are_the_same_rows(tmp_path: Path) -> None:
    run = opened_ranks(tmp_path, [two_steps(), two_steps(5)])
    both = run.breakdown_table(steps="all").to_pylist()
    assert run.breakdown_table(steps="all", ranks=1).to_pylist() == both[1:]


# -- gaps --------------------------------------------------------------------------------------------------


def test_a_gap_names_its_cause_frame_and_neighbors(tmp_path: Path) -> None:
    events = [
        launch(0, 1), kernel("first", 10, 90, corr=1), launch(190, 2), kernel("second", 200, 10, corr=2),
        host("python_function", "train.py(10): main", 0, 400), host("python_function", "train.py(20): prepare", 110, 70),
        host("python_function", "other.py(1): elsewhere", 100, 90, tid=5), op("aten::cat", 120, 40),
        launch(205, 3), kernel("third", 250, 10, corr=3),
    ]  # fmt: skip
    rows = opened(tmp_path, events).gaps_table(steps="none").to_pylist()
    assert [(r["start_ns"] / US, r["end_ns"] / US) for r in rows] == [(100, 200), (210, 250)]
    first = rows[0]
    # [100,190) host: dispatch [120,160) = 40, other 50; latency 10
    assert (first["cause"], first["host_frame"]) == ("host_other", "train.py(20): prepare")
    assert (first["previous_kernel"], first["next_kernel"], first["on_ranks"]) == ("first", "second", 1)
    assert rows[1]["cause"] == "device_other"


def test_the_innermost_python_frame_is_named_before_operators(tmp_path: Path) -> None:
    events = [launch(0, 1), kernel("a", 10, 90, corr=1), launch(190, 2), kernel("b", 200, 10, corr=2)]
    events += [
        host("python_function", "outer", 90, 200),
        host("python_function", "inner", 95, 90),
        op("aten::mm", 100, 85),
    ]
    (row,) = opened(tmp_path, events).gaps_table(steps="none").to_pylist()
    assert (row["cause"], row["host_frame"]) == ("host_dispatch", "inner")
    bare = [e for e in events if e["cat"] != "python_function"]
    (row,) = opened(tmp_path / "bare", bare).gaps_table(steps="none").to_pylist()
    assert row["host_frame"] == "aten::mm"


def test_a_gap_over_a_step_boundary_is_a_row_in_each_step(tmp_path: Path) -> None:
    rows = opened(tmp_path, two_steps()).gaps_table(steps="all").to_pylist()
    got = {(r["step"], r["start_ns"] / US, r["end_ns"] / US) for r in rows}
    assert got == {(1, 0, 10), (1, 60, 100), (2, 100, 110), (2, 130, 140), (2, 150, 200)}
    assert [r["end_ns"] - r["start_ns"] for r in rows] == [50_000, 40_000, 10_000, 10_000, 10_000]
    assert rows[0]["cause"] == "tail"


def test_ranks_that_idle_at_the_same_time_are_counted(tmp_path: Path) -> None:
    def busy(*spans: tuple[float, float]) -> list[dict[str, Any]]:
        return [kernel(GEMM, a, b - a) for a, b in spans]

    ranks = [busy((0, 10), (50, 60)), busy((0, 30), (50, 60)), busy((0, 31), (50, 60)), busy((0, 60))]
    rows = opened_ranks(tmp_path, ranks).gaps_table(steps="none").to_pylist()
    # rank 0 idles [10,50): rank 1 for 20 of 40 (half: shares), rank 2 for 19, rank 3 never
    assert [(r["rank"], r["on_ranks"]) for r in rows] == [(0, 2), (1, 3), (2, 3)]


def test_as_many_gaps_as_asked_for_longest_first(tmp_path: Path) -> None:
    events = [kernel(GEMM, at, 5) for at in (0, 10, 30, 70, 80)]
    rows = opened(tmp_path, events).gaps_table(steps="none", top=2).to_pylist()
    assert [r["dur_ns"] / US for r in rows] == [35, 15]


# -- kernels -----------------------------------------------------------------------------------------------


def test_kernels_are_counted_with_percentiles_by_nearest_rank(tmp_path: Path) -> None:
    events = [kernel(GEMM, 1000 * i, i) for i in range(1, 101)] + [kernel("norm", 500, 50)]
    first, second = opened(tmp_path, events).kernels_table(steps="none").to_pylist()
    assert (first["name"], first["class"], first["rule"]) == (GEMM, "compute", "name:matrix_multiply")
    assert (first["count"], first["total_ns"], first["mean_ns"]) == (100, 5050 * US, 50.5 * US)
    assert (first["p50_ns"], first["p99_ns"]) == (50 * US, 99 * US)
    assert first["share_ratio"] == 5050 / 5100
    assert (first["rank_spread_ratio"], first["slowdown_under_comm_ratio"]) == (None, None)
    assert (second["name"], second["total_ns"]) == ("norm", 50 * US)


def test_the_spread_over_ranks_and_the_slowdown_under_communication(tmp_path: Path) -> None:
    plain = [kernel(GEMM, 0, 10), kernel(GEMM, 20, 10), kernel(GEMM, 100, 15), kernel(NCCL, 90, 40, stream=2)]
    run = opened_ranks(tmp_path, [plain, [kernel(GEMM, 0, 14), kernel(GEMM, 20, 14)]])
    row = next(r for r in run.kernels_table(steps="none").to_pylist() if r["name"] == GEMM)
    # rank 0: mean 35/3, rank 1: 14; alone 10, 10, 14, 14 = mean 12, under communication 15
    assert row["rank_spread_ratio"] == pytest.approx(14 / (35 / 3) - 1)
    assert row["slowdown_under_comm_ratio"] == pytest.approx(15 / 12)
    assert row["n_ranks"] == 2
    comm = next(r for r in run.kernels_table(steps="none").to_pylist() if r["name"] == NCCL)
    assert (comm["class"], comm["rule"]) == ("comm", "name:nccl_dev_kernel")
    assert (comm["slowdown_under_comm_ratio"], comm["rank_spread_ratio"]) == (None, None)


def test_kernels_of_the_chosen_steps_only(tmp_path: Path) -> None:
    rows = opened(tmp_path, two_steps()).kernels_table(steps=[2]).to_pylist()
    assert {r["name"]: r["total_ns"] / US for r in rows} == {GEMM: 20, NCCL: 10}


# -- links -------------------------------------------------------------------------------------------------


def test_one_graph_launch_has_many_activities_and_its_delay_is_the_firsts(tmp_path: Path) -> None:
    events = [launch(0, 5, name="cudaGraphLaunch")]
    events += [
        kernel(f"n{i}", 10 + 10 * i, 5, corr=5, **{"graph id": 3, "graph node id": i}) for i in range(6)
    ]
    run = opened(tmp_path, events)
    (row,) = run.table("launches").to_pylist()
    assert (row["n_activities"], row["launch_delay_ns"]) == (6, 10 * US)
    assert {r["launch_id"] for r in run.table("activities").to_pylist()} == {0}
    assert len(run.kernels_table(steps="none").to_pylist()) == 6


def test_the_operator_of_an_activity_is_found_by_thread_and_time(tmp_path: Path) -> None:
    events = [
        op("aten::linear", 0, 50, **{"External id": 1}), op("aten::addmm", 5, 20, **{"External id": 2}),
        op("aten::relu", 0, 50, tid=9, **{"External id": 7}), launch(10, 7), launch(30, 8), launch(60, 9),
        *(kernel(f"k{c}", 100 + 10 * c, 5, corr=c, **{"External id": 7}) for c in (7, 8, 9)),
    ]  # fmt: skip
    rows = opened(tmp_path, events).table("activities").to_pylist()
    assert {r["name"]: r["op"] for r in rows} == {"k7": "aten::addmm", "k8": "aten::linear", "k9": None}


def test_a_child_that_ends_up_to_a_microsecond_later_is_still_inside(tmp_path: Path) -> None:
    # Host timeline: the child of [0,60) ends at 61; only the outermost operator counts.
    events = [op("outer", 0, 60), op("child", 30, 31), op("late", 100, 10), op("out", 105, 7)]
    # "out" ends 2 us after "late": no child, both count: [0,60) [100,112)
    top = {"deviceProperties": [], "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 1}}
    run = opened(tmp_path, events, top=top)
    assert whole(run) == (72, 0, 0, 0, 40)


def test_legacy_categories_and_display_unit_change_nothing(tmp_path: Path) -> None:
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime", "cpu_op": "Operator"}
    events = [
        op("aten::mm", 0, 9),
        launch(2, 1),
        kernel(GEMM, 10, 10, corr=1),
        memcpy(30, 5),
        kernel(NCCL, 15, 10),
    ]
    legacy = [{**e, "cat": old.get(e["cat"], e["cat"])} for e in events]
    assert whole(opened(tmp_path / "new", events)) == (5, 5, 5, 5, 5)
    assert whole(opened(tmp_path / "old", legacy, top={"displayTimeUnit": "ns"})) == (5, 5, 5, 5, 5)


def test_string_times_and_bare_arrays_read_alike(tmp_path: Path) -> None:
    events = [kernel(GEMM, 0, 10), kernel(NCCL, 5, 10, stream=2)]
    for event in events:
        event["ts"] = f"{1_700_000_000_000_000 + event['ts']}.001"
    path = write(tmp_path / "rank0.json", json.dumps(events))
    assert whole(rankscope.open(str(path), cache=False)) == (5, 5, 5, 0, 0)


def test_the_order_of_events_changes_nothing(tmp_path: Path) -> None:
    events = two_steps()
    forward = opened(tmp_path / "a", events).breakdown_table(by="step", steps="all")
    backward = opened(tmp_path / "b", events[::-1]).breakdown_table(by="step", steps="all")
    assert forward.equals(backward)


def test_windows_of_one_rank_are_summed_and_selected(tmp_path: Path) -> None:
    for window, at in ((10, 0), (20, 1_000_000)):
        for rank in (0, 1):
            path = tmp_path / f"iteration_{window}" / f"rank{rank}_trace.json"
            write(path, trace(two_steps(window + rank, at), rank=rank, world_size=2))
    run = rankscope.open(str(tmp_path), cache=False)
    rows = run.breakdown_table(by=["rank", "window", "step"], steps="all").to_pylist()
    assert [(r["rank"], r["window"], r["step"]) for r in rows] == [
        (r, w, s) for r in (0, 1) for w in (0, 1) for s in (1, 2)
    ]
    (row,) = run.breakdown_table(by="run", steps="all", window=1).to_pylist()
    assert (row["n"], row["wall_ns"]) == (4, 400 * US)
