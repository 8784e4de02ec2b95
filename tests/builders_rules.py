"""Helpers of the rule cases: one tiny trace in, the rows and the causes of its breakdown out, in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders_trace import host, trace, write

import rankscope
from rankscope.run import Run
from rankscope.store.schema import CAUSES, FULL_CAUSES, PARTS

US = 1000


def opened(folder: Path, events: list[dict[str, Any]], **options: Any) -> Run:
    """The run of one file of rank 0; `top` holds further keys of the file."""
    top = options.pop("top", {})
    path = write(folder / "rank0.json", trace(events, **top))
    return rankscope.open(str(path), cache=False, **options)


def opened_ranks(folder: Path, ranks: list[list[dict[str, Any]]], **options: Any) -> Run:
    """The run of several ranks, one file each."""
    for rank, events in enumerate(ranks):
        write(folder / f"rank{rank}.json", trace(events, rank=rank, world_size=len(ranks)))
    return rankscope.open(str(folder), cache=False, **options)


def five(row: dict[str, Any]) -> tuple[float, ...]:
    """compute only, overlap, exposed comm, exposed memcpy, idle."""
    return tuple(row[p] / US for p in PARTS)


def whole(run: Run) -> tuple[float, ...]:
    """The five parts of the one device's whole run."""
    (row,) = run.breakdown_table(steps="none").to_pylist()
    return five(row)


def classes(run: Run) -> dict[str, str]:
    """Class of each activity's name."""
    return {r["name"]: r["class"] for r in run.table("activities").to_pylist()}


def causes(row: dict[str, Any]) -> dict[str, float]:
    """The causes of idle time that are not zero."""
    return {c[:-3]: row[c] / US for c in (*CAUSES, *FULL_CAUSES) if row.get(c)}


def why(run: Run, **options: Any) -> dict[str, float]:
    """Causes of the one device's idle time over the whole run, in full."""
    (row,) = run.breakdown_table(**{"steps": "none", "causes": "full", **options}).to_pylist()
    return causes(row)


def quality(run: Run) -> dict[str, int]:
    """Count of each quality code."""
    found: dict[str, int] = {}
    for row in run.table("quality").to_pylist():
        found[row["code"]] = found.get(row["code"], 0) + row["count"]
    return found


def steps(run: Run) -> list[tuple[int, float, float]]:
    """Step, start and end of every stored window, in microseconds."""
    rows = run.table("steps").to_pylist()
    return [(r["step"], r["start_ns"] / US, r["end_ns"] / US) for r in rows]


def note(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    """A host annotation."""
    return host("user_annotation", name, ts, dur, **more)


def op(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    """A host operator."""
    return host("cpu_op", name, ts, dur, **more)


def call(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    """A runtime call."""
    return host("cuda_runtime", name, ts, dur, **more)
