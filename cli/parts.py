"""The words on screen for the columns of the breakdown, and their rounding: shown parts add up to the shown whole.

The word bubble never stands alone: pipeline, stragglers and idle time are named by what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

PARTS = {
    "compute": "compute_only_ns",
    "compute + hidden comm": "overlap_ns",
    "exposed comm": "exposed_comm_ns",
    "memory copies": "exposed_memcpy_ns",
    "idle": "idle_ns",
}
"""The five parts of a window; they sum to it."""

EXPOSED = {
    "transfer": "transfer_ns",
    "pipeline wait": "pipeline_wait_ns",
    "stragglers": "straggler_wait_ns",
    "wait unknown": "unsplit_comm_ns",
}
"""Exposed communication by what it did; sums to it."""

GRAPH_GAP = "in CUDA graphs"


@cache
def idle_causes() -> dict[str, tuple[str, ...]]:
    """Idle causes by group of the screen; gaps inside a graph's replay stand apart (they may be the profiler's).

    The causes that `--causes full` shows apart stand in the group of the cause they are taken out of.
    """
    from rankscope.analysis.breakdown import FOLDED  # loads numpy: not needed for --help
    from rankscope.analysis.findings import IDLE_GROUPS

    groups: dict[str, tuple[str, ...]] = {}
    for name, causes in IDLE_GROUPS.items():
        apart = [part for part, whole in FOLDED.items() if whole in causes]
        groups[name] = tuple(c for c in (*causes, *apart) if c != "graph_gap_ns")
    return groups | {GRAPH_GAP: ("graph_gap_ns",)}


def idle_groups(row: Mapping[str, Any]) -> dict[str, int | float]:
    """Idle time of a row by group of the screen."""
    return {name: sum(row.get(c) or 0 for c in columns) for name, columns in idle_causes().items()}


def step_parts(row: Mapping[str, Any]) -> dict[str, int | float]:
    """The finest parts of the screen, in order; they sum to `wall_ns`."""
    parts: dict[str, int | float] = {
        "compute": row["compute_only_ns"],
        "compute + hidden comm": row["overlap_ns"],
    }
    parts |= {f"exposed comm: {name}": row[column] or 0 for name, column in EXPOSED.items()}
    parts["memory copies"] = row["exposed_memcpy_ns"]
    return parts | {f"idle: {name}": value for name, value in idle_groups(row).items()}


def rounded(values: Sequence[int | float], *, unit: float, total: int | None = None) -> list[int]:
    """Whole units that add up to the rounded sum: each value rounded down, the largest remainders up.

    Ties go to the earlier value. `total` is the sum to reach where it was rounded elsewhere (it is within one
    unit of this one). Cost: O(n log n).
    """
    exact = [v / unit for v in values]
    floors = [int(e // 1) for e in exact]
    missing = (round(sum(exact)) if total is None else total) - sum(floors)
    by_remainder = sorted(range(len(exact)), key=lambda i: (floors[i] - exact[i], i))
    for i in by_remainder[:missing]:
        floors[i] += 1
    return floors


def digits_for(wall_ns: float) -> int:
    """Decimals of milliseconds that tell something: one, three for windows below 10 ms."""
    return 1 if wall_ns >= 10_000_000 else 3


def shown_ms(values: Sequence[int | float], *, digits: int, total: str | None = None) -> list[str]:
    """Nanoseconds as milliseconds whose shown digits add up to the shown sum (or to a total shown elsewhere)."""
    units = None if total is None else round(float(total) * 10**digits)
    found = rounded(values, unit=1_000_000 / 10**digits, total=units)
    return [f"{v / 10**digits:.{digits}f}" for v in found]


def shown_percent(values: Sequence[int | float]) -> list[str]:
    """Shares of the sum in percent with one decimal, adding up to 100.0 as shown."""
    total = sum(values)
    if not total:
        return ["-" for _ in values]
    return [f"{v / 10:.1f}%" for v in rounded([x / total for x in values], unit=0.001)]


def bubble_text(minimum: str, maximum: str) -> str:
    """The time in which the GPU neither computed nor moved data, as a value or a range."""
    return minimum if minimum == maximum else f"{minimum} to {maximum}"
