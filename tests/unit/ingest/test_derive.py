from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from builders_events import NCCL, annotation, events, kernel, launch, linked, memcpy, op

from rankscope.ingest.derive import Derived, DeriveOptions, derive, issued_collectives
from rankscope.ingest.frame import Frame
from rankscope.store.errors import UsageError
from rankscope.store.schema import ACTIVITIES, HOST_ACTIVITIES, LAUNCHES, STEPS


def _derive(rows: list[tuple], **options: object) -> Derived:  # type: ignore[type-arg]
    return derive(events(rows), {}, DeriveOptions(**options))  # type: ignore[arg-type]


def _codes(derived: Derived) -> dict[str, tuple[str, int]]:
    return {q.code: (q.severity, q.count) for q in derived.quality}


def test_all_tables_have_exactly_the_columns_of_the_schema() -> None:
    for rows in ([], [kernel("k", 0, 5)], [op("aten::mm", 0, 5)]):
        derived = _derive(rows)
        assert derived.activities.schema == ACTIVITIES.arrow
        assert derived.host_activities.schema == HOST_ACTIVITIES.arrow
        assert derived.launches.schema == LAUNCHES.arrow
        assert derived.steps.schema == STEPS.arrow


def test_annotations_and_syncs_on_the_device_are_no_activity() -> None:
    rows = [
        kernel("a", 0, 40),
        kernel(NCCL, 50, 50),
        ("gpu_user_annotation", "ProfilerStep#1", 0, 100, {"pid": "0", "tid": "7"}),
        ("cuda_sync", "Stream Sync", 40, 10, {"pid": "0", "tid": "7", "stream": 7}),
        ("overhead", "Activity Buffer Request", 40, 5, {}),
        op("aten::mm", 0, 5, stream=7),
        ("kernel", "flow", 0, 5, {"ph": "s"}),
    ]
    derived = _derive(rows)
    assert derived.activities.column("name").to_pylist() == ["a", NCCL]
    assert derived.activities.column("class").to_pylist() == ["compute", "comm"]


def test_launches_and_activities_that_lack_each_other_are_counted() -> None:
    derived = _derive([launch(0, corr=1), launch(10, corr=2), kernel("k", 20, 5, corr=2), kernel("z", 30, 5)])
    assert _codes(derived) == {
        "launch_without_activity": ("info", 1),
        "activity_without_launch": ("info", 1),
    }


def test_an_activity_before_its_launch_is_a_clock_warning() -> None:
    derived = _derive(linked("k", 100, 90, 5, corr=1))
    assert _codes(derived) == {"activity_before_launch": ("warning", 1)}
    assert derived.launches.column("launch_delay_ns").to_pylist() == [-10]


def test_undecided_names_that_look_like_communication_are_a_warning() -> None:
    derived = _derive(
        [kernel("my_allgather_v2", 0, 5), kernel("my_allgather_v2", 10, 5), kernel("gemm", 20, 5)]
    )
    assert _codes(derived)["comm_unclassified"] == ("warning", 2)
    assert next(q.example for q in derived.quality if q.code == "comm_unclassified") == "my_allgather_v2"
    text = '[[rule]]\nid = "ours"\npattern = "my_allgather"\nclass = "comm"\n'
    decided = _derive([kernel("my_allgather_v2", 0, 5)], rules=(text,))
    assert "comm_unclassified" not in _codes(decided)
    assert decided.activities.column("rule").to_pylist() == ["name:ours"]


def test_a_wrong_rule_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        _derive([], rules=("][",))


def test_issued_but_unrecorded_communication_is_unknown_not_zero() -> None:
    rows = [
        op("record_param_comms", 90, 30, collective="allreduce", group_size=2),
        annotation("nccl:all_reduce", 92, 20),
        kernel("gemm_a", 100, 60),
    ]
    derived = _derive(rows)
    assert (derived.is_comm_recorded, derived.n_issued_comm) == (False, 1)
    assert _codes(derived)["comm_not_recorded"] == ("warning", 1)


def test_recorded_communication_and_its_absence_need_no_remark() -> None:
    record = op("record_param_comms", 90, 30, collective="allreduce", group_size=2)
    recorded = _derive([record, *linked(NCCL, 95, 120, 5, corr=1)])
    assert (recorded.is_comm_recorded, recorded.n_issued_comm) == (True, 1)
    silent = _derive([kernel("gemm_a", 100, 60)])
    assert (silent.is_comm_recorded, silent.n_issued_comm) == (True, 0)
    assert not {"comm_not_recorded"} & set(_codes(recorded) | _codes(silent))


@pytest.mark.parametrize(
    ("rows", "n"),
    [
        ([op("record_param_comms", 0, 5, collective="wait")], 0),
        ([op("record_param_comms", 0, 5, collective="allreduce", group_size=1)], 0),
        ([op("record_param_comms", 0, 5, collective="allreduce"), annotation("nccl:all_reduce", 1, 2)], 1),
        ([annotation("nccl:all_reduce", 1, 2), annotation("nccl:broadcast", 5, 2)], 2),
        ([op("record_param_comms", 0, 9), op("record_param_comms", 20, 9), annotation("nccl:x", 1, 2)], 1),
        ([op("record_param_comms", 0, 9), op("record_param_comms", 20, 9)], 2),
    ],
)
def test_collectives_are_counted_once_however_often_they_are_recorded(rows: list, n: int) -> None:  # type: ignore[type-arg]
    assert issued_collectives(Frame.of(events(rows))) == n


def test_a_peer_copy_inside_a_symmetric_memory_operator_is_communication() -> None:
    rows = [
        op("symm_mem::fused_all_gather_matmul", 0, 50),
        launch(5, corr=1, name="cudaMemcpyAsync"),
        launch(15, corr=2),
        memcpy("Memcpy PtoP (Device -> Device)", 20, 10, corr=1),
        kernel("sm90_xmma_gemm_bf16", 30, 10, corr=2),
    ]
    got = [(r["class"], r["copy_kind"]) for r in _derive(rows).activities.to_pylist()]
    assert got == [("comm", "p2p"), ("compute", None)]


def test_the_gpu_name_stands_on_activities_and_steps() -> None:
    header = {"deviceProperties": [{"id": 0, "name": "GPU-A"}]}
    derived = derive(events([kernel("k", 0, 5)]), header, DeriveOptions())
    assert derived.activities.column("gpu").to_pylist() == ["GPU-A"]
    assert derived.steps.column("gpu").to_pylist() == ["GPU-A"]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_depends_on_the_order_of_rows(seed: int) -> None:
    rows: list[tuple] = [annotation(f"ProfilerStep#{i}", 1000 * i, 1000) for i in range(4)]  # type: ignore[type-arg]
    for i in range(80):
        t = 50 * i
        rows += [op(f"aten::op{i % 7}", t, 40), op("aten::inner", t, 40, external_id=i)]
        rows += linked(f"k{i % 5}", t + 5, t + 200, 30 + 7 * (i % 9), corr=i, stream=7 + i % 2, device=i % 2)
    table = events(rows)
    mixed = table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))
    a, b = derive(table, {}, DeriveOptions()), derive(mixed, {}, DeriveOptions())
    for name in ("activities", "launches", "steps", "host_activities"):
        assert getattr(a, name).to_pylist() == getattr(b, name).to_pylist()
    assert a.quality == b.quality
