"""Small Kineto-shaped traces for end-to-end tests: microseconds in, JSON out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COPY = "Memcpy HtoD (Pageable -> Device)"


def kernel(
    name: str,
    ts: float,
    dur: float,
    *,
    stream: int = 7,
    device: int = 0,
    corr: int | None = None,
    **args: Any,
) -> dict[str, Any]:
    """A kernel event."""
    return _device("kernel", name, ts, dur, {"device": device, "stream": stream, "correlation": corr, **args})


def memcpy(
    ts: float,
    dur: float,
    *,
    name: str = COPY,
    stream: int = 7,
    device: int = 0,
    corr: int | None = None,
    **args: Any,
) -> dict[str, Any]:
    """A copy on the device."""
    return _device(
        "gpu_memcpy", name, ts, dur, {"device": device, "stream": stream, "correlation": corr, **args}
    )


def _device(cat: str, name: str, ts: float, dur: float, args: dict[str, Any]) -> dict[str, Any]:
    args = {k: v for k, v in args.items() if v is not None}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": args["device"],
        "tid": args["stream"],
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def host(
    cat: str, name: str, ts: float, dur: float, *, tid: int = 100, pid: int = 100, **args: Any
) -> dict[str, Any]:
    """A host event: cpu_op, user_annotation, cuda_runtime ..."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launch(
    ts: float, corr: int, *, dur: float = 2, name: str = "cudaLaunchKernel", tid: int = 100, pid: int = 100
) -> dict[str, Any]:
    """A launch call."""
    return host("cuda_runtime", name, ts, dur, tid=tid, pid=pid, correlation=corr)


def trace(events: list[dict[str, Any]], *, rank: int | None = 0, world_size: int = 1, **top: Any) -> str:
    """The file's text, one event a line."""
    head: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU-A"}]}
    if rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size}
    head.update(top)
    body = ",\n".join(json.dumps(e) for e in events)
    return json.dumps(head)[:-1] + ', "traceEvents": [\n' + body + "\n]}\n"


def write(path: Path, content: Any) -> Path:
    """Write bytes as they are; text, or JSON of anything else, gzipped when the name ends in .gz; makes the folder."""
    if not isinstance(content, bytes):
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        content = gzip.compress(data, mtime=0) if path.suffix == ".gz" else data
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


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
            host("user_annotation", f"ProfilerStep#{first + i}", t, 100),
            host("cpu_op", "aten::mm", t + 1, 4),
            launch(t + 2, c + 1, dur=1),
            launch(t + 20, c + 2, dur=1),
            launch(t + 25, c + 3, dur=1),
            kernel("gemm_a", t + 10, 40, corr=c + 1),
            kernel(NCCL, t + 40, 30, corr=c + 2, stream=20),
            memcpy(t + 75, 5, name="Memcpy DtoH (Device -> Pinned)", corr=c + 3, bytes=64),
        ]
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": base,
        "deviceProperties": [{"id": 0, "name": "Test GPU"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size},
        "traceEvents": events,
    }


def two_ranks(folder: Path, **options: Any) -> Path:
    """A folder of two healthy ranks, one of them gzipped."""
    write(folder / "rank_0.json", steps_trace(0, **options))
    write(folder / "rank_1.json.gz", steps_trace(1, **options))
    return folder
