"""The account of one rank's device time, kept by the engine as it goes: every ns gets its place.

Activities come in as their times become known, in no order; a review closes everything before the
earliest instant at which an activity yet unknown could start. Memory is bounded by how far the host runs
ahead of the device, not by the length of the run.
"""

from __future__ import annotations

import heapq
from collections import deque

from .device import DeviceOp, Stream
from .idle_rules import SYNC_SLACK_NS, HostRange, gap_pieces
from .windows import StepWindows, WindowSink

FOREVER = 1 << 62
ROLE_ORDER = {"PP": 0, "DP": 1, "FSDP": 1, "CP": 2, "TP": 3, "EP": 4, "other": 5}


class Ledger:
    """Accounts for one rank; rows of closed step windows go to the sink."""

    def __init__(self, rank: int, sink: WindowSink) -> None:
        self.rank = rank
        self.windows = StepWindows(rank, sink)
        self._threads: dict[int, deque[HostRange]] = {}
        self._waiting: dict[Stream, deque[int]] = {}
        self._heap: list[tuple[int, int, int, DeviceOp]] = []
        self._active: list[DeviceOp] = []
        self._now: int | None = None

    # what the engine reports

    def step_began(self, number: int, t: int) -> None:
        """The host entered a step."""
        self.windows.begin(number, t)
        if self._now is None:
            self._now = t

    def step_range_ended(self, t: int) -> None:
        """The host left the step's range."""
        self.windows.host_end = t

    def host(self, tid: int, start: int, end: int, rule: str) -> None:
        """A thread was inside an operator or call (`call`), or a range that an idle rule names."""
        self._threads.setdefault(tid, deque()).append((start, end, rule))

    def launched(self, op: DeviceOp) -> None:
        """An activity was given to a stream."""
        self._waiting.setdefault(op.stream, deque()).append(op.launch_ns)
        self.windows.launched(op)

    def resolved(self, op: DeviceOp) -> None:
        """An activity's times are known."""
        self._waiting[op.stream].popleft()
        self.windows.resolved(op)
        if op.end_ns > op.start_ns:
            heapq.heappush(self._heap, (op.start_ns, op.stream.number, op.corr, op))

    def review(self, host_ns: int) -> None:
        """Close what can no longer change; the host has reached `host_ns` outside any operator."""
        horizon = min([host_ns, *(w[0] for w in self._waiting.values() if w)])
        self._sweep(horizon)
        self.windows.settle(horizon)
        self._prune()

    def ended(self) -> None:
        """The run is over; nothing more will come."""
        self._sweep(FOREVER)
        end = max(self._now or 0, self.windows.host_end)
        if self._now is not None and end > self._now:
            self.windows.add(self._now, end, ("idle_ns", "tail_ns"))
        self.windows.finish(end)

    # the sweep

    def _sweep(self, horizon: int) -> None:
        while self._now is not None:
            upcoming = self._heap[0][0] if self._heap else FOREVER
            if self._active:
                until = min(upcoming, horizon, *(self._turning_points()))
                if until > self._now:
                    self.windows.add(self._now, until, columns_of(self._active, self._now))
                    self._now = until
                self._active = [op for op in self._active if op.end_ns > self._now]
                if self._now >= horizon:
                    return
            elif upcoming >= horizon:
                return
            else:
                self._close_gap(upcoming)
            self._admit()

    def _turning_points(self) -> list[int]:
        now = self._now or 0
        points = []
        for op in self._active:
            points.append(op.end_ns)
            if op.start_ns + op.wait_ns > now:
                points.append(op.start_ns + op.wait_ns)
        return points

    def _admit(self) -> None:
        while self._heap and self._now is not None and self._heap[0][0] <= self._now:
            self._active.append(heapq.heappop(self._heap)[3])

    def _close_gap(self, b: int) -> None:
        if self._now is None or b <= self._now:
            return
        starters = [item[3] for item in self._heap if item[0] == b]
        for start, end, cause in gap_pieces(self._now, b, starters, self._threads):
            self.windows.add(start, end, ("idle_ns", cause))
        self._now = b

    def _prune(self) -> None:
        """Host ranges that no later gap can touch are forgotten."""
        floor = (self._now or 0) - 2 * SYNC_SLACK_NS
        for ranges in self._threads.values():
            while ranges and ranges[0][1] < floor:
                ranges.popleft()


def columns_of(active: list[DeviceOp], now: int) -> tuple[str, ...]:
    """The columns an instant counts in, given the activities running."""
    classes = {op.cls for op in active}
    out = []
    if "compute" in classes:
        out += ["compute_ns", "overlap_ns" if "comm" in classes else "compute_only_ns"]
    if "memcpy" in classes:
        out += ["memcpy_ns", *(["exposed_memcpy_ns"] if classes == {"memcpy"} else [])]
    if "comm" in classes:
        out.append("communication_ns")
        comms = [op for op in active if op.comm is not None]
        if "compute" in classes:
            out += [f"{role}.overlap_ns" for role in {op.role for op in comms}]
        else:
            owner = min(comms, key=lambda op: _claim(op, now))
            part = _part(owner, now)
            out += ["exposed_comm_ns", part, f"{owner.role}.exposed_comm_ns", f"{owner.role}.{part}"]
    return tuple(out)


def _claim(op: DeviceOp, now: int) -> tuple[int, int, bool, int, int, int]:
    """Order of claims on an exposed instant: who ends last; ties by role, transfer first, then start, stream, id."""
    is_waiting = now < op.start_ns + op.wait_ns
    return (-op.end_ns, ROLE_ORDER[op.role or "other"], is_waiting, op.start_ns, op.stream.number, op.corr)


def _part(op: DeviceOp, now: int) -> str:
    if now >= op.start_ns + min(op.wait_ns, op.end_ns - op.start_ns):
        return "transfer_ns"
    return "pipeline_wait_ns" if op.role == "PP" else "straggler_wait_ns"
