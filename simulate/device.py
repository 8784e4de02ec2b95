"""The device side: streams run their activities in order, calls bring the members of a group together.

Nothing here is a queue of timed events: an activity's start is the latest of what it waits for, so it is
computed as soon as all of that is known, in whatever order the ranks are advanced. The result does not
depend on that order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from .groups import Group
from .instructions import Comm, Kernel

UNKNOWN = -1


@dataclass(slots=True)
class Facts:
    """What one member knows of its call.

    Attributes:
        key: which call it is, the same on every member.
        nbytes: message size as this member has it (its own input where splits are uneven).
        src, dst: global ranks of a point-to-point message.
        title, title_ext: the profiler range around the launch.
        end_record: correlation of the event recorded after the call.
    """

    group: Group
    key: tuple[str, str, int, int]
    seq: int
    nbytes: int
    in_nelems: int
    out_nelems: int
    src: int | None = None
    dst: int | None = None
    in_split: list[int] | None = None
    out_split: list[int] | None = None
    title: str = ""
    title_ext: int = 0
    end_record: int = 0


class DeviceOp:
    """An activity on a stream; start and end are UNKNOWN until everything it waits for is known."""

    __slots__ = (
        "annotations", "blocked", "call", "comm", "corr", "deps", "dur_ns", "end_ns", "ext", "facts", "in_action",
        "is_recorded", "kernel", "launch_ns", "rank", "ready_ns", "role", "start_ns", "step", "stream", "tid",
        "wait_ns", "was_told_to_wait",
    )  # fmt: skip

    def __init__(self, rank: int, stream: Stream, launch_ns: int, ready_ns: int) -> None:
        self.rank, self.stream = rank, stream
        self.launch_ns, self.ready_ns = launch_ns, ready_ns
        self.start_ns = self.end_ns = UNKNOWN
        self.dur_ns = self.wait_ns = 0
        self.kernel: Kernel | None = None
        self.comm: Comm | None = None
        self.call: Call | None = None
        self.role: str | None = None
        self.facts: Facts | None = None
        self.deps: list[DeviceOp] = []
        self.blocked: list[Stream] = []
        self.annotations: list[Annotation] | None = None
        self.was_told_to_wait = False
        self.is_recorded = True
        self.in_action = False
        self.corr = self.ext = self.step = self.tid = 0

    @property
    def cls(self) -> str:
        """Class of the activity: compute, comm or memcpy."""
        return self.kernel.cls if self.kernel is not None else "comm"


class Annotation:
    """A host range that the profiler repeats on the compute stream, from its first activity to its last."""

    __slots__ = ("ext", "first", "last", "name")

    def __init__(self, name: str, ext: int) -> None:
        self.name, self.ext = name, ext
        self.first: DeviceOp | None = None
        self.last: DeviceOp | None = None


class Stream:
    """A first-in-first-out queue of one device."""

    __slots__ = ("free_ns", "last", "number", "pending", "queue", "rank", "was_told_to_wait")

    def __init__(self, rank: int, number: int) -> None:
        self.rank, self.number = rank, number
        self.queue: deque[DeviceOp] = deque()
        self.free_ns = UNKNOWN
        self.last: DeviceOp | None = None
        self.pending: list[DeviceOp] = []
        self.was_told_to_wait = False


class Call:
    """One collective, or one message, of a group: who arrived when, and when each member ends.

    Collectives are N-to-N: nobody ends before the last arrival plus the transfer. A message ends on both
    sides at the later arrival plus the transfer, unless it is small enough to be buffered and the sender
    is through before the receiver comes.
    """

    __slots__ = (
        "group",
        "is_buffered",
        "members",
        "nbytes",
        "needed",
        "op",
        "seq",
        "spread",
        "step",
        "transfer_ns",
    )

    def __init__(self, group: Group, op: str, seq: int, needed: int) -> None:
        self.group, self.op, self.seq, self.needed = group, op, seq, needed
        self.members: list[DeviceOp] = []
        self.nbytes = 0
        self.transfer_ns = 0
        self.step = 0
        self.spread: dict[int, int] = {}
        self.is_buffered = False

    @property
    def is_ready(self) -> bool:
        """Whether every member has arrived."""
        return len(self.members) == self.needed

    def conclude(self) -> None:
        """Set end and waiting time of every member."""
        last = max(m.start_ns for m in self.members)
        for m in self.members:
            m.end_ns = last + self.transfer_ns + self.spread.get(m.rank, 0)
            m.wait_ns = last - m.start_ns
        if self.is_buffered:
            self._conclude_buffered()

    def _conclude_buffered(self) -> None:
        send = next(m for m in self.members if m.comm and m.comm.op == "send")
        receive = next(m for m in self.members if m.comm and m.comm.op == "recv")
        if send.start_ns + self.transfer_ns < receive.start_ns:
            send.end_ns, send.wait_ns = send.start_ns + self.transfer_ns, 0


class Watcher(Protocol):
    """Told of every activity once its times are known."""

    def finished(self, op: DeviceOp) -> None:
        """An activity's start and end are known."""

    def concluded(self, call: Call) -> None:
        """All members of a call have their ends."""


class DeviceSide:
    """Resolves activities of all ranks as far as what is known allows."""

    def __init__(self, watcher: Watcher, *, gap_ns: int, event_latency_ns: int) -> None:
        self.watcher = watcher
        self.gap_ns, self.event_latency_ns = gap_ns, event_latency_ns
        self._work: deque[Stream] = deque()

    def enqueue(self, op: DeviceOp) -> None:
        """The host gave the stream an activity."""
        stream = op.stream
        op.deps, stream.pending = stream.pending, []
        if op.is_recorded:  # an activity whose launch left no record cannot be seen to be the one that waited
            op.was_told_to_wait, stream.was_told_to_wait = stream.was_told_to_wait, False
        stream.last = op
        stream.queue.append(op)
        if len(stream.queue) == 1:
            self._work.append(stream)

    def settle(self) -> None:
        """Resolve everything that can be."""
        while self._work:
            stream = self._work.popleft()
            while stream.queue and self._try(stream.queue[0]):
                op = stream.queue.popleft()
                stream.free_ns = op.end_ns
                self._work.extend(op.blocked)
                op.blocked = []
                op.deps = []
                self.watcher.finished(op)

    def _try(self, op: DeviceOp) -> bool:
        """Whether the activity's end is known now."""
        if op.end_ns != UNKNOWN:
            return True
        if op.start_ns != UNKNOWN:
            return False
        start = op.ready_ns
        if op.stream.free_ns != UNKNOWN:
            start = max(start, op.stream.free_ns + self.gap_ns)
        for dep in op.deps:
            if dep.end_ns == UNKNOWN:
                dep.blocked.append(op.stream)
                return False
            start = max(start, dep.end_ns + self.event_latency_ns)
        op.start_ns = start
        if op.call is None:
            op.end_ns = start + op.dur_ns
            return True
        return self._arrive(op, op.call)

    def _arrive(self, op: DeviceOp, call: Call) -> bool:
        call.members.append(op)
        if not call.is_ready:
            return False
        call.members.sort(key=lambda m: m.rank)
        call.conclude()
        self.watcher.concluded(call)
        self._work.extend(m.stream for m in call.members if m is not op)
        return True
