"""Which host events idle causes are decided from."""

from __future__ import annotations

import pytest
from builders_analysis import event, events

from rankscope.analysis.host_states import HOST_CATEGORIES, HOST_COLUMNS, SYNC_CALL, host_events


def test_only_what_a_rule_needs_is_kept() -> None:
    table = events(
        event("cpu_op", "aten::mm", 0, 1),
        event("cuda_runtime", "cudaLaunchKernel", 0, 1),
        event("hip_runtime", "hipLaunchKernel", 0, 1),
        event("user_annotation", "forward", 0, 1),
        event("user_annotation", "save_checkpoint", 0, 1),
        event("python_function", "train.py(1): main", 0, 1),
        event("python_function", "gc.collect", 0, 1),
        event("python_function", "torch/utils/data/dataloader.py(5): __next__", 0, 1),
        event("cuda_sync", "Stream Wait Event", 0, 1),
        event("cuda_sync", "Stream Sync", 0, 1),
        event("kernel", "gemm", 0, 1),
        event("gpu_user_annotation", "save_checkpoint", 0, 1),
    )
    kept = host_events(table)
    assert kept.column("name").to_pylist() == [
        "aten::mm",
        "cudaLaunchKernel",
        "hipLaunchKernel",
        "save_checkpoint",
        "gc.collect",
        "torch/utils/data/dataloader.py(5): __next__",
        "Stream Wait Event",
    ]
    assert kept.column_names == list(HOST_COLUMNS)
    assert set(kept.column("cat").to_pylist()) <= set(HOST_CATEGORIES)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("cudaStreamSynchronize", True),
        ("cudaStreamSynchronize_ptsz", True),
        ("cuCtxSynchronize", True),
        ("hipDeviceSynchronize", True),
        ("hipEventSynchronize", True),
        ("cudaMemcpy2D", True),
        ("cuMemcpyDtoH_v2", True),
        ("cudaMemcpyAsync", False),
        ("cudaMemcpy2DAsync", False),
        ("cuMemcpyDtoHAsync_v2", False),
        ("cudaMemcpyPeerAsync", False),
        ("cudaStreamWaitEvent", False),
        ("cudaEventRecord", False),
        ("cudaMemset", False),
    ],
)
def test_calls_that_return_when_the_device_is_done(name: str, blocks: bool) -> None:
    assert bool(SYNC_CALL.match(name)) is blocks
