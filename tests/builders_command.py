"""One small trace with parts known by hand, and ways to run it end to end."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.store.schema import PARTS

KNOWN = (100_000, 50_000, 50_000, 50_000, 100_000)
"""Parts of `events()`: compute 100-200 and 400-450 us, communication 150-250, a copy 240-300."""


def activity(name: str, ts: float, dur: float, **given: Any) -> dict[str, Any]:
    """A device activity; `cat`, `pid`, `tid`, `device` and `stream` may be given, the rest goes to args."""
    device, stream = given.pop("device", 0), given.pop("stream", 7)
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur}
    event |= {k: given.pop(k) for k in ("cat", "pid", "tid") if k in given}
    return event | {"args": {"device": device, "stream": stream, **given}}


def events(offset: float = 0, *, device: int = 0) -> list[dict[str, Any]]:
    """Four activities whose parts are `KNOWN`."""
    return [
        activity("gemm", 100 + offset, 100, device=device),
        activity("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150 + offset, 100, stream=9, device=device),
        activity("Memcpy HtoD (Pinned -> Device)", 240 + offset, 60, cat="gpu_memcpy", device=device),
        activity("gemm", 400 + offset, 50, device=device),
    ]


def trace(
    rank: int | None = 0, world_size: int = 1, *, found: list[dict[str, Any]] | None = None, **header: Any
) -> dict[str, Any]:
    """A trace of these events; without rank it has no distributedInfo."""
    top: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU-A"}]}
    if rank is not None:
        top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size}
    return top | header | {"traceEvents": events() if found is None else found}


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


def command(*args: object) -> Ran:
    """The command line, in this process."""
    from rankscope.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run([str(a) for a in args])
    return Ran(code, out.getvalue(), err.getvalue())


def rows(run: object, *args: object) -> list[dict[str, Any]]:
    """Rows of the whole-window breakdown."""
    ran = command("breakdown", run, "--steps", "none", "--format", "json", *args)
    assert ran.code == 0, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def parts(run: object, *args: object) -> list[tuple[int, int | None, tuple[int, ...]]]:
    """(rank, device, the five parts) of every row."""
    return [(r["rank"], r["device"], tuple(r[p] for p in PARTS)) for r in rows(run, *args)]


def codes(run: Path | str | Sequence[str]) -> dict[str, int]:
    """Counts of warnings and errors by code."""
    import rankscope

    found: dict[str, int] = {}
    for row in rankscope.open(str(run) if isinstance(run, Path) else run).table("quality").to_pylist():
        if row["severity"] != "info":
            found[row["code"]] = found.get(row["code"], 0) + row["count"]
    return found


def sources(run: Path) -> dict[str, dict[str, Any]]:
    """Sources by path (the last one of a file that fuses ranks)."""
    import rankscope

    return {s["path"]: s for s in rankscope.open(str(run)).table("sources").to_pylist()}
