"""Why the device was idle, from what the engine knows of hosts and launches (METHOD 1.3, written anew here).

The analysis derives the same causes from trace files in `analysis/idle.py`; the two share no code, so
that each can find the other's mistakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from .device import DeviceOp

KERNEL_GAP_NS = 3_000
"""Idle no longer than this between queued activities is the device's own scheduling."""

SYNC_SLACK_NS = 2_000
"""A blocking call that ended this much before the gap still explains it (clock and return cost)."""

HOST_RULES = (
    ("checkpoint", "checkpoint_ns"),
    ("data", "data_loading_ns"),
    ("sync", "host_sync_ns"),
    ("gc", "gc_ns"),
    ("call", "host_dispatch_ns"),
)
"""What the issuing thread was doing, strongest first, and the column it counts in."""

Piece = tuple[int, int, str]
HostRange = tuple[int, int, str]


def gap_pieces(a: int, b: int, starters: list[DeviceOp], threads: dict[int, deque[HostRange]]) -> list[Piece]:
    """The maximal idle stretch [a, b) cut into pieces of one cause each.

    Args:
        a: when the device fell idle.
        b: when it took up work again.
        starters: activities of positive length that start at b.
        threads: per host thread, its recorded ranges (start, end, rule).
    """
    recorded = [op for op in starters if op.is_recorded]
    if not recorded:
        return [(a, b, "unattributed_ns")]
    chosen = min(recorded, key=lambda op: (op.launch_ns, op.corr))
    launch = chosen.launch_ns
    issued = min(max(launch, a), b)
    pieces = _host_part(a, issued, threads.get(chosen.tid, ()))
    if issued < b:
        pieces.append((issued, b, _device_cause(a, b, launch, chosen)))
    return pieces


def _device_cause(a: int, b: int, launch: int, chosen: DeviceOp) -> str:
    if launch > a:
        return "launch_latency_ns"
    if b - a <= KERNEL_GAP_NS:
        return "kernel_gap_ns"
    return "dependency_wait_ns" if chosen.was_told_to_wait else "device_other_ns"


def _host_part(a: int, q: int, ranges: Iterable[HostRange]) -> list[Piece]:
    """[a, q) by what the issuing thread did; a blocking call that covers a takes all nobody stronger has."""
    if q <= a:
        return []
    here = [r for r in ranges if r[0] < q and r[1] > a and r[2] != "sync"]
    is_covered = any(r[2] == "sync" and r[0] <= a <= r[1] + SYNC_SLACK_NS for r in ranges)
    if is_covered:
        here.append((a, q, "sync"))
    cuts = sorted({a, q, *(max(a, r[0]) for r in here), *(min(q, r[1]) for r in here)})
    pieces: list[Piece] = []
    for start, end in pairwise(cuts):
        active = {r[2] for r in here if r[0] <= start and r[1] >= end}
        cause = next((column for rule, column in HOST_RULES if rule in active), "host_other_ns")
        if pieces and pieces[-1][2] == cause:
            pieces[-1] = (pieces[-1][0], end, cause)
        else:
            pieces.append((start, end, cause))
    return pieces
