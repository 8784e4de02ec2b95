"""Causes of idle time: the worked examples of the methodology, and each decision that makes the split unique."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from builders_analysis import act, activities, event, events, window, windows

from rankscope.analysis.idle import idle_segments
from rankscope.store.errors import MissingColumn

US = 1000
SYNC = "cudaStreamSynchronize"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def kernel(start: float, end: float, **given: Any) -> dict[str, Any]:
    launch = given.pop("launch", None)
    if launch is not None:
        given["launch"] = round(launch * US)
    return act("compute", round(start * US), round(end * US), **given)


def host(cat: str, name: str, start: float, end: float, **given: Any) -> dict[str, Any]:
    return event(cat, name, round(start * US), round(end * US), **given)


def causes(acts: list[dict[str, Any]], hosts: list[dict[str, Any]], **given: Any) -> list[tuple[str, float]]:
    rows = idle_segments(activities(*acts), events(*hosts), **given).to_pylist()
    return [(r["cause"], (r["end_ns"] - r["start_ns"]) / US) for r in rows]


def gap(end: float = 150, launch: float | None = None, **given: Any) -> list[dict[str, Any]]:
    """Busy [0,100), idle [100, end), then a kernel launched at `launch`."""
    return [kernel(0, 100), kernel(end, end + 10, launch=launch, correlation=5, **given)]


def test_a_covering_sync_takes_the_host_part_and_the_launch_its_latency() -> None:
    # gap [100,150), launch at 140, stream sync [20,101): sync 40, launch latency 10
    assert causes(gap(launch=140), [host("cuda_runtime", SYNC, 20, 101)]) == [
        ("host_sync", 40),
        ("launch_latency", 10),
    ]


def test_data_loading_then_dispatch_then_nothing_then_latency() -> None:
    # DataLoader [100,130), a call [90,139), launch at 140: data 30, dispatch 9, other 1, latency 10
    hosts = [host("user_annotation", LOADER, 100, 130), host("cuda_runtime", "cudaLaunchKernel", 90, 139)]
    assert causes(gap(launch=140), hosts) == [
        ("data_loading", 30),
        ("host_dispatch", 9),
        ("host_other", 1),
        ("launch_latency", 10),
    ]


def test_queued_work_a_moment_later_is_a_kernel_gap() -> None:
    assert causes(gap(end=101.5, launch=90), []) == [("kernel_gap", 1.5)]
    assert causes(gap(end=103, launch=90), []) == [("kernel_gap", 3)]
    assert causes(gap(end=103.001, launch=90), []) == [("device_other", 3.001)]
    assert causes(gap(end=101.5, launch=90), [], kernel_gap_ns=1000) == [("device_other", 1.5)]


def wait_event(stream: int, when: float, **given: Any) -> dict[str, Any]:
    given = {"correlation": 77, "wait_on_stream": 20, "wait_on_correlation": 3, "device": 0} | given
    return host(
        "cuda_sync", "Stream Wait Event", when, when + 1, pid="0", tid=str(stream), stream=stream, **given
    )


def test_queued_work_on_a_stream_told_to_wait_is_a_dependency_wait() -> None:
    assert causes(gap(launch=50), [wait_event(7, 45)]) == [("dependency_wait", 50)]


def test_only_the_first_work_after_the_wait_depends_on_it() -> None:
    acts = [kernel(0, 100, launch=20, correlation=1), *gap(launch=50)[1:]]
    assert causes(acts, [wait_event(7, 10)]) == [("device_other", 50)]
    assert causes(acts, [wait_event(7, 30)]) == [("dependency_wait", 50)]
    assert causes(acts, [wait_event(20, 30)]) == [("device_other", 50)]
    assert causes(acts, [wait_event(7, 60)]) == [("device_other", 50)]
    assert causes(acts, [wait_event(7, 30, wait_on_stream=7)]) == [("device_other", 50)]


@pytest.mark.parametrize("step", [1, -1])
def test_work_without_length_does_not_take_the_wait_from_the_work_it_starts_with(step: int) -> None:
    acts = [*gap(launch=50), kernel(150, 150, launch=50, correlation=5)][::step]
    assert causes(acts, [wait_event(7, 45)]) == [("dependency_wait", 50)]


def test_the_time_of_a_wait_is_its_host_calls() -> None:
    # The device record of the wait is later than the launch; the call that made it was before.
    hosts = [wait_event(7, 99), host("cuda_runtime", "cudaStreamWaitEvent", 40, 42, correlation=77)]
    assert causes(gap(launch=50), hosts) == [("dependency_wait", 50)]
    assert causes(gap(launch=50), hosts[:1]) == [("device_other", 50)]


def test_work_without_a_launch_record_is_unattributed() -> None:
    assert causes(gap(), [host("cuda_runtime", SYNC, 20, 101)]) == [("unattributed", 50)]


@pytest.mark.parametrize(("sync_end", "cause"), [(98, "host_sync"), (97.999, "host_other")])
def test_a_sync_covers_the_gap_until_two_microseconds_after_its_end(sync_end: float, cause: str) -> None:
    assert causes(gap(launch=150), [host("cuda_runtime", SYNC, 20, sync_end)]) == [(cause, 50)]


def test_a_sync_that_starts_inside_the_gap_is_no_cause() -> None:
    hosts = [host("cuda_runtime", SYNC, 100.001, 140)]
    got = causes(gap(launch=150), hosts)
    assert [c for c, _ in got] == ["host_other", "host_dispatch", "host_other"]


@pytest.mark.parametrize(
    ("cat", "name"),
    [
        ("cuda_runtime", "cudaDeviceSynchronize"),
        ("cuda_runtime", "cudaEventSynchronize"),
        ("cuda_runtime", "cudaMemcpy"),
        ("cuda_driver", "cuStreamSynchronize"),
        ("hip_runtime", "hipStreamSynchronize"),
        ("hip_runtime", "hipMemcpyWithStream"),
        ("cpu_op", "aten::_local_scalar_dense"),
        ("cpu_op", "aten::nonzero"),
    ],
)
def test_what_blocks_the_host(cat: str, name: str) -> None:
    assert causes(gap(launch=150), [host(cat, name, 20, 101)]) == [("host_sync", 50)]


@pytest.mark.parametrize(
    ("cat", "name"),
    [
        ("cuda_runtime", "cudaMemcpyAsync"),
        ("cuda_runtime", "cudaStreamWaitEvent"),
        ("cuda_sync", "Stream Sync"),
        ("user_annotation", "cudaStreamSynchronize"),
        ("cpu_op", "aten::nonzero_numpy"),
    ],
)
def test_what_does_not_block_the_host(cat: str, name: str) -> None:
    assert "host_sync" not in dict(causes(gap(launch=150), [host(cat, name, 20, 160)]))


@pytest.mark.parametrize(
    ("cat", "name", "cause"),
    [
        ("user_annotation", "save_checkpoint", "checkpoint"),
        ("user_annotation", "dcp.save", "checkpoint"),
        ("cpu_op", LOADER, "data_loading"),
        ("python_function", "torch/utils/data/dataloader.py(630): __next__", "data_loading"),
        ("cuda_runtime", "cudaMalloc", "allocator"),
        ("hip_runtime", "hipHostMalloc", "allocator"),
        ("cuda_driver", "cuModuleLoadDataEx", "compile"),
        ("cpu_op", "_compile.compile_inner (dynamo_timed)", "compile"),
        ("python_function", "gc.collect", "gc"),
        ("user_annotation", "Garbage collection", "gc"),
        ("cpu_op", "c10d::work_wait", "host_comm_wait"),
        ("cpu_op", "aten::mm", "host_dispatch"),
        ("hip_runtime", "hipLaunchKernel", "host_dispatch"),
        ("user_annotation", "forward", "host_other"),
        ("python_function", "train.py(3): step", "host_other"),
        ("user_annotation", "activation_checkpoint", "host_other"),
        ("cpu_op", "CheckpointFunction", "host_dispatch"),
        ("cpu_op", "Torch-Compiled Region", "host_dispatch"),
    ],
)
def test_what_the_host_did(cat: str, name: str, cause: str) -> None:
    assert causes(gap(launch=150), [host(cat, name, 20, 160)]) == [(cause, 50)]


def test_stronger_states_hide_weaker_ones_and_a_sync_takes_the_rest() -> None:
    hosts = [
        host("cuda_runtime", SYNC, 20, 101),
        host("cpu_op", "aten::mm", 100, 150),
        host("python_function", "gc.collect", 100, 150),
        host("cuda_runtime", "cudaMalloc", 110, 120),
        host("user_annotation", "checkpoint", 115, 125),
    ]
    assert causes(gap(launch=150), hosts) == [
        ("host_sync", 10),
        ("allocator", 5),
        ("checkpoint", 10),
        ("host_sync", 25),
    ]


def test_only_the_thread_of_the_launch_counts() -> None:
    hosts = [host("cpu_op", "aten::mm", 100, 150, tid="2"), host("cuda_runtime", SYNC, 20, 101, tid="2")]
    assert causes(gap(launch=150), hosts) == [("host_other", 50)]
    assert causes(gap(launch=150, launch_tid="1/2"), hosts) == [("host_sync", 50)]


def test_invalid_host_events_do_not_count() -> None:
    assert causes(gap(launch=150), [host("cpu_op", "aten::mm", 100, 150, valid=False)]) == [
        ("host_other", 50)
    ]


def test_the_rest_of_a_running_graph_is_a_graph_gap() -> None:
    graph = {"launch": 10, "correlation": 5}
    acts = [kernel(20, 100, **graph), kernel(150, 160, **graph)]
    assert causes(acts, [])[0] == ("graph_gap", 50)
    # another launch beside it: no longer all of K, and its launch decides
    acts.append(kernel(150, 155, launch=120, correlation=9, stream=8))
    assert causes(acts, [])[0] == ("device_other", 50)


def test_graph_replays_without_launch_record_share_a_correlation() -> None:
    acts = [kernel(20, 100, correlation=5), kernel(150, 160, correlation=5)]
    assert causes(acts, []) == [("graph_gap", 50)]
    # correlation 0 is "unknown", not a graph
    acts = [kernel(20, 100, correlation=0), kernel(150, 160, correlation=0)]
    assert causes(acts, []) == [("unattributed", 50)]
    acts = [kernel(20, 100, correlation=0, graph_id=3), kernel(150, 160, correlation=0, graph_id=3)]
    assert causes(acts, []) == [("graph_gap", 50)]


def test_a_second_launch_with_the_same_correlation_is_another_one() -> None:
    acts = [
        kernel(20, 100, launch=10, correlation=5),
        kernel(150, 160, launch=140, correlation=5, launch_id=8),
    ]
    assert causes(acts, []) == [("host_other", 40), ("launch_latency", 10)]


def test_the_earliest_launch_of_all_that_starts_after_the_gap_decides() -> None:
    acts = [
        *gap(launch=140),
        kernel(150, 155, launch=120, correlation=9, stream=8),
        kernel(150, 151, stream=9),
    ]
    assert causes(acts, []) == [("host_other", 20), ("launch_latency", 30)]


def test_activities_of_no_length_neither_end_a_gap_nor_follow_it() -> None:
    acts = [
        *gap(launch=140),
        kernel(120, 120, launch=119, correlation=9),
        kernel(150, 150, launch=20, correlation=8),
    ]
    assert causes(acts, []) == [("host_other", 40), ("launch_latency", 10)]


def test_the_first_gap_begins_with_the_window_and_the_last_is_tail() -> None:
    # window [-30, 180): the leading gap starts at -30, which the sync [-90,-31) covers; 20 after the last kernel
    acts = [kernel(0, 100, launch=-5, correlation=1), *gap(launch=140)[1:]]
    hosts = [host("cuda_runtime", SYNC, -90, -31), host("cpu_op", "aten::mm", 160, 180)]
    got = causes(acts, hosts, windows=windows(window(-30 * US, 60 * US), window(60 * US, 180 * US)))
    assert got == [
        ("host_sync", 25),
        ("launch_latency", 5),
        ("host_other", 40),
        ("launch_latency", 10),
        ("tail", 20),
    ]


def test_a_device_without_activity_is_idle_to_the_end() -> None:
    table = idle_segments(activities(), events(), windows=windows(window(0, 50)))
    assert [(r["cause"], r["start_ns"], r["end_ns"]) for r in table.to_pylist()] == [("tail", 0, 50)]


def test_captures_and_devices_are_apart() -> None:
    acts = [
        kernel(0, 10),
        kernel(20, 30),
        kernel(0, 10, window=1),
        kernel(15, 30, window=1),
        kernel(5, 10, device=1),
    ]
    rows = idle_segments(activities(*acts), events()).to_pylist()
    assert [(r["window"], r["device"], r["start_ns"] / US, r["end_ns"] / US) for r in rows] == [
        (0, 0, 10, 20),
        (1, 0, 10, 15),
    ]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(MissingColumn, match="launch_tid"):
        idle_segments(activities().drop_columns(["launch_tid"]), events())


def test_empty_tables_give_an_empty_table() -> None:
    table = idle_segments(activities(), events())
    assert table.num_rows == 0
    assert isinstance(table, pa.Table)
