"""Rules of idle causes, end to end: the gap between two kernels, with numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders_rules import call, causes, note, op, opened, steps, why
from builders_trace import kernel, launch

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
SYNC = "cudaStreamSynchronize"


def gap(
    folder: Path, events: list[dict[str, Any]], *, begin: float = 100, end: float = 150, at: float = 140
) -> dict[str, float]:
    """Causes of the idle time between a kernel that ends at `begin` and one that starts at `end`, launched
    at `at` by thread 100.
    """
    around = [
        launch(0, 1, tid=77),
        kernel("a", 50, begin - 50, corr=1),
        launch(at, 2),
        kernel("b", end, 10, corr=2),
    ]
    return why(opened(folder, [*around, *events]))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # the four worked examples of the method, and the launch call's own dispatch
        ([call(SYNC, 20, 81)], {"host_sync": 40, "launch_latency": 10}),
        ([note(LOADER, 100, 30), call("cudaFuncGetAttributes", 90, 49)],
         {"data_loading": 30, "host_dispatch": 9, "host_other": 1, "launch_latency": 10}),
        ([], {"host_other": 40, "launch_latency": 10}),
        ([op("aten::mm", 110, 40)], {"host_other": 10, "host_dispatch": 30, "launch_latency": 10}),
        # an annotation alone is nothing recorded
        ([note("forward", 90, 60)], {"host_other": 40, "launch_latency": 10}),
        # order of strength
        ([note("save checkpoint", 100, 10), note(LOADER, 100, 20), call("cudaMalloc", 100, 25), op("aten::mm", 100, 40)],
         {"checkpoint": 10, "data_loading": 10, "allocator": 5, "host_dispatch": 15, "launch_latency": 10}),
        ([call("cudaMalloc", 100, 10), call("cuModuleLoadData", 105, 15), call(SYNC, 90, 15)],
         {"allocator": 10, "compile": 10, "host_sync": 20, "launch_latency": 10}),
        ([op("c10d::wait_tensor", 100, 20), note("Garbage collection", 110, 20), op("aten::mm", 100, 40)],
         {"host_comm_wait": 20, "gc": 10, "host_dispatch": 10, "launch_latency": 10}),
        ([note("gc.collect", 100, 20), note(LOADER, 115, 10)],
         {"gc": 15, "data_loading": 10, "host_other": 15, "launch_latency": 10}),
        # a sync takes all that stronger rules leave, also after it ended
        ([call(SYNC, 90, 12), op("aten::mm", 110, 20), note("gc.collect", 130, 5), note(LOADER, 135, 5)],
         {"host_sync": 35, "data_loading": 5, "launch_latency": 10}),
        # a sync that starts inside is dispatch, as any call
        ([call(SYNC, 101, 20)], {"host_dispatch": 20, "host_other": 20, "launch_latency": 10}),
        # begin and end of the cover: from at or before the gap's begin to 2 us before it
        ([call(SYNC, 100, 5)], {"host_sync": 40, "launch_latency": 10}),
        ([call(SYNC, 90, 8)], {"host_sync": 40, "launch_latency": 10}),
        ([call(SYNC, 90, 7.999)], {"host_other": 40, "launch_latency": 10}),
        # other threads do not count
        ([call(SYNC, 90, 20, tid=77), op("aten::mm", 100, 40, tid=77), note(LOADER, 100, 40, tid=5)],
         {"host_other": 40, "launch_latency": 10}),
        ([op("aten::item", 80, 30)], {"host_sync": 40, "launch_latency": 10}),
        ([op("aten::_local_scalar_dense", 80, 30)], {"host_sync": 40, "launch_latency": 10}),
        ([op("aten::nonzero", 80, 30)], {"host_sync": 40, "launch_latency": 10}),
        ([call("cudaMemcpy", 80, 30)], {"host_sync": 40, "launch_latency": 10}),
        ([call("cudaMemcpyAsync", 80, 30)], {"host_dispatch": 10, "host_other": 30, "launch_latency": 10}),
        ([call("hipDeviceSynchronize", 80, 30)], {"host_sync": 40, "launch_latency": 10}),
        ([call("cudaEventSynchronize", 80, 30)], {"host_sync": 40, "launch_latency": 10}),
        ([call("cudaStreamWaitEvent", 80, 30)], {"host_dispatch": 10, "host_other": 30, "launch_latency": 10}),
        ([call("cudaFree", 100, 10), call("cudaHostAlloc", 120, 10)],
         {"allocator": 20, "host_other": 20, "launch_latency": 10}),
        # marks of PyTorch's own are annotations where old traces file them under the operators, too
        ([op("ProfilerStep#1", 40, 120), op(LOADER, 110, 10)],
         {"data_loading": 10, "host_other": 30, "launch_latency": 10}),
        # recomputing activations is no checkpoint
        ([note("activation_checkpoint", 100, 40)], {"host_other": 40, "launch_latency": 10}),
    ],
)  # fmt: skip
def test_what_the_issuing_thread_did_decides_the_hosts_part(
    tmp_path: Path, events: list[dict[str, Any]], expected: dict[str, float]
) -> None:
    assert gap(tmp_path, events) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (101.5, {"kernel_gap": 1.5}),
        (103, {"kernel_gap": 3}),
        (103.001, {"device_other": 3.001}),
        (150, {"device_other": 50}),
    ],
)
def test_queued_work_up_to_three_microseconds_apart_is_a_kernel_gap(
    tmp_path: Path, end: float, expected: dict[str, float]
) -> None:
    assert gap(tmp_path, [], end=end, at=90) == expected


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (100, {"device_other": 50}),
        (100.001, {"launch_latency": 49.999, "host_other": 0.001}),
        (150, {"host_other": 50}),
    ],
)
def test_launch_latency_begins_after_the_gap_does(
    tmp_path: Path, at: float, expected: dict[str, float]
) -> None:
    assert gap(tmp_path, [], at=at) == expected


def test_a_short_gap_with_a_late_launch_is_no_kernel_gap(tmp_path: Path) -> None:
    assert gap(tmp_path, [], end=102, at=101) == {"host_other": 1, "launch_latency": 1}


def sync_event(name: str, stream: int, corr: int, **args: Any) -> dict[str, Any]:
    return {**kernel(name, 60, 0, stream=stream, corr=corr, **args), "cat": "cuda_sync"}


def test_queued_work_that_was_told_to_wait_for_another_stream_is_a_dependency_wait(tmp_path: Path) -> None:
    waits = [
        call("cudaStreamWaitEvent", 40, 2, correlation=9),
        sync_event("Stream Wait Event", 7, 9, wait_on_stream=20),
    ]
    assert gap(tmp_path / "a", waits, at=50) == {"dependency_wait": 50}
    assert gap(tmp_path / "b", waits, at=50, end=102) == {"kernel_gap": 2}
    assert gap(tmp_path / "c", waits, at=30) == {"device_other": 50}
    other = [
        call("cudaStreamWaitEvent", 40, 2, correlation=9),
        sync_event("Stream Wait Event", 8, 9, wait_on_stream=20),
    ]
    assert gap(tmp_path / "d", other, at=50) == {"device_other": 50}
    blocking = [sync_event("Stream Sync", 7, 9)]
    assert gap(tmp_path / "e", blocking, at=50) == {"device_other": 50}


def test_work_without_a_launch_record_is_unattributed(tmp_path: Path) -> None:
    run = opened(tmp_path, [kernel("a", 0, 100), kernel("b", 150, 10), call(SYNC, 20, 81)])
    assert why(run) == {"unattributed": 50}


@pytest.mark.parametrize("bare_first", [True, False])
def test_of_several_activities_that_end_a_gap_those_without_launch_are_ignored(
    tmp_path: Path, bare_first: bool
) -> None:
    bare = kernel("bare", 150, 5, stream=1 if bare_first else 9)
    assert gap(tmp_path, [bare]) == {"host_other": 40, "launch_latency": 10}


def test_the_earliest_launch_of_those_that_end_the_gap_counts(tmp_path: Path) -> None:
    other = [launch(120, 3, tid=55), kernel("c", 150, 5, stream=9, corr=3), op("aten::mm", 110, 20, tid=55)]
    # launched at 120 by thread 55, which ran an operator from 110
    assert gap(tmp_path, other) == {"host_other": 10, "host_dispatch": 10, "launch_latency": 30}


def test_activities_of_no_length_neither_open_nor_close_a_gap(tmp_path: Path) -> None:
    events = [kernel("thin", 120, 0), launch(105, 8), kernel("thin", 150, 0, corr=8)]
    assert gap(tmp_path, events) == {"host_dispatch": 2, "host_other": 38, "launch_latency": 10}


# -- graphs ------------------------------------------------------------------------------------------------


def replay(corr: int | None, starts: list[float], stream: int = 7) -> list[dict[str, Any]]:
    return [kernel(f"node{i}", at, 10, corr=corr, stream=stream) for i, at in enumerate(starts)]


def graph_launch(at: float, corr: int) -> dict[str, Any]:
    return launch(at, corr, name="cudaGraphLaunch")


def test_gaps_inside_a_replay_are_graph_gaps_and_before_it_they_are_not(tmp_path: Path) -> None:
    events = [graph_launch(0, 1), *replay(1, [10, 30, 50]), graph_launch(65, 2), *replay(2, [80, 100])]
    # [20,30) [40,50) [90,100) inside; [60,80): launched at 65
    assert why(opened(tmp_path, events)) == {"graph_gap": 30, "host_other": 5, "launch_latency": 15}


def test_a_replay_without_launch_record_still_has_graph_gaps(tmp_path: Path) -> None:
    events = [*replay(5, [10, 30]), *replay(6, [60, 80])]
    assert why(opened(tmp_path, events)) == {"graph_gap": 20, "unattributed": 20}


def test_a_gap_that_ends_with_a_graph_node_and_other_launched_work_is_not_the_graphs(tmp_path: Path) -> None:
    events = [
        graph_launch(0, 1),
        *replay(1, [10, 50]),
        launch(40, 2),
        kernel("other", 50, 5, stream=9, corr=2),
    ]
    # gap [20,50): earliest launch is the graph's at 0, so the work was queued
    assert why(opened(tmp_path, events)) == {"device_other": 30}


def test_a_gap_that_ends_with_a_graph_node_and_work_without_launch_is_the_graphs(tmp_path: Path) -> None:
    # The second has no launch record: it is ignored, for graph gaps as for launches.
    events = [graph_launch(0, 1), *replay(1, [10, 50]), kernel("bare", 50, 5, stream=9, corr=99)]
    assert why(opened(tmp_path, events)) == {"graph_gap": 30}


def test_a_running_graph_without_launch_does_not_hide_the_launch_beside_it(tmp_path: Path) -> None:
    events = [*replay(5, [10, 50]), launch(40, 2), kernel("other", 50, 5, stream=9, corr=2)]
    assert why(opened(tmp_path, events)) == {"host_other": 20, "launch_latency": 10}


def test_a_graph_gap_is_outside_the_bubble(tmp_path: Path) -> None:
    (row,) = (
        opened(tmp_path, [graph_launch(0, 1), *replay(1, [10, 30])]).breakdown_table(steps="none").to_pylist()
    )
    assert (row["idle_ns"], row["graph_gap_ns"], row["bubble_ns"], row["bubble_min_ns"]) == (
        10_000,
        10_000,
        0,
        0,
    )


# -- edges -------------------------------------------------------------------------------------------------


def test_a_leading_gap_begins_with_the_window_and_the_last_one_is_tail(tmp_path: Path) -> None:
    events = [
        note("ProfilerStep#1", 0, 100),
        launch(30, 1),
        kernel("a", 40, 20, corr=1),
        op("aten::mm", 70, 20),
    ]
    run = opened(tmp_path, events)
    assert steps(run) == [(1, 0, 100)]
    assert why(run, steps="all") == {"host_other": 30, "launch_latency": 10, "tail": 40}


def test_a_sync_covers_a_leading_gap_by_the_same_test(tmp_path: Path) -> None:
    events = [note("ProfilerStep#1", 10, 100), call(SYNC, 0, 15), launch(30, 1), kernel("a", 40, 20, corr=1)]
    assert why(opened(tmp_path, events), steps="all") == {"host_sync": 20, "launch_latency": 10, "tail": 50}


def test_causes_are_decided_on_whole_gaps_and_clipped_to_windows(tmp_path: Path) -> None:
    # The gap [30,150) is covered by a sync that ended in step 1; its part in step 2 has the same cause.
    events = [note("ProfilerStep#1", 0, 100), note("ProfilerStep#2", 100, 100)]
    events += [
        launch(5, 1),
        kernel("a", 10, 20, corr=1),
        call(SYNC, 15, 20),
        launch(140, 2),
        kernel("b", 150, 50, corr=2),
    ]
    rows = opened(tmp_path, events).breakdown_table(by="step", steps="all").to_pylist()
    assert [causes(r) for r in rows] == [
        {"host_other": 5, "launch_latency": 5, "host_sync": 70},
        {"host_sync": 40, "launch_latency": 10},
    ]


def test_full_causes_take_their_columns_out_of_the_standard_ones(tmp_path: Path) -> None:
    events = [launch(0, 1), kernel("a", 50, 50, corr=1), launch(140, 2), kernel("b", 150, 10, corr=2)]
    events += [call("cudaMalloc", 100, 10), call("cuLibraryLoadData", 110, 5), op("c10d::work_wait", 115, 5)]
    run = opened(tmp_path, events)
    full = {"allocator": 10, "compile": 5, "host_comm_wait": 5, "host_other": 20, "launch_latency": 10}
    assert why(run) == full
    (row,) = run.breakdown_table(steps="none").to_pylist()
    assert causes(row) == {"host_dispatch": 15, "host_other": 25, "launch_latency": 10}


def test_correlation_zero_outside_graphs_is_no_identity(tmp_path: Path) -> None:
    none = {"graph id": 0, "graph node id": 0}
    events = [kernel("a", 0, 10, corr=0, **none), kernel("b", 30, 10, corr=0, **none)]
    assert why(opened(tmp_path, events)) == {"unattributed": 20}
