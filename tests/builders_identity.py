"""Small trace files and probes for the tests of discovery and planning."""

from __future__ import annotations

import json
import random
from typing import Any

from rankscope.ingest.discover import Source
from rankscope.ingest.facts import NO_FACTS, RunFacts
from rankscope.ingest.plan import Plan, PlannedSource, plan
from rankscope.ingest.probe import Probe
from rankscope.ingest.sniff import TORCH_PROFILER

MS = 1_000_000


def trace_text(
    *,
    rank: int | None = None,
    world_size: int | None = None,
    start_us: float = 100.0,
    dur_us: float = 30.0,
    cat: str = "kernel",
    tail: dict[str, Any] | None = None,
    **header: Any,
) -> str:
    """A trace of one event; keys of `tail` follow the events."""
    top: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU-A"}]}
    if rank is not None or world_size is not None:
        info = {"backend": "nccl", "rank": rank, "world_size": world_size}
        top["distributedInfo"] = {k: v for k, v in info.items() if v is not None}
    top |= header
    event = {
        "ph": "X",
        "cat": cat,
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": start_us,
        "dur": dur_us,
        "args": {},
    }
    return json.dumps(top | {"traceEvents": [event]} | (tail or {}))


def source(rel: str, **values: Any) -> Source:
    """A source of an imaginary run at /run."""
    return Source(path=f"/run/{rel}", rel=rel, **values)


def seen(
    rank: int | None = None,
    world_size: int | None = None,
    *,
    at: tuple[int, int] | None = (0, 100),
    gpu: bool = True,
    **values: Any,
) -> Probe:
    """A probe of a healthy trace; `at` = first and last ms."""
    first, last = (None, None) if at is None else (at[0] * MS, at[1] * MS)
    return Probe(
        kind=TORCH_PROFILER,
        shape="object",
        rank=rank,
        world_size=world_size,
        first_ns=first,
        last_ns=last,
        is_deep=True,
        has_device_activity=gpu,
        **values,
    )


def planned(files: dict[str, Probe], facts: RunFacts = NO_FACTS) -> Plan:
    """Plan of files by relative path; checked to be the same in any order."""
    pairs = [(source(rel), probe) for rel, probe in files.items()]
    result = plan([s for s, _ in pairs], [p for _, p in pairs], facts)
    for seed in range(3):
        random.Random(seed).shuffle(pairs)
        assert plan([s for s, _ in pairs], [p for _, p in pairs], facts) == result
    return result


def by_rel(result: Plan) -> dict[str, PlannedSource]:
    """Planned sources by relative path."""
    return {s.label: s for s in result.sources}


def ranks(result: Plan) -> dict[str, int | None]:
    """Rank by relative path, of the files that are read."""
    return {s.label: s.rank for s in result.sources if s.is_read}


def codes(result: Plan) -> dict[str, str]:
    """Severity by code of the plan's quality rows."""
    return {row.code: str(row.severity) for row in result.quality}
