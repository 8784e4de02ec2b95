"""Small Kineto-shaped trace texts for end-to-end tests: microseconds in, JSON text out."""

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


def write(path: Path, text: str | bytes) -> Path:
    """Write it (gzipped when the name ends in .gz), making the folder."""
    data = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
