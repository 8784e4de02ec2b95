"""Small traces and small stores, written inline: what the tests of store, pipeline and facade are built from."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from rankscope.store import layout
from rankscope.store.manifest import Part
from rankscope.store.place import Place
from rankscope.store.schema import STORED
from rankscope.store.writer import write_manifest, write_single, write_table

SOURCE_ID = "0123456789ab"
"""The id of a source of a small store; ranks have folders of their own, so it may be the same in all."""


def kernel(
    name: str, ts: float, dur: float, correlation: int, stream: int = 7, **args: Any
) -> dict[str, Any]:
    """One device activity; times in microseconds."""
    cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    own = {"device": 0, "stream": stream, "correlation": correlation, **args}
    return {
        "ph": "X", "cat": cat, "name": name, "pid": own["device"], "tid": stream, "ts": ts, "dur": dur, "args": own,
    }  # fmt: skip


def launch(ts: float, correlation: int, dur: float = 1) -> dict[str, Any]:
    """The call that launched the activity of that correlation."""
    args = {"correlation": correlation}
    return {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def host(name: str, ts: float, dur: float, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    """One host range on the thread of `launch`."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": 100, "ts": ts, "dur": dur, "args": args}


COMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
"""A name the shipped rules know as communication."""


def steps_trace(
    rank: int, *, world_size: int = 2, n_steps: int = 5, shift: float = 0, base: int = 0, first: int = 1
) -> dict[str, Any]:
    """One rank with `n_steps` steps of 100 us, each: compute [10,50), communication [40,70), copy [75,80).

    On the device every whole step has compute_only 30, overlap 10, exposed_comm 20, exposed_memcpy 5 us.
    """
    events: list[dict[str, Any]] = []
    for i in range(n_steps):
        t = shift + 100 * i
        c = 10 * i
        events += [
            host(f"ProfilerStep#{first + i}", t, 100, cat="user_annotation"),
            host("aten::mm", t + 1, 4),
            launch(t + 2, c + 1),
            launch(t + 20, c + 2),
            launch(t + 25, c + 3),
            kernel("gemm_a", t + 10, 40, c + 1),
            kernel(COMM, t + 40, 30, c + 2, stream=20),
            kernel("Memcpy DtoH (Device -> Pinned)", t + 75, 5, c + 3, bytes=64),
        ]
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": base,
        "deviceProperties": [{"id": 0, "name": "Test GPU"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size},
        "traceEvents": events,
    }


def write_trace(path: Path, trace: dict[str, Any] | str | bytes) -> Path:
    """Write a trace, gzipped when the name ends in .gz; text and bytes are written as they are."""
    data = trace if isinstance(trace, bytes) else trace.encode() if isinstance(trace, str) else None
    data = json.dumps(trace).encode() if data is None else data
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)
    return path


def two_ranks(folder: Path, **options: Any) -> Path:
    """A folder of two healthy ranks, one of them gzipped."""
    write_trace(folder / "rank_0.json", steps_trace(0, **options))
    write_trace(folder / "rank_1.json.gz", steps_trace(1, **options))
    return folder


def rows(table: str, **columns: list[Any]) -> pa.Table:
    """Rows of a stored table from plain lists, each column in its stored type."""
    schema = STORED[table].arrow
    return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})


def events(n: int, *, start: int = 0, cat: str = "cpu_op") -> pa.Table:
    """`n` events, one nanosecond apart, with names from a small set."""
    names = [f"op{i % 3}" for i in range(n)]
    return rows(
        "events",
        cat=[cat] * n, name=names, ph=["X"] * n, start_ns=list(range(start, start + n)), dur_ns=[5] * n,
        valid=[True] * n,
    )  # fmt: skip


def small_store(root: str, *, ranks: int = 2, n: int = 4, facts: dict[str, Any] | None = None) -> Place:
    """A valid store of `ranks` ranks in world "0" with `n` events each; the other tables are empty."""
    place = Place(root)
    parts: list[Part] = []
    for rank in range(ranks):
        source = SOURCE_ID
        constants = {"host": f"node{rank // 8}", "world": "0", "window": 0}
        for table in layout.PARTITIONED:
            content = events(n, start=1000 * rank) if table == "events" else STORED[table].arrow.empty_table()
            parts.append(write_table(place, table, content, source_id=source, rank=rank, constants=constants))
    for table in layout.SINGLE:
        parts.append(write_single(place, table, STORED[table].arrow.empty_table()))
    write_manifest(place, parts, facts or {"default_world": "0"})
    return place


def squared(x: int) -> int:
    """For worker processes: they find it here by name."""
    return x * x


def squared_or_dead(x: int) -> int:
    """Kills its process for one argument, as a lack of memory does."""
    if x == 3:
        os._exit(9)
    return x * x
