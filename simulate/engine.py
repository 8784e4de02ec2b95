"""Runs all ranks of a simulated job: hosts in turn, streams as far as is known, until the last step ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .calls import CallDesk
from .device import Call, DeviceOp, DeviceSide
from .host import RankHost
from .instructions import Instruction, StepMark, Sync
from .ledger import Ledger
from .model import SimulationConfig
from .program import StepProgram
from .record import Recorder
from .truth import TruthSink

RUN_AHEAD = 128
"""Unresolved activities a rank may have before its host is set aside for others: bounds memory only."""

REVIEW_EVERY = 64
"""Instructions between two reviews of what the ledger may close."""


class Engine:
    """A run in progress.

    Args:
        config: what to simulate.
        recorders: per rank, the profiler's view, or None where no file is wanted.
        ledgers: per rank, the account of time, or None.
        truth: takes concluded calls, or None.
    """

    def __init__(
        self,
        config: SimulationConfig,
        *,
        recorders: list[Recorder | None] | None = None,
        ledgers: list[Ledger] | None = None,
        truth: TruthSink | None = None,
    ) -> None:
        world = config.layout.world
        self.config, self.truth = config, truth
        self.calls = CallDesk(config)
        self.program = StepProgram(config)
        hw = config.hardware
        self.device = DeviceSide(self, gap_ns=hw.kernel_gap_ns, event_latency_ns=hw.event_latency_ns)
        self.hosts = [
            RankHost(
                config,
                rank,
                self.device,
                calls=self.calls,
                recorder=recorders[rank] if recorders else None,
                ledger=ledgers[rank] if ledgers else None,
            )
            for rank in range(world)
        ]
        self._scripts = [self._script(rank) for rank in range(world)]
        self._current: list[Instruction | None] = [None] * world
        self._limit = [RUN_AHEAD] * world
        self._ready = deque(range(world))
        self._is_ready = [True] * world
        self._is_done = [False] * world

    def _script(self, rank: int) -> Iterator[Instruction]:
        first = self.config.first_step
        for number in range(first, first + self.config.steps):
            yield from self.program.step(rank, number)
        yield Sync("device")
        yield StepMark(None)

    def run(self) -> None:
        """Simulate to the end.

        Raises:
            RuntimeError: ranks wait for one another for ever (a defect of the program, not of the user).
        """
        while not all(self._is_done):
            while self._ready:
                rank = self._ready.popleft()
                self._is_ready[rank] = False
                self._advance(rank)
            self._let_more_run()

    def _let_more_run(self) -> None:
        """Nobody can go on within the limit: those that are not blocked may run further ahead."""
        free = [r for r, done in enumerate(self._is_done) if not done and not self.hosts[r].awaited]
        if not free and not all(self._is_done):
            blocked = [r for r, done in enumerate(self._is_done) if not done]
            raise RuntimeError(f"simulated ranks wait for one another: {blocked[:8]}")
        for rank in free:
            self._limit[rank] = self.hosts[rank].n_open + RUN_AHEAD
            self._wake(rank)

    def _wake(self, rank: int) -> None:
        if not self._is_ready[rank] and not self._is_done[rank]:
            self._is_ready[rank] = True
            self._ready.append(rank)

    def _advance(self, rank: int) -> None:
        """Let one host run until it blocks, is far ahead, or is done."""
        host, script, count = self.hosts[rank], self._scripts[rank], 0
        while host.n_open < self._limit[rank]:
            instruction = self._current[rank] or next(script, None)
            if instruction is None:
                self._is_done[rank] = True
                break
            self._current[rank] = None
            if not host.run(instruction):
                self._current[rank] = instruction
                break
            count += 1
            if count % REVIEW_EVERY == 0:
                self.device.settle()
                self._review(rank)
        self.device.settle()
        self._review(rank)

    def _review(self, rank: int) -> None:
        host = self.hosts[rank]
        if host.ledger is not None and host.is_between_operators:
            host.ledger.review(host.t)

    # what the device side reports

    def finished(self, op: DeviceOp) -> None:
        """An activity's times are known: record it, account for it, and let its host go on."""
        host = self.hosts[op.rank]
        host.n_open -= 1
        if host.recorder is not None:
            host.recorder.device(op)
            for note in op.annotations or ():
                host.recorder.device_annotation(note, op.end_ns)
        op.annotations = None
        if host.ledger is not None:
            host.ledger.resolved(op)
        if host.awaited:
            host.awaited = [o for o in host.awaited if o.end_ns < 0]
            if not host.awaited:
                self._wake(op.rank)
        elif host.n_open == self._limit[op.rank] // 2:
            self._limit[op.rank] = RUN_AHEAD
            self._wake(op.rank)

    def concluded(self, call: Call) -> None:
        """A call's ends are known."""
        self.calls.forget(call)
        if self.truth is not None:
            self.truth.call(call)
