from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from builders_events import NCCL, annotation, events, kernel, launch, linked, memcpy, op

from rankscope.ingest.classify import EVIDENCE
from rankscope.ingest.frame import Frame
from rankscope.ingest.link import LAUNCH_NAME, Links, context, is_symmetric_memory, link


def _link(rows: list[tuple]) -> tuple[Frame, Links]:  # type: ignore[type-arg]
    frame = Frame.of(events(rows))
    return frame, link(frame)


def _named(frame: Frame, rows: np.ndarray) -> list[str | None]:  # type: ignore[type-arg]
    return [None if r < 0 else frame.name.values[frame.name.codes[r]] for r in rows]


def test_every_kernel_of_a_graph_launch_is_linked_and_no_row_multiplied() -> None:
    rows = [launch(100, 8, corr=50, name="cudaGraphLaunch"), launch(300, 8, corr=51, name="cudaGraphLaunch")]
    rows += [kernel(f"k{i}", 110 + 10 * i, 5, corr=50) for i in range(6)]
    rows += [kernel(f"k{i}", 310 + 10 * i, 5, corr=51) for i in range(6)]
    _, links = _link(rows)
    assert links.n_activities.tolist() == [6, 6]
    assert links.launch.tolist() == [0] * 6 + [1] * 6
    assert links.first_start.tolist() == [110, 310]


def test_correlation_zero_is_an_id_when_one_call_has_it() -> None:
    _, links = _link([launch(10, corr=0), kernel("a", 20, 5, corr=0), kernel("b", 30, 5)])
    assert links.launch.tolist() == [0, -1]


def test_correlation_zero_means_unknown_when_several_calls_have_it() -> None:
    _, links = _link([launch(10, corr=0), launch(30, corr=0), kernel("a", 40, 5, corr=0)])
    assert links.launch.tolist() == [-1]
    assert links.n_activities.tolist() == [0, 0]


def test_of_nested_records_with_one_correlation_the_one_named_launch_counts_once() -> None:
    rows = [
        ("cuda_runtime", "hipArray3DCreate", 100, 8, {"correlation": 45}),
        ("cuda_runtime", "hipMemsetAsync", 100, 9, {"correlation": 45}),
        kernel("fill", 120, 4, corr=45),
    ]
    frame, links = _link(rows)
    assert _named(frame, links.calls) == ["hipMemsetAsync"]
    assert links.n_activities.tolist() == [1]


def test_of_a_driver_call_inside_a_runtime_launch_the_earlier_one_is_the_launch() -> None:
    rows = [
        ("cuda_driver", "cuLaunchKernel", 102, 4, {"correlation": 3}),
        ("cuda_runtime", "cudaLaunchKernel", 100, 8, {"correlation": 3}),
        kernel("k", 120, 4, corr=3),
    ]
    frame, links = _link(rows)
    assert _named(frame, links.calls) == ["cudaLaunchKernel"]
    assert frame.start[links.calls].tolist() == [100]


def test_disjoint_calls_with_one_correlation_share_its_activities_by_time() -> None:
    rows = [launch(10, corr=5), launch(100, corr=5)]
    rows += [kernel("early", 5, 2, corr=5), kernel("first", 20, 5, corr=5), kernel("second", 100, 5, corr=5)]
    _, links = _link(rows)
    assert links.launch.tolist() == [0, 0, 1]
    assert links.n_activities.tolist() == [2, 1]


def test_launch_calls_without_a_record_on_the_device_are_kept_and_other_calls_are_not() -> None:
    rows = [
        launch(10, corr=1),
        launch(20, corr=2, name="cudaEventRecord"),
        launch(30, name="cudaMemcpyAsync"),
        launch(40, corr=4, name="cudaLaunchHostFunc"),
    ]
    frame, links = _link(rows)
    assert _named(frame, links.calls) == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert links.n_activities.tolist() == [0, 0]


def test_any_call_with_an_activity_is_a_launch_whatever_its_name() -> None:
    frame, links = _link([launch(10, corr=1, name="INVALID"), kernel("k", 20, 5, corr=1)])
    assert _named(frame, links.calls) == ["INVALID"]


