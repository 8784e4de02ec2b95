from __future__ import annotations

import pytest
from builders_events import annotation, events, op

from rankscope.ingest.derive import DeriveOptions, derive
from rankscope.ingest.frame import Frame
from rankscope.ingest.host_timeline import host_activities


def _rows(rows: list[tuple]) -> list[tuple[str, str]]:  # type: ignore[type-arg]
    table = host_activities(Frame.of(events(rows)))
    return [(r["class"], r["name"]) for r in table.to_pylist()]


def test_communication_is_the_backends_ranges_of_any_thread() -> None:
    rows = [
        annotation("gloo:all_reduce", 10, 50, tid="9"),
        annotation("mpi:send", 70, 5, tid="8"),
        op("c10d::allreduce_", 5, 2),
        op("record_param_comms", 6, 1),
        annotation("nccl:all_reduce", 80, 5),
    ]
    assert _rows(rows) == [("comm", "gloo:all_reduce"), ("comm", "mpi:send")]


def test_without_backend_ranges_the_collective_records_count_and_waits_do_not() -> None:
    rows = [
        op("c10d::allreduce_", 5, 9),
        op("record_param_comms", 6, 5, collective="allreduce"),
        op("record_param_comms", 30, 5, collective="wait"),
    ]
    assert _rows(rows) == [("comm", "record_param_comms")]


def test_without_either_the_c10d_operators_count() -> None:
    assert _rows([op("c10d::allreduce_", 5, 9), op("_c10d_functional::all_reduce", 4, 12)]) == [
        ("comm", "c10d::allreduce_")
    ]


def test_compute_is_the_outermost_operators_of_every_thread() -> None:
    rows = [
        op("aten::linear", 0, 50),
        op("aten::mm", 10, 20),
        op("aten::add", 5, 10, tid="2"),
        annotation("## forward ##", 0, 100),
    ]
    assert _rows(rows) == [("compute", "aten::linear"), ("compute", "aten::add")]


def test_children_of_autograd_wrappers_count_instead_of_them() -> None:
    rows = [
        op("autograd::engine::evaluate_function: MmBackward0", 0, 100),
        op("MmBackward0", 10, 30),
        op("aten::mm", 12, 20),
        op("c10d::allreduce_", 50, 40),
        op("aten::copy_", 55, 5),
    ]
    assert _rows(rows) == [
        ("compute", "MmBackward0"),
        ("comm", "c10d::allreduce_"),
        ("compute", "aten::copy_"),
    ]


@pytest.mark.parametrize(
    ("name", "operation"),
    [("gloo:all_reduce", "all_reduce"), ("gloo:recv", "recv"), ("ucc:barrier", "barrier")],
)
def test_ranges_say_their_operation_and_rule(name: str, operation: str) -> None:
    (row,) = host_activities(Frame.of(events([annotation(name, 0, 5)]))).to_pylist()
    assert (row["operation"], row["rule"], row["tid"], row["valid"]) == (
        operation,
        "host:backend annotation",
        "1/1",
        True,
    )


def test_ranges_with_impossible_times_are_left_out() -> None:
    assert _rows([op("aten::mm", 0, -5, valid=False), op("aten::add", 0, 5)]) == [("compute", "aten::add")]


def test_a_rank_without_device_activity_has_host_steps_and_says_so() -> None:
    rows = [
        annotation("ProfilerStep#4", 0, 100),
        annotation("ProfilerStep#5", 100, 80),
        op("aten::mm", 10, 20),
        annotation("gloo:all_reduce", 110, 90, tid="9"),
    ]
    derived = derive(events(rows), {}, DeriveOptions())
    steps = [
        (r["step"], r["start_ns"], r["end_ns"], r["timeline"], r["device"]) for r in derived.steps.to_pylist()
    ]
    assert steps == [(4, 0, 100, "host", None), (5, 100, 180, "host", None)]
    assert derived.pre_ns is None
    assert derived.is_comm_recorded
    assert [(q.code, q.severity) for q in derived.quality] == [("no_device_activity", "info")]


def test_a_host_without_steps_has_one_window_over_all_its_ranges() -> None:
    derived = derive(events([op("aten::mm", 10, 20), op("aten::mm", 50, 7)]), {}, DeriveOptions())
    (step,) = derived.steps.to_pylist()
    assert (step["step"], step["source"], step["start_ns"], step["end_ns"]) == (0, "none", 10, 57)


@pytest.mark.parametrize(
    ("header", "more"),
    [
        ({"deviceProperties": [{"id": 0, "name": "GPU-A"}]}, []),
        ({"distributedInfo": {"backend": "nccl"}}, []),
        ({}, [("cuda_runtime", "cudaDeviceSynchronize", 5, 5, {})]),
    ],
)
def test_a_file_that_lists_a_gpu_but_holds_no_activity_is_a_warning(header: dict, more: list) -> None:  # type: ignore[type-arg]
    derived = derive(events([op("aten::mm", 10, 20), *more]), header, DeriveOptions())
    (quality,) = [q for q in derived.quality if q.code == "no_device_activity"]
    assert quality.severity == "warning"


def test_an_empty_file_derives_empty_tables() -> None:
    derived = derive(events([]), {}, DeriveOptions())
    assert derived.activities.num_rows == derived.host_activities.num_rows == derived.steps.num_rows == 0
