"""Rules of class and of damaged records, end to end, with numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders_rules import US, call, classes, note, op, opened, quality, whole
from builders_trace import NCCL, host, kernel, launch, memcpy

COLLECTIVE = {"Collective name": "allreduce", "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float"}
ODD = "fancy_sum_kernel"


def one(folder: Path, name: str, around: list[dict[str, Any]], **args: Any) -> str:
    """Class of a kernel of that name launched at 10 us with these host events around."""
    run = opened(folder, [*around, launch(10, 5), kernel(name, 20, 10, corr=5, **args)])
    return classes(run)[name]


@pytest.mark.parametrize("name", [ODD, "ncclDevKernel_Generic_1(args)"])
def test_a_kernel_with_a_collective_name_is_comm(tmp_path: Path, name: str) -> None:
    assert one(tmp_path, name, [], **COLLECTIVE) == "comm"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void at::native::elementwise_kernel<128, 4, f>(int)", "compute"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(int)", "compute"),
        ("flatten_dense_tensors_kernel", "compute"),
        ("my_cast_kernel", "compute"),
        ("copy_kernel", "compute"),
        ("__amd_rocclr_copyBuffer.kd", "memcpy"),
        ("__amd_rocclr_fillBufferAligned", "memcpy"),
    ],
)
def test_a_copy_or_compute_name_beats_the_collective_around_it(
    tmp_path: Path, name: str, expected: str
) -> None:
    assert one(tmp_path, name, [], **COLLECTIVE) == expected
    assert one(tmp_path / "in", name, [op("record_param_comms", 5, 20, **COLLECTIVE)]) == expected


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        ([op("record_param_comms", 5, 20, **COLLECTIVE)], "comm"),
        ([op("record_param_comms", 5, 20, **COLLECTIVE), op("aten::add", 8, 9)], "comm"),
        ([op("record_param_comms", 5, 20, **{"Collective name": "wait"})], "compute"),
        ([note("nccl:all_reduce", 5, 20)], "comm"),
        ([note("nccl:all_reduce", 5, 20), op("aten::add", 8, 9)], "comm"),
        ([op("symm_mem::fused_thing", 5, 20), op("aten::add", 8, 9)], "comm"),
        ([op("c10d::allreduce_", 5, 20)], "comm"),
        ([op("c10d::allreduce_", 5, 20), op("aten::add", 8, 9)], "compute"),
        ([op("c10d::allreduce_", 5, 20), note("some range", 8, 9)], "comm"),
        ([op("c10d::allreduce_", 5, 20, tid=200)], "compute"),
        ([op("c10d::allreduce_", 5, 5)], "compute"),
        ([op("c10d::allreduce_", 10, 5)], "comm"),
        ([], "compute"),
    ],
)
def test_the_call_around_the_launch_makes_a_kernel_comm(
    tmp_path: Path, around: list[dict[str, Any]], expected: str
) -> None:
    assert one(tmp_path, ODD, around) == expected


def test_peer_copies_are_comm_under_communication_and_memcpy_elsewhere(tmp_path: Path) -> None:
    events = [
        op("symm_mem::barrier", 0, 10),
        call("cudaMemcpyAsync", 2, 2, correlation=1),
        memcpy(20, 10, name="Memcpy PtoP (Device -> Device)", corr=1),
        call("cudaMemcpyAsync", 12, 2, correlation=2),
        memcpy(40, 5, name="Memcpy PtoP (Device -> Device)", corr=2),
        op("record_param_comms", 50, 10, **COLLECTIVE),
        call("cudaMemcpyAsync", 52, 2, correlation=3),
        memcpy(60, 3, name="Memcpy DtoD (Device -> Device)", corr=3),
    ]
    run = opened(tmp_path, events)
    assert whole(run) == (0, 0, 10, 8, 25)
    kinds = [(r["class"], r["copy_kind"]) for r in run.table("activities").sort_by("start_ns").to_pylist()]
    assert kinds == [("comm", "p2p"), ("memcpy", "p2p"), ("memcpy", "d2d")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pinned -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pageable)", "d2h"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memset (Device)", "memset"),
        ("CopyHostToDevice", "h2d"),
        ("CopyDeviceToHost", "d2h"),
        ("CopyDeviceToDevice", "d2d"),
    ],
)
def test_the_copy_kind_is_told_by_the_name(tmp_path: Path, name: str, kind: str) -> None:
    event = memcpy(0, 10, name=name)
    event["cat"] = "gpu_memset" if kind == "memset" else "gpu_memcpy"
    (row,) = opened(tmp_path, [event]).table("activities").to_pylist()
    assert (row["class"], row["copy_kind"]) == ("memcpy", kind)


def test_rocm_copies_recorded_as_kernels_are_memcpy(tmp_path: Path) -> None:
    names = {"__amd_rocclr_copyBuffer": None, "MEMORY_COPY_HOST_TO_DEVICE": "h2d"}
    names |= {"MEMORY_COPY_DEVICE_TO_HOST": "d2h", "__amd_rocclr_fillBufferAligned.kd": "memset"}
    run = opened(tmp_path, [kernel(n, 20 * i, 10) for i, n in enumerate(names)])
    got = {r["name"]: (r["class"], r["copy_kind"]) for r in run.table("activities").to_pylist()}
    assert got == {n: ("memcpy", k) for n, k in names.items()}
    assert whole(run) == (0, 0, 0, 40, 30)


def test_rccl_kernels_and_rocm_launches_read_like_cuda(tmp_path: Path) -> None:
    events = [
        host("cuda_runtime", "hipLaunchKernel", 0, 3, correlation=1),
        kernel("Cijk_Ailk_Bljk_HHS_BH_MT128x128", 10, 20, corr=1),
        host("cuda_runtime", "hipExtLaunchKernel", 5, 3, correlation=2),
        kernel("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", 20, 30, stream=3, corr=2),
    ]
    run = opened(tmp_path, events)
    assert whole(run) == (10, 10, 20, 0, 0)
    assert run.table("launches").column("launch_delay_ns").to_pylist() == [10 * US, 15 * US]


RULES = """
[[rule]]
id = "mine"
pattern = "fancy_sum"
class = "comm"
role = "TP"
operation = "all_reduce"
[[rule]]
id = "nccl_as_compute"
pattern = "ncclDevKernel_AllReduce"
class = "compute"
"""


def test_a_users_rule_decides_before_the_shipped_ones_and_the_first_file_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text(RULES)
    second.write_text(RULES.replace('class = "comm"', 'class = "memcpy"'))
    events = [kernel(ODD, 0, 10), kernel(NCCL, 20, 10)]
    run = opened(tmp_path, events, rules=[str(first), str(second)])
    assert whole(run) == (10, 0, 10, 0, 10)
    rows = {r["name"]: r for r in run.kernels_table(steps="none").to_pylist()}
    assert (rows[ODD]["class"], rows[ODD]["rule"]) == ("comm", "name:mine")
    assert (rows[NCCL]["class"], rows[NCCL]["rule"]) == ("compute", "name:nccl_as_compute")
    other = opened(tmp_path / "other", events, rules=[str(second), str(first)])
    assert classes(other)[ODD] == "memcpy"


def test_deepep_kernels_have_role_ep_and_their_operation(tmp_path: Path) -> None:
    names = {
        "void deep_ep::intranode::dispatch<8>(int)": "dispatch",
        "void dpsk::ep::internode::combine<8>(int)": "combine",
        "void dpsk::ep::internode::notify_dispatch<8>(int)": "notify",
        "void vllm::cross_device_reduce_2stage<half, 8>(int)": "all_reduce",
    }
    run = opened(tmp_path, [kernel(n, 20 * i, 10) for i, n in enumerate(names)])
    rows = {r["name"]: r for r in run.table("activities").to_pylist()}
    assert {n: r["operation"] for n, r in rows.items()} == names
    assert [rows[n]["role"] for n in names] == ["EP", "EP", "EP", "TP"]
    assert whole(run) == (0, 0, 40, 0, 30)


def test_names_that_look_like_communication_are_reported_and_stay_compute(tmp_path: Path) -> None:
    events = [kernel("my_allreduce_thing", 0, 10), kernel("my_allreduce_thing", 20, 10), kernel(ODD, 40, 10)]
    run = opened(tmp_path, events)
    assert whole(run) == (30, 0, 0, 0, 20)
    assert quality(run)["comm_unclassified"] == 2


@pytest.mark.parametrize("cat", ["gpu_user_annotation", "cuda_sync", "overhead", "Trace", "user_annotation"])
def test_what_is_no_device_activity_adds_no_time(tmp_path: Path, cat: str) -> None:
    ghost = {**kernel("nccl:all_reduce", 0, 500), "cat": cat}
    run = opened(tmp_path, [kernel("gemm", 100, 10), ghost, kernel("gemm", 120, 10)])
    assert whole(run) == (20, 0, 0, 0, 10)


def test_a_host_operator_that_carries_a_stream_is_no_activity(tmp_path: Path) -> None:
    run = opened(tmp_path, [kernel("gemm", 100, 10), op("aten::mm", 0, 500, stream=7, device=0)])
    assert whole(run) == (10, 0, 0, 0, 0)


def test_touching_is_not_overlapping_and_an_overlap_counts_once(tmp_path: Path) -> None:
    events = [kernel("gemm", 0, 10), kernel(NCCL, 10, 10, stream=2), kernel("gemm", 15, 10)]
    events += [kernel("gemm", 15, 10, stream=3), memcpy(20, 20, stream=4)]
    # comp [0,10) [15,25), comm [10,20), mem [20,40)
    assert whole(opened(tmp_path, events)) == (15, 5, 5, 15, 0)


# -- damaged records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("next_ts", "wall"), [(1_000_000, 10), (2_000_000, 10), (999_999, 1_000_009)])
def test_a_zero_time_is_invalid_when_the_next_is_a_second_away_or_more(
    tmp_path: Path, next_ts: float, wall: int
) -> None:
    run = opened(tmp_path, [kernel("gemm", 0, 5), kernel("gemm", next_ts, 10)])
    (row,) = run.breakdown_table(steps="none").to_pylist()
    assert row["wall_ns"] == wall * US
    assert quality(run).get("ts_invalid", 0) == (1 if wall == 10 else 0)


def test_negative_and_unfinished_durations_leave_the_sums(tmp_path: Path) -> None:
    unfinished = kernel("gemm", 30, 1)
    del unfinished["dur"]
    run = opened(
        tmp_path, [kernel("gemm", 0, 10), kernel("gemm", 20, -5), unfinished, kernel("gemm", 40, 10)]
    )
    assert whole(run) == (20, 0, 0, 0, 30)
    assert quality(run)["duration_negative"] + quality(run).get("event_unclosed", 0) == 2


HOUR = 3_600_000_000


@pytest.mark.parametrize(("extra", "valid"), [(0, True), (1, False)])
def test_a_duration_longer_than_the_others_span_plus_an_hour_is_impossible(
    tmp_path: Path, extra: int, valid: bool
) -> None:
    # The others span [0, 100).
    events = [kernel("gemm", 0, 10), kernel("gemm", 90, 10), kernel("gemm", 20, HOUR + 100 + extra, stream=9)]
    run = opened(tmp_path, events)
    (row,) = run.breakdown_table(steps="none").to_pylist()
    assert row["wall_ns"] == (US * (20 + HOUR + 100) if valid else 100 * US)
    assert quality(run).get("duration_impossible", 0) == (0 if valid else 1)


def test_a_duration_beyond_int64_is_impossible(tmp_path: Path) -> None:
    run = opened(
        tmp_path, [kernel("gemm", 0, 10), kernel("gemm", 20, 10), kernel("gemm", 5, 9_223_372_036_854_775)]
    )
    assert whole(run) == (20, 0, 0, 0, 10)
    assert quality(run)["duration_impossible"] == 1


@pytest.mark.parametrize(("later", "clipped"), [(2, False), (3, True), (4, True)])
def test_three_later_activities_inside_make_a_late_stamp(tmp_path: Path, later: int, clipped: bool) -> None:
    inner = [kernel("gemm", 20 + 20 * i, 5) for i in range(later)]
    run = opened(tmp_path, [kernel("slow", 0, 100), *inner])
    # clipped: [0,20) and the inner ones, the last of which ends the window
    last = 20 + 20 * (later - 1) + 5
    assert whole(run) == ((20 + 5 * later, 0, 0, 0, last - 20 - 5 * later) if clipped else (100, 0, 0, 0, 0))
    (recorded,) = run.breakdown_table(steps="none", as_recorded=True).to_pylist()
    assert recorded["compute_ns"] == 100 * US


def test_activities_of_other_streams_or_reaching_out_do_not_make_a_stamp_late(tmp_path: Path) -> None:
    events = [kernel("slow", 0, 100), kernel("gemm", 10, 5), kernel("gemm", 20, 5)]
    events += [kernel("gemm", 30, 5, stream=8), kernel("gemm", 40, 5, device=1), kernel("gemm", 90, 20)]
    run = opened(tmp_path, events)
    rows = run.breakdown_table(steps="none").to_pylist()
    assert [r["compute_ns"] / US for r in rows] == [110, 5]
    assert "clipped_to_successor" not in quality(run)


def test_nested_late_stamps_are_each_clipped_to_their_successor(tmp_path: Path) -> None:
    events = [kernel("a", 0, 100), kernel("b", 10, 85)] + [kernel("c", t, 5) for t in (30, 50, 70)]
    run = opened(tmp_path, events)
    ends = {r["name"]: r["end_ns"] / US for r in run.table("activities").to_pylist() if r["name"] in "ab"}
    assert ends == {"a": 10, "b": 30}
    assert quality(run)["clipped_to_successor"] == 2
    assert whole(run) == (45, 0, 0, 0, 30)


def test_activities_of_no_length_count_and_set_the_edges_of_the_window(tmp_path: Path) -> None:
    run = opened(tmp_path, [kernel("gemm", 0, 0), kernel("gemm", 10, 10), kernel("gemm", 40, 0)])
    (row,) = run.breakdown_table(steps="none").to_pylist()
    assert (row["wall_ns"], row["compute_ns"], row["idle_ns"]) == (40 * US, 10 * US, 30 * US)
    assert run.kernels_table(steps="none").to_pylist()[0]["count"] == 3


# -- communication that was issued and not recorded --------------------------------------------------------


def test_issued_and_unrecorded_communication_is_null_with_exposed_zero(tmp_path: Path) -> None:
    events = [op("record_param_comms", 0, 5, **COLLECTIVE), launch(6, 1), kernel("gemm", 10, 10, corr=1)]
    run = opened(tmp_path, events)
    (row,) = run.breakdown_table(steps="none").to_pylist()
    assert (row["communication_ns"], row["overlap_ratio"], row["is_comm_recorded"]) == (None, None, False)
    assert (row["exposed_comm_ns"], row["overlap_ns"]) == (0, 0)
    assert quality(run)["comm_not_recorded"] == 1


def test_a_group_of_one_and_a_wait_are_no_issued_communication(tmp_path: Path) -> None:
    events = [
        op("record_param_comms", 0, 5, **{**COLLECTIVE, "Group size": 1}),
        op("record_param_comms", 5, 5, **{"Collective name": "wait", "Group size": 4}),
        kernel("gemm", 20, 10),
    ]
    (row,) = opened(tmp_path, events).breakdown_table(steps="none").to_pylist()
    assert (row["communication_ns"], row["overlap_ratio"], row["is_comm_recorded"]) == (0, None, True)


def test_unrecorded_communication_is_decided_per_window(tmp_path: Path) -> None:
    # Step 1 issues and records one, step 2 issues one that was not recorded, step 3 issues none.
    events = [note(f"ProfilerStep#{i}", 100 * i, 100) for i in (1, 2, 3)]
    for i in (1, 2, 3):
        events += [launch(100 * i + 5, i), kernel("gemm", 100 * i + 10, 20, corr=i)]
    events += [op("record_param_comms", 150, 5, **COLLECTIVE), launch(151, 9)]
    events += [kernel(NCCL, 160, 10, corr=9), op("record_param_comms", 250, 5, **COLLECTIVE)]
    run = opened(tmp_path, events)
    rows = {r["step"]: r for r in run.breakdown_table(by="step", steps="all").to_pylist()}
    assert [rows[i]["communication_ns"] for i in (1, 2, 3)] == [10 * US, None, 0]
    assert [rows[i]["is_comm_recorded"] for i in (1, 2, 3)] == [True, False, True]


def test_launches_and_activities_without_each_other_name_the_first(tmp_path: Path) -> None:
    events = [
        launch(50, 1),
        launch(30, 2, name="cudaLaunchKernelExC"),
        kernel("b", 60, 10, corr=77),
        kernel("a", 80, 5),
    ]
    table = opened(tmp_path, events).table("quality").to_pylist()
    by_code = {r["code"]: r for r in table}
    assert by_code["launch_without_activity"]["count"] == 2
    assert by_code["launch_without_activity"]["example"] == "cudaLaunchKernelExC at 30000 ns"
    assert by_code["activity_without_launch"]["count"] == 2
    assert by_code["activity_without_launch"]["example"] == "b at 60000 ns"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([op("c10d::allreduce_", 0, 5)], None),
        ([op("c10d::barrier", 0, 5)], 0),
        ([op("c10d::allreduce_", 0, 5), note("gloo:all_reduce", 2, 5, tid=9)], 0),
        ([op("c10d::allreduce_", 0, 5), op("record_param_comms", 1, 2, **{"Collective name": "wait"})], 0),
        ([note("nccl:all_reduce", 0, 5)], None),
        ([{**note("nccl:all_reduce", 0, 5), "cat": "gpu_user_annotation"}], 0),
        ([op("record_param_comms", 0, 5, **{"Collective name": "init"})], 0),
    ],
)
def test_what_counts_as_issued_communication(
    tmp_path: Path, more: list[dict[str, Any]], expected: int | None
) -> None:
    run = opened(tmp_path, [*more, kernel("gemm", 10, 10)])
    (row,) = run.breakdown_table(steps="none").to_pylist()
    assert row["communication_ns"] == expected


@pytest.mark.parametrize("tid", [7, "stream 7"])
def test_the_row_of_a_kernel_is_its_stream_where_no_argument_says(tmp_path: Path, tid: int | str) -> None:
    events = [kernel("slow", 0, 100), *(kernel("gemm", 20 + 20 * i, 5) for i in range(4))]
    for event in events:
        event["tid"] = tid
        del event["args"]["stream"]
    assert whole(opened(tmp_path, events)) == (40, 0, 0, 0, 45)
