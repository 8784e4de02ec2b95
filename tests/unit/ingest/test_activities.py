from __future__ import annotations

import numpy as np
import pytest
from builders_events import NCCL, events, kernel, launch, linked, memcpy, memset, op

from rankscope.ingest.activities import gpu_names, late_stamps
from rankscope.ingest.columns import Text
from rankscope.ingest.derive import Derived, DeriveOptions, derive
from rankscope.ingest.operations import canonical_operation, element_half_bytes, message_bytes

MAX = 2**63 - 1


def _derive(rows: list[tuple], header: dict | None = None) -> Derived:  # type: ignore[type-arg]
    return derive(events(rows), header or {}, DeriveOptions())


def _by_name(derived: Derived) -> dict[str, dict]:  # type: ignore[type-arg]
    return {r["name"]: r for r in derived.activities.to_pylist()}


def _late(spans: list[tuple[int, int]], lanes: list[int] | None = None) -> list[int]:
    start, end = np.array(spans, np.int64).T
    lane = np.array(lanes or [0] * len(spans), np.int64)
    return late_stamps(lane, start, end, np.ones(len(spans), np.bool_)).tolist()


def test_an_end_stamped_after_three_later_activities_is_clipped_to_the_successor() -> None:
    assert _late([(0, 100), (10, 20), (20, 30), (30, 40)]) == [10, 20, 30, 40]


def test_two_later_activities_inside_are_a_legal_overlap() -> None:
    assert _late([(0, 100), (10, 20), (20, 30), (30, 140)]) == [100, 20, 30, 140]


def test_other_streams_do_not_count_and_unknown_streams_are_never_clipped() -> None:
    spans = [(0, 100), (10, 20), (20, 30), (30, 40)]
    assert _late(spans, [0, 1, 1, 1]) == [100, 20, 30, 40]
    assert _late(spans, [-1, -1, -1, -1]) == [100, 20, 30, 40]


def test_an_activity_that_begins_at_the_end_is_not_inside() -> None:
    assert _late([(0, 40), (10, 20), (20, 30), (40, 40)]) == [40, 20, 30, 40]
    assert _late([(0, 40), (10, 20), (20, 30), (39, 39)]) == [10, 20, 30, 39]


@pytest.mark.parametrize("seed", range(30))
def test_late_stamps_are_those_of_a_plain_count(seed: int) -> None:
    random = np.random.default_rng(seed)
    starts, lengths = random.integers(0, 60, 40), random.choice([0, 1, 3, 30], 40)
    spans = [(int(s), int(s + d)) for s, d in zip(starts, lengths, strict=True)]
    lanes = random.integers(0, 2, 40).tolist()
    expected = []
    for (s, e), lane in zip(spans, lanes, strict=True):
        later = [(a, b) for (a, b), other in zip(spans, lanes, strict=True) if other == lane and a > s]
        inside = sum(a < e and b <= e for a, b in later)
        expected.append(min(a for a, _ in later) if inside >= 3 else e)
    assert _late(spans, lanes) == expected


def test_a_late_stamp_keeps_its_recorded_end_and_is_counted() -> None:
    rows = [kernel("late", 0, 100), kernel("a", 10, 5), kernel("b", 20, 5), kernel("c", 30, 5)]
    derived = _derive(rows)
    late = _by_name(derived)["late"]
    assert (late["start_ns"], late["end_ns"], late["recorded_end_ns"]) == (0, 10, 100)
    (quality,) = [q for q in derived.quality if q.code == "clipped_to_successor"]
    assert (quality.severity, quality.count) == ("warning", 1)
    assert quality.example.startswith("late at 0")


def test_invalid_activities_keep_sane_times_and_enter_no_window() -> None:
    rows = [
        kernel("ok", 100, 10),
        kernel("negative", 50, -5, valid=False),
        kernel("endless", 60, MAX, valid=False),
        kernel("nowhere", None, 5, valid=False),  # type: ignore[arg-type]
        kernel("unfinished", 70, None, valid=False),  # type: ignore[arg-type]
    ]
    derived = _derive(rows)
    got = _by_name(derived)
    assert [got[n]["valid"] for n in ("ok", "negative", "endless", "nowhere", "unfinished")] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert (got["negative"]["end_ns"], got["negative"]["recorded_end_ns"]) == (50, 45)
    assert (got["endless"]["end_ns"], got["endless"]["recorded_end_ns"]) == (MAX, None)
    assert (got["nowhere"]["start_ns"], got["nowhere"]["recorded_end_ns"]) == (None, None)
    assert (got["unfinished"]["end_ns"], got["unfinished"]["recorded_end_ns"]) == (70, None)
    (step,) = derived.steps.to_pylist()
    assert (step["start_ns"], step["end_ns"]) == (100, 110)


