"""Hand-made breakdown, gap, kernel, source and quality tables, and a run that serves them to the commands."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rankscope.store.schema import BREAKDOWN, CAUSES, QUALITY, SOURCES, STORED, conform

MS = 1_000_000


def window(rank: int = 0, step: int | None = 1, **given: Any) -> dict[str, Any]:
    """One breakdown row of 100 ms: 50 compute, 10 hidden, 15 exposed (unsplit), 5 copies, 20 idle (12 dispatch, 8 sync)."""
    row: dict[str, Any] = {
        "rank": rank,
        "device": 0,
        "world": "0",
        "window": 0,
        "step": step,
        "gpu": "NVIDIA H100",
        "timeline": "device",
        "wall_ns": 100 * MS,
        "compute_only_ns": 50 * MS,
        "overlap_ns": 10 * MS,
        "exposed_comm_ns": 15 * MS,
        "exposed_memcpy_ns": 5 * MS,
        "idle_ns": 20 * MS,
        "compute_ns": 60 * MS,
        "communication_ns": 25 * MS,
        "memcpy_ns": 5 * MS,
        "overlap_ratio": 0.4,
        "transfer_ns": 0,
        "pipeline_wait_ns": 0,
        "straggler_wait_ns": 0,
        "unsplit_comm_ns": 15 * MS,
        "bubble_ns": None,
        "bubble_min_ns": 20 * MS,
        "bubble_max_ns": 35 * MS,
        "pipeline_bubble_ns": 0,
        "is_comm_recorded": True,
        "n": 1,
    }
    row |= dict.fromkeys(CAUSES, 0)
    row |= {"host_dispatch_ns": 12 * MS, "host_sync_ns": 8 * MS}
    return row | given


def breakdown_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table of the breakdown's schema, with the extremes of the windows beside it."""
    columns = {c.name: [r.get(c.name) for r in rows] for c in BREAKDOWN.columns}
    table = conform(pa.table(columns), BREAKDOWN) if rows else BREAKDOWN.arrow.empty_table()
    for extreme in ("wall_min_ns", "wall_max_ns"):
        values = [r.get(extreme, r["wall_ns"] // r["n"]) for r in rows]
        table = table.append_column(extreme, pa.array(values, pa.int64()))
    return table


def quality_table(*rows: tuple[str, str, int | None]) -> pa.Table:
    """Quality rows from (code, severity, rank)."""
    found = [
        {
            "code": c,
            "severity": s,
            "rank": r,
            "count": 1,
            "example": f"an example of {c}",
            "effect": "none",
            "path": None,
        }
        for c, s, r in rows
    ]
    return pa.Table.from_pylist(found, schema=QUALITY.arrow)


def source_row(rank: int | None = 0, **given: Any) -> dict[str, Any]:
    """One whole PyTorch trace of a two-rank world."""
    return {
        "path": f"rank{rank}.json",
        "kind": "torch_profiler",
        "rank": rank,
        "rank_source": "distributed_info",
        "world": "0",
        "window": 0,
        "host": None,
        "world_size": 2,
        "backend": "nccl",
        "n_events": 100,
        "n_activities": 40,
        "status": "whole",
        "reason": None,
        "metadata": '{"cuda_runtime_version": 12040, "record_shapes": 1}',
    } | given


def sources_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table of the sources' schema."""
    return pa.Table.from_pylist(
        [{c.name: r.get(c.name) for c in SOURCES.columns} for r in rows], schema=SOURCES.arrow
    )


def kernel_row(name: str, **given: Any) -> dict[str, Any]:
    """One row of `kernels`."""
    return {
        "name": name,
        "class": "compute",
        "rule": "default",
        "count": 10,
        "total_ns": 30 * MS,
        "mean_ns": 3.0 * MS,
        "p50_ns": 3 * MS,
        "p99_ns": 4 * MS,
        "share_ratio": 0.25,
        "rank_spread_ratio": None,
        "slowdown_under_comm_ratio": None,
    } | given


def gap_row(rank: int = 0, **given: Any) -> dict[str, Any]:
    """One row of `gaps`."""
    return {
        "rank": rank,
        "device": 0,
        "step": 3,
        "start_ns": 1_700_000_000_000_000_000 + 5 * MS,
        "end_ns": 1_700_000_000_000_000_000 + 17 * MS,
        "cause": "host_dispatch_ns",
        "host_frame": "aten::copy_",
        "previous_kernel": "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
        "next_kernel": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "on_ranks": 8,
    } | given


class FakeRun:
    """Stands for `rankscope.run.Run` in tests of the commands: serves hand-made tables."""

    def __init__(self, rows: list[dict[str, Any]] | None = None, quality: pa.Table | None = None) -> None:
        self.rows = [window(r, s) for r in (0, 1) for s in (1, 2)] if rows is None else rows
        self.quality = quality_table() if quality is None else quality
        self.sources = [source_row(0), source_row(1)]
        self.kernel_rows = [kernel_row("gemm"), kernel_row("void f<int>(a, b)" * 20)]
        self.gap_rows = [gap_row(0), gap_row(1)]
        self.findings = [finding()]

    def breakdown_table(self, by: list[str], **_: Any) -> pa.Table:
        return breakdown_table(self.rows)

    def kernels_table(self, **_: Any) -> pa.Table:
        return pa.Table.from_pylist(self.kernel_rows)

    def gaps_table(self, **_: Any) -> pa.Table:
        return pa.Table.from_pylist(self.gap_rows)

    def summary_table(self, **_: Any) -> pa.Table:
        return pa.Table.from_pylist(self.findings)

    def steps_table(self) -> pa.Table:
        return breakdown_table(self.rows)

    def steps_note(self) -> str:
        return "steps 1-2 of 0-3 (profiler step), first and last left out"

    @property
    def store(self) -> FakeRun:
        return self

    def table(self, name: str, columns: list[str] | None = None, worlds: list[str] | None = None) -> pa.Table:
        stored = {"quality": self.quality, "sources": sources_table(self.sources)}
        found = stored.get(name)
        if found is None:
            found = STORED[name].arrow.empty_table()
        return found.select(columns) if columns else found


def finding(**given: Any) -> dict[str, Any]:
    """One row of `summary`."""
    return {
        "code": "idle_launch_bound",
        "title": "GPU idle: the host launches too slowly",
        "cost_ns": 12 * MS,
        "cost_ratio": 0.12,
        "ceiling_ns": None,
        "cause": "host_dispatch",
        "evidence": "60 % of idle time",
        "status": "measured",
        "ranks": "0-1",
        "next_command": "rankscope gaps RUN",
    } | given
