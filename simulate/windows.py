"""Step windows of one rank (METHOD 1.4), and the sums of each."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Protocol

from rankscope.store.errors import ClosureError
from rankscope.store.schema import PARTS

from .device import DeviceOp


@dataclass
class Step:
    """A step of one rank, and what is known of it so far.

    Attributes:
        host_start_ns: when the host entered it.
        first_ns: earliest start of an activity launched in it, None before any is known.
        last_ns: latest end of one.
        n_open: activities launched in it and not yet resolved.
        busy_ns, act_start_ns, act_end_ns: compute inside pipeline actions.
    """

    number: int
    host_start_ns: int
    first_ns: int | None = None
    last_ns: int | None = None
    n_open: int = 0
    start_ns: int | None = None
    busy_ns: int = 0
    act_start_ns: int | None = None
    act_end_ns: int | None = None
    sums: Counter[str] = field(default_factory=Counter)


class WindowSink(Protocol):
    """Takes closed windows."""

    def window(self, rank: int, step: Step, end_ns: int) -> None:
        """A step's window is closed; its sums are final."""


class StepWindows:
    """Puts time into step windows; a boundary is b = min(F, max(H, E)), known once F and E are."""

    def __init__(self, rank: int, sink: WindowSink) -> None:
        self.rank, self.sink = rank, sink
        self.host_end = 0
        self._steps: dict[int, Step] = {}
        self._order: list[int] = []
        self._held: deque[tuple[int, int, tuple[str, ...]]] = deque()
        self._closed = 0
        self._last_end: int | None = None

    def begin(self, number: int, t: int) -> None:
        """The host entered a step."""
        self._steps[number] = Step(number, t)
        self._order.append(number)
        if len(self._order) == 1:
            self._steps[number].start_ns = t

    def launched(self, op: DeviceOp) -> None:
        """An activity was launched in a step."""
        step = self._steps[op.step]
        step.n_open += 1
        if op.role is not None:
            step.sums[f"{op.role}.n_calls"] += 1

    def resolved(self, op: DeviceOp) -> None:
        """An activity's times are known."""
        step = self._steps[op.step]
        step.n_open -= 1
        if op.in_action:
            step.busy_ns += op.end_ns - op.start_ns
            step.act_start_ns = (
                op.start_ns if step.act_start_ns is None else min(step.act_start_ns, op.start_ns)
            )
            step.act_end_ns = op.end_ns if step.act_end_ns is None else max(step.act_end_ns, op.end_ns)
        if op.is_recorded:
            step.first_ns = op.start_ns if step.first_ns is None else min(step.first_ns, op.start_ns)
            step.last_ns = op.end_ns if step.last_ns is None else max(step.last_ns, op.end_ns)

    def add(self, start: int, end: int, columns: tuple[str, ...]) -> None:
        """Time [start, end) counts in these columns."""
        self._held.append((start, end, columns))

    def settle(self, horizon: int) -> None:
        """Count the held stretches whose window is certain; `horizon`: no unknown activity starts before."""
        while self._held:
            current, following = self._pair()
            limit: int | None = None
            if following is not None:
                self._fix(following, current, horizon)
                limit = following.host_start_ns if following.start_ns is None else following.start_ns
            start, end, columns = self._held[0]
            if limit is None or end <= limit:
                self._count(current, start, end, columns)
                self._held.popleft()
            elif start < limit:
                self._count(current, start, limit, columns)
                self._held[0] = (limit, end, columns)
            elif following is not None and following.start_ns is not None:
                self._close(current, following.start_ns)
            else:
                return

    def finish(self, end: int) -> None:
        """Close every window; the last one ends at `end`."""
        self.settle(1 << 62)
        while self._closed < len(self._order):
            current, following = self._pair()
            if following is not None:
                self._fix(following, current, 1 << 62)
            self._close(
                current, end if following is None or following.start_ns is None else following.start_ns
            )

    def _pair(self) -> tuple[Step, Step | None]:
        current = self._steps[self._order[self._closed]]
        more = self._closed + 1 < len(self._order)
        return current, self._steps[self._order[self._closed + 1]] if more else None

    def _fix(self, step: Step, before: Step, horizon: int) -> None:
        """Set the boundary before `step` when nothing unknown can move it."""
        if step.start_ns is not None or before.n_open or before.start_ns is None:
            return
        earlier = [t for t in (self._last_end, before.last_ns) if t is not None]
        bound = max([step.host_start_ns, *earlier])
        if step.first_ns is not None:
            bound = min(bound, step.first_ns)
        if bound <= horizon:
            step.start_ns = max(bound, before.start_ns)

    def _close(self, step: Step, end: int) -> None:
        if step.last_ns is not None:
            self._last_end = max(self._last_end or 0, step.last_ns)
        total = sum(step.sums[c] for c in PARTS)
        if step.start_ns is None or total != end - step.start_ns:
            raise ClosureError(
                f"simulated rank {self.rank} step {step.number}: parts do not sum to the window"
            )
        self.sink.window(self.rank, step, end)
        self._closed += 1
        del self._steps[step.number]

    @staticmethod
    def _count(step: Step, start: int, end: int, columns: tuple[str, ...]) -> None:
        for column in columns:
            step.sums[column] += end - start