@pytest.mark.parametrize(
    ("name", "is_launch"),
    [
        ("hipExtModuleLaunchKernel", True),
        ("cuLaunchKernelEx", True),
        ("hipGraphLaunch", True),
        ("cudaMemsetAsync", True),
        ("hipMemcpyWithStream", True),
        ("cudaLaunchHostFunc", False),
        ("cudaStreamSynchronize", False),
    ],
)
def test_launches_are_told_by_name(name: str, is_launch: bool) -> None:
    assert bool(LAUNCH_NAME.search(name)) == is_launch


def test_the_first_start_counts_valid_activities_only() -> None:
    _, links = _link([launch(10, corr=1), kernel("bad", 0, -5, corr=1), kernel("k", 20, 5, corr=1)])
    assert links.first_start.tolist() == [20]


def test_the_operator_of_a_launch_is_the_innermost_of_its_thread_not_that_of_the_external_id() -> None:
    rows = [
        op("aten::linear", 90, 60, external_id=1),
        op("aten::mm", 95, 40, external_id=2),
        op("aten::add", 95, 40, tid="2", external_id=7),
        launch(100, corr=7, external_id=7),
        kernel("gemm_a", 120, 40, corr=7, external_id=7),
    ]
    frame, links = _link(rows)
    assert _named(frame, context(frame, links).op) == ["aten::mm"]


def _evidence(*around: tuple) -> str | None:  # type: ignore[type-arg]
    frame, links = _link([*around, launch(100, corr=1), kernel("k", 120, 5, corr=1)])
    return EVIDENCE[context(frame, links).evidence[0]]


def test_metadata_speaks_for_launches_inside_communication_scopes() -> None:
    record = op("record_param_comms", 95, 20, collective="allreduce")
    inner = op("aten::copy_", 97, 15)
    assert _evidence(record) == "metadata:inside record_param_comms"
    assert _evidence(record, inner) == "metadata:inside record_param_comms"
    assert _evidence(annotation("nccl:all_reduce", 95, 20)) == "metadata:inside nccl annotation"
    assert _evidence(op("symm_mem::multimem_all_reduce_", 95, 20)) == (
        "metadata:inside symmetric-memory operator"
    )
    assert _evidence(op("c10d::allreduce_", 95, 20)) == "metadata:launched by c10d operator"


def test_metadata_is_silent_outside_those_scopes() -> None:
    assert _evidence(op("c10d::allreduce_", 95, 20), op("aten::flatten", 97, 15)) is None
    assert _evidence(op("record_param_comms", 95, 20, collective="wait")) is None
    assert _evidence(op("record_param_comms", 95, 5, collective="allreduce")) is None
    assert _evidence(op("record_param_comms", 95, 20, tid="2", collective="allreduce")) is None


def test_symmetric_memory_operators_are_told_by_name() -> None:
    assert is_symmetric_memory("symm_mem::one_shot_all_reduce")
    assert is_symmetric_memory("vllm::multimem_all_reduce")
    assert not is_symmetric_memory("aten::mm")


def test_the_order_of_rows_changes_nothing() -> None:
    rows = [*linked("a", 10, 20, 5, corr=1), *linked(NCCL, 30, 40, 5, corr=2), op("x", 5, 50), op("y", 9, 10)]
    rows += [memcpy("Memcpy HtoD", 60, 5, corr=9), launch(12, 3, corr=1, name="cuLaunchKernel")]
    table = events(rows)
    shuffled = table.take(pa.array(np.random.default_rng(3).permutation(table.num_rows)))

    def described(t: pa.Table) -> set[tuple[str | None, ...]]:
        frame = Frame.of(t)
        links = link(frame)
        call = np.where(links.launch >= 0, np.append(links.calls, -1)[links.launch], -1)
        ops = np.append(context(frame, links).op, -1)[links.launch]
        columns = (_named(frame, links.activities), _named(frame, call), _named(frame, ops))
        return set(zip(*columns, strict=True))

    assert described(table) == described(shuffled)