def test_the_device_is_the_argument_else_the_pid_and_its_name_is_the_headers() -> None:
    rows = [
        kernel("a", 0, 5, device=3),
        ("kernel", "b", 10, 5, {"pid": "1", "tid": "stream 7", "stream": 7}),
        ("kernel", "c", 20, 5, {"pid": "CUDA", "tid": "7", "stream": 7}),
    ]
    header = {"deviceProperties": [{"id": 3, "name": "GPU-A"}, {"id": 1, "name": ""}, "junk"]}
    got = _by_name(_derive(rows, header))
    assert [(got[n]["device"], got[n]["gpu"]) for n in "abc"] == [(3, "GPU-A"), (1, None), (None, None)]


def test_device_names_come_from_sound_entries_only() -> None:
    assert gpu_names([{"id": 0, "name": "A"}, {"id": "x", "name": "B"}, {"name": "C"}, None]) == {0: "A"}
    assert gpu_names(None) == {}
    assert gpu_names(None, [3]) == {}


def test_a_device_that_is_not_listed_bears_the_name_all_listed_devices_share() -> None:
    assert gpu_names([{"id": 0, "name": "A"}], [9]) == {0: "A", 9: "A"}
    assert gpu_names([{"id": 0, "name": "A"}, {"id": 1, "name": "B"}], [9]) == {0: "A", 1: "B"}


def test_copy_kinds_come_from_category_name_and_the_kind_argument() -> None:
    rows = [
        memcpy("Memcpy HtoD (Pinned -> Device)", 0, 5),
        memcpy("Copy", 10, 5, extra='{"kind":"DtoH","x":1}'),
        memset(20, 5),
        kernel("k", 30, 5),
    ]
    got = [(r["copy_kind"], r["class"]) for r in _derive(rows).activities.to_pylist()]
    assert got == [("h2d", "memcpy"), ("d2h", "memcpy"), ("memset", "memcpy"), (None, "compute")]


RECORD = {
    "collective": "reduce_scatter",
    "dtype": "Float",
    "in_nelems": 4096,
    "out_nelems": 2048,
    "group_size": 2,
    "pg": "1",
    "pg_ranks": "[0, 1]",
    "seq": 4,
}


def test_a_bare_kernel_takes_its_metadata_from_the_call_around_its_launch() -> None:
    rows = [
        op("record_param_comms", 90, 20, external_id=77, **RECORD),
        *linked(NCCL, 95, 110, 40, corr=700),
        *linked("ncclDevKernel_Generic(int)", 160, 170, 30, corr=701, external_id=701),
    ]
    got = _by_name(_derive(rows))
    assert {k: got[NCCL][k] for k in RECORD} == RECORD
    assert (got[NCCL]["in_bytes"], got[NCCL]["out_bytes"]) == (16384, 8192)
    assert got[NCCL]["operation"] == "reduce_scatter"
    bare = got["ncclDevKernel_Generic(int)"]
    assert bare["class"] == "comm"
    assert [bare[k] for k in ("collective", "in_bytes", "operation", "pg")] == [None] * 4


def test_a_bare_kernel_without_such_a_call_takes_the_record_of_its_external_id() -> None:
    rows = [
        op("record_param_comms", 90, 2, external_id=77, **RECORD),
        *linked(NCCL, 95, 110, 40, corr=700, external_id=77),
    ]
    got = _by_name(_derive(rows))[NCCL]
    assert (got["collective"], got["in_bytes"], got["seq"]) == ("reduce_scatter", 16384, 4)


