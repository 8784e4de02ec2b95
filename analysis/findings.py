"""What costs most, from the breakdown's rows alone: the parts of the mean step, and ranked findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rankscope.store.schema import CAUSES, Timeline
from rankscope.store.units import number_ranges

from .aggregate import aggregate
from .tables import text

WEAK_RATIO = 0.01
"""A finding that costs less of the mean step says nothing."""

COLUMNS = (
    "code",
    "title",
    "cost_ns",
    "cost_ratio",
    "ceiling_ns",
    "cause",
    "evidence",
    "status",
    "ranks",
    "next_command",
)
"""Columns of the findings (CONTRACT section 6)."""

IDLE_GROUPS: dict[str, tuple[str, ...]] = {
    "launch-bound": ("host_dispatch_ns", "launch_latency_ns", "host_other_ns", "gc_ns"),
    "host sync": ("host_sync_ns",),
    "data": ("data_loading_ns", "checkpoint_ns"),
    "other": (
        "pipeline_idle_ns", "kernel_gap_ns", "graph_gap_ns", "dependency_wait_ns", "tail_ns", "device_other_ns",
        "unattributed_ns",
    ),
}  # fmt: skip
"""Idle causes in the four groups of the screen; all causes, each once."""


@dataclass(frozen=True)
class Rule:
    """One kind of finding.

    Attributes:
        code: stable word.
        title: what it is, as a person would say it.
        columns: their sum is the cost.
        status: measured, inferred, or bound (the cost is an upper limit).
        next_command: what to type next.
    """

    code: str
    title: str
    columns: tuple[str, ...]
    status: str
    next_command: str


_RULES = (
    Rule("exposed_comm", "communication in the open", ("exposed_comm_ns",), "measured", "rankscope kernels RUN"),
    Rule("host_bound", "GPU idle: the host launches too slowly", IDLE_GROUPS["launch-bound"], "measured",
         "rankscope gaps RUN"),
    Rule("host_sync", "GPU idle: the host waits for the GPU, then has nothing queued", ("host_sync_ns",), "measured",
         "rankscope gaps RUN"),
    Rule("data_loading", "GPU idle: the step waits for input data", ("data_loading_ns",), "measured",
         "rankscope gaps RUN"),
    Rule("checkpoint", "GPU idle: a checkpoint is written", ("checkpoint_ns",), "measured", "rankscope gaps RUN"),
    Rule("memcpy_exposed", "memory copies with nothing beside them", ("exposed_memcpy_ns",), "measured",
         "rankscope kernels RUN"),
    Rule("pipeline_wait", "GPU waits in the pipeline", ("pipeline_wait_ns", "pipeline_idle_ns"), "measured",
         "rankscope breakdown RUN"),
    Rule("stragglers", "GPU waits for slower ranks", ("straggler_wait_ns",), "measured", "rankscope breakdown RUN"),
    Rule("device_stalled", "GPU idle with work queued", ("kernel_gap_ns", "dependency_wait_ns", "device_other_ns"),
         "measured", "rankscope gaps RUN"),
    Rule("idle_unattributed", "GPU idle, cause not recorded (no launch records)", ("unattributed_ns",), "measured",
         "rankscope info RUN"),
)  # fmt: skip

IMBALANCE_NEXT = "rankscope breakdown RUN"


def findings(rows: pa.Table) -> pa.Table:
    """What costs most of the mean step, ranked by cost.

    `cost_ns` is the mean over the windows of the kind, `cost_ratio` its share of the mean window. Costs overlap with
    nothing but `imbalance` (largest mean compute of a rank less the mean over ranks: what the others wait at most,
    somewhere in communication; status `bound`). What costs less than 1 % of the mean window is left out. Gaps
    inside CUDA graphs may be the profiler's own and are never ranked.

    Args:
        rows: BREAKDOWN rows of single windows. Where there are device rows, those of host timelines are left out.

    Returns:
        `code, title, cost_ns` (int64), `cost_ratio, ceiling_ns` (null until a replay can tell), `cause` (the largest
        cause where a finding has several), `evidence, status` (measured, inferred, bound), `ranks` (those with
        more than the mean of it), `next_command` (`RUN` stands for the run).

    Source: this project.
    """
    chosen = _timeline(rows)
    found: list[dict[str, Any]] = []
    if chosen.num_rows:
        total = aggregate(chosen, ["run"]).to_pylist()[0]
        by_rank = aggregate(chosen, ["rank"]).to_pylist()
        on_host = total["timeline"] == Timeline.HOST
        found = [f for r in _RULES if (f := _finding(r, total, by_rank, on_host=on_host))]
        found += _imbalance(total, by_rank)
        found.sort(key=lambda f: (-f["cost_ns"], f["code"]))
    return pa.Table.from_pylist(found, schema=SCHEMA)


SCHEMA = pa.schema(
    [
        pa.field(
            c,
            {"cost_ns": pa.int64(), "ceiling_ns": pa.int64(), "cost_ratio": pa.float64()}.get(c, pa.string()),
        )
        for c in COLUMNS
    ]
)
"""Types of the findings."""


def _timeline(rows: pa.Table) -> pa.Table:
    on_device = text(rows, "timeline").is_one_of(Timeline.DEVICE)
    return rows.filter(pa.array(on_device)) if on_device.any() else rows


def _finding(
    rule: Rule, total: Mapping[str, Any], by_rank: list[dict[str, Any]], *, on_host: bool
) -> dict[str, Any] | None:
    cost, wall = sum(total[c] for c in rule.columns), total["wall_ns"]
    if not wall or cost < WEAK_RATIO * wall or (on_host and rule.columns[0] != "exposed_comm_ns"):
        return None
    n = total["n"]
    largest = max(rule.columns, key=lambda c: (total[c], -rule.columns.index(c)))
    return {
        "code": rule.code,
        "title": rule.title if not on_host else f"{rule.title} (host times)",
        "cost_ns": cost // n,
        "cost_ratio": cost / wall,
        "cause": largest.removesuffix("_ns"),
        "evidence": _evidence(rule, total, cost, largest),
        "status": rule.status,
        "ranks": number_ranges(_above_mean(rule.columns, by_rank, cost / n)),
        "next_command": rule.next_command,
    }


def _evidence(rule: Rule, total: Mapping[str, Any], cost: int, largest: str) -> str:
    if rule.code == "exposed_comm":
        if total["communication_ns"]:
            hidden = 100 * total["overlap_ns"] / total["communication_ns"]
            known = "" if not total["unsplit_comm_ns"] else "; how much of it is waiting is unknown"
            return f"{hidden:.0f} % of communication is hidden behind compute{known}"
        return "none of it is hidden behind compute"
    if len(rule.columns) > 1:
        return f"{100 * total[largest] / cost:.0f} % of it is {largest.removesuffix('_ns').replace('_', ' ')}"
    of = "idle time" if largest in CAUSES else "the window"
    whole = total["idle_ns"] if largest in CAUSES else total["wall_ns"]
    return f"{100 * cost / whole:.0f} % of {of}"


def _above_mean(columns: tuple[str, ...], by_rank: list[dict[str, Any]], mean: float) -> list[int]:
    """Ranks whose mean per window is at least the mean of all."""
    return [
        r["rank"] for r in by_rank if r["rank"] is not None and sum(r[c] for c in columns) / r["n"] >= mean
    ]


def _imbalance(total: Mapping[str, Any], by_rank: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Uneven compute over ranks: the slowest rank's mean less the mean over ranks."""
    if len(by_rank) < 2:
        return
    means = [r["compute_ns"] / r["n"] for r in by_rank]
    worst = max(range(len(means)), key=lambda i: (means[i], -i))
    mean, wall = sum(means) / len(means), total["wall_ns"] / total["n"]
    cost = int(means[worst] - mean)
    if wall and cost >= WEAK_RATIO * wall:
        yield {
            "code": "imbalance",
            "title": f"rank {by_rank[worst]['rank']} computes {100 * (means[worst] / mean - 1):.0f} % longer than the mean",
            "cost_ns": cost,
            "cost_ratio": cost / wall,
            "cause": "compute",
            "evidence": f"compute {means[worst] / 1e6:.3f} ms against a mean of {mean / 1e6:.3f} ms over {len(means)} ranks",
            "status": "bound",
            "ranks": str(by_rank[worst]["rank"]),
            "next_command": IMBALANCE_NEXT,
        }
