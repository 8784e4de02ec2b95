"""Every table an analysis gives: its function, what it needs, its columns, and the definition in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankscope.store.schema import PARTS

from . import aggregate, breakdown, findings, gaps, idle, kernels, windows


@dataclass(frozen=True)
class Entry:
    """One table.

    Attributes:
        function: computes it.
        inputs: stored tables it is computed from.
        columns: the columns the contract fixes (identity columns stand before them where rows have a rank).
    """

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def formula(self) -> str:
        """The definition: the function's docstring."""
        return inspect.getdoc(self.function) or ""


ENTRIES = {
    "breakdown": Entry(
        breakdown.breakdown,
        ("activities", "host_activities", "events", "steps"),
        ("wall_ns", *PARTS),
    ),
    "breakdown by key": Entry(aggregate.aggregate, ("breakdown",), ("n", "wall_min_ns", "wall_max_ns")),
    "idle": Entry(idle.idle_segments, ("activities", "events", "steps"), ("start_ns", "end_ns", "cause")),
    "gaps": Entry(
        gaps.gaps,
        ("activities", "events", "steps"),
        ("step", "start_ns", "end_ns", "cause", "host_frame", "previous_kernel", "next_kernel", "on_ranks"),
    ),
    "kernels": Entry(
        kernels.kernels,
        ("activities", "steps"),
        ("name", "class", "rule", "count", "total_ns", "mean_ns", "p50_ns", "p99_ns", "share_ratio",
         "rank_spread_ratio", "slowdown_under_comm_ratio"),
    ),
    "summary": Entry(findings.findings, ("breakdown",), findings.COLUMNS),
    "steps": Entry(windows.select_windows, ("steps", "activities"), ("step", "phase", "source", "start_ns", "end_ns")),
}  # fmt: skip
"""Tables by name."""