def test_the_record_of_a_wait_is_no_collective() -> None:
    rows = [
        op("record_param_comms", 90, 20, external_id=7, collective="wait", seq=9),
        *linked(NCCL, 95, 110, 40, corr=1, external_id=7),
    ]
    got = _by_name(_derive(rows))[NCCL]
    assert (got["collective"], got["seq"], got["rule"]) == (None, None, "name:nccl_dev_kernel")


def test_a_kernel_keeps_its_own_arguments_and_lacks_only_what_the_same_collective_can_add() -> None:
    own = {"collective": "allreduce", "in_nelems": 10, "dtype": "Half"}
    call = op("record_param_comms", 90, 20, collective="allreduce", in_nelems=11, seq=5, is_async=True)
    other = op("record_param_comms", 190, 20, collective="broadcast", seq=6)
    rows = [
        call,
        other,
        *linked("ncclA", 95, 110, 5, corr=1, **own),
        *linked("ncclB", 195, 210, 5, corr=2, **own),
    ]
    got = _by_name(_derive(rows))
    assert [got["ncclA"][k] for k in ("in_nelems", "in_bytes", "seq", "is_async")] == [10, 20, 5, True]
    assert [got["ncclB"][k] for k in ("collective", "in_nelems", "seq")] == ["allreduce", 10, None]


def test_compute_inside_a_collective_call_carries_no_collective() -> None:
    rows = [
        op("record_param_comms", 90, 20, **RECORD),
        *linked("void at::native::CatArrayBatchedCopy<float>(int)", 95, 110, 4, corr=1),
    ]
    (row,) = _derive(rows).activities.to_pylist()
    assert (row["class"], row["collective"], row["seq"]) == ("compute", None, None)


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("nccl:_all_gather_base", "all_gather"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("c10d::recv_any_source_", "recv"),
        ("SendRecv", "send_recv"),
        ("send", "send"),
        ("barrier", "barrier"),
        ("wait", None),
        ("something", None),
        (None, None),
    ],
)
def test_collectives_have_one_spelling(name: str | None, operation: str | None) -> None:
    assert canonical_operation(name) == operation


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("Float", 4),
        ("Half", 2),
        ("BFloat16", 2),
        ("c10::BFloat16", 2),
        ("Double", 8),
        ("Long", 8),
        ("Int", 4),
        ("Short", 2),
        ("Byte", 1),
        ("Char", 1),
        ("Bool", 1),
        ("UInt16", 2),
        ("UInt32", 4),
        ("UInt64", 8),
        ("Float8_e4m3fn", 1),
        ("Float8_e5m2", 1),
        ("Float8_e4m3fnuz", 1),
        ("Float8_e5m2fnuz", 1),
        ("Float8_e8m0fnu", 1),
        ("Float4_e2m1fn_x2", 0.5),
        ("ComplexHalf", 4),
        ("ComplexFloat", 8),
        ("ComplexDouble", 16),
        ("QInt8", 1),
        ("torch.float32", 4),
        ("Undefined", None),
        (None, None),
    ],
)
def test_element_sizes_cover_every_type(dtype: str | None, size: float | None) -> None:
    assert element_half_bytes(dtype) == (None if size is None else size * 2)


def test_message_bytes_are_null_when_anything_is_unknown_and_round_up() -> None:
    elements = np.array([3, 3, 3, -1, 2**62], np.int64)
    known = np.array([True, False, True, True, True])
    dtypes = Text(np.array([0, 0, -1, 0, 0], np.int32), ("Float4_e2m1fn_x2",))
    assert message_bytes(elements, known, dtypes).to_pylist() == [2, None, None, None, None]


def test_launch_columns_point_at_the_launch_table() -> None:
    rows = [
        op("aten::mm", 0, 50),
        launch(5, corr=1),
        launch(9, 4, corr=2, tid="2"),
        kernel("k", 20, 5, corr=2),
    ]
    derived = _derive(rows)
    (row,) = derived.activities.to_pylist()
    launches = derived.launches.to_pylist()
    assert [r["tid"] for r in launches] == ["1/1", "1/2"]
    assert (row["launch_id"], row["launch_start_ns"], row["launch_tid"], row["op"]) == (1, 9, "1/2", None)
    assert [r["op"] for r in launches] == ["aten::mm", None]
    assert [r["n_activities"] for r in launches] == [0, 1]
    assert [r["launch_delay_ns"] for r in launches] == [None, 11]
