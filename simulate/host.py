"""The host side of a rank: runs instructions, pays their cost, gives work to the streams, blocks on syncs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .calls import CallDesk
from .costs import jittered
from .device import UNKNOWN, Annotation, DeviceOp, DeviceSide, Stream
from .instructions import (
    COMPUTE,
    Act,
    Begin,
    Comm,
    End,
    Instruction,
    Join,
    Kernel,
    Spend,
    Stall,
    StepMark,
    Sync,
    Thread,
)

if TYPE_CHECKING:
    from .ledger import Ledger
    from .model import SimulationConfig
    from .record import Recorder

API = {
    "h2d": "cudaMemcpyAsync",
    "d2h": "cudaMemcpyAsync",
    "d2d": "cudaMemcpyAsync",
    "memset": "cudaMemsetAsync",
}


class OpenRange:
    """A range the host is inside of."""

    __slots__ = ("begin", "ext", "on_gpu", "sequence", "start_ns")

    def __init__(self, begin: Begin, start_ns: int, ext: int) -> None:
        self.begin, self.start_ns, self.ext = begin, start_ns, ext
        self.sequence: int | None = None
        self.on_gpu: Annotation | None = None


class RankHost:
    """One rank's host threads (only one runs at a time), its streams, and the observers of both.

    Attributes:
        t: the host's clock, true ns since the run began.
        awaited: activities a blocking call waits for; empty when the host can go on.
        n_open: activities given to streams and not yet resolved.
    """

    def __init__(
        self,
        config: SimulationConfig,
        rank: int,
        device: DeviceSide,
        *,
        calls: CallDesk,
        recorder: Recorder | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.config, self.rank, self.device, self.calls = config, rank, device, calls
        self.recorder, self.ledger = recorder, ledger
        self.costs = config.host
        dist = config.disturbances
        self.factor, self.compute_factor = dist.host_factor(rank), dist.compute_factor(rank)
        self.t = jittered(200_000, 1.0, config.seed, rank, 1) if self.costs.op_ns else 0
        self.step = config.first_step
        self.thread = "main"
        self.tids = {"main": 20_000 + 64 * rank, "autograd": 20_000 + 64 * rank + 37}
        self.stacks: dict[str, list[OpenRange]] = {"main": [], "autograd": []}
        self.streams: dict[tuple[str, str, int], Stream] = {("compute", "", 0): Stream(rank, COMPUTE)}
        self.compute = self.streams[("compute", "", 0)]
        self.tags: dict[str, list[DeviceOp]] = {}
        self.pairs: dict[str, tuple[int, int, int]] = {}
        self.act: Act = Act()
        self.awaited: list[DeviceOp] = []
        self.n_open = 0
        self.corr, self.ext, self.sequence, self.noise, self.event = 1000, 0, 100, 0, 0
        self._sync_begin = UNKNOWN
        self._sync_ends: list[DeviceOp] = []
        self._handlers: dict[type, Callable[[Any], bool]] = {
            Begin: self._on_begin, End: self._on_end, Thread: self._on_thread, Spend: self._on_spend,
            Kernel: self._on_kernel, Comm: self._on_comm, Join: self._on_join, Sync: self._on_sync,
            Stall: self._on_stall, Act: self._on_act, StepMark: self._on_step,
        }  # fmt: skip

    def run(self, instruction: Instruction) -> bool:
        """Execute one instruction; False when the host blocks in it and must be asked again."""
        return self._handlers[type(instruction)](instruction)

    @property
    def tid(self) -> int:
        """Number of the present thread."""
        return self.tids[self.thread]

    @property
    def is_between_operators(self) -> bool:
        """Whether no operator or marked range is open on any thread."""
        return not any(r.begin.cat == "cpu_op" or r.begin.rule for s in self.stacks.values() for r in s)

    # time

    def spend(self, ns: int) -> None:
        """Let host time pass: slower on a host-bound rank, and never quite the same."""
        if ns:
            self.noise += 1
            key = (self.config.seed, self.rank, self.step, self.noise)
            self.t += jittered(round(ns * self.factor), self.costs.jitter, *key)

    def _device_jitter(self, ns: int) -> int:
        self.noise += 1
        return jittered(
            ns, self.config.disturbances.jitter, self.config.seed, self.rank, self.step, self.noise, 7
        )

    # ranges

    def open(self, begin: Begin) -> OpenRange:
        """Enter a range."""
        self.ext += 1
        opened = OpenRange(begin, self.t, self.ext)
        self.stacks[self.thread].append(opened)
        if begin.on_gpu:
            opened.on_gpu = Annotation(begin.name, self.ext)
        if begin.pair:
            self._tie(opened, begin)
        return opened

    def _tie(self, opened: OpenRange, begin: Begin) -> None:
        """A forward operator gets a sequence number, its backward takes it over (with a flow between)."""
        key = f"{self.act.stage}.{self.act.microbatch}.{begin.pair}"
        if not begin.is_backward:
            self.sequence += 1
            self.pairs[key] = (self.t, self.tid, self.sequence)
            opened.sequence = self.sequence
        elif key in self.pairs:
            start, tid, opened.sequence = self.pairs.pop(key)
            if self.recorder:
                self.recorder.forward_backward(start, tid, self.t, self.tid)

    def close(self) -> None:
        """Leave the innermost range."""
        stack = self.stacks[self.thread]
        done = stack.pop()
        begin = done.begin
        if self.recorder:
            self.recorder.host_range(done, self.tid, self.t)
        if self.ledger:
            if begin.rule:
                self.ledger.host(self.tid, done.start_ns, self.t, begin.rule)
            if begin.cat == "cpu_op" and not any(r.begin.cat == "cpu_op" for r in stack):
                self.ledger.host(self.tid, done.start_ns, self.t, "call")
        if done.on_gpu is not None and done.on_gpu.last is not None:
            self._annotate(done.on_gpu, done.on_gpu.last)

    def _annotate(self, note: Annotation, last: DeviceOp) -> None:
        if last.end_ns == UNKNOWN:
            last.annotations = [*(last.annotations or []), note]
        elif self.recorder:
            self.recorder.device_annotation(note, last.end_ns)

    def runtime(self, name: str, ns: int, *, flows: bool = False) -> tuple[int, int]:
        """Make a runtime call: (its start, its correlation)."""
        start = self.t
        self.spend(ns)
        self.corr += 1
        self.note_call(name, start, flows=flows)
        return start, self.corr

    def note_call(self, name: str, start: int, *, flows: bool = False) -> None:
        """Record a runtime call that began at `start` and ends now."""
        stack = self.stacks[self.thread]
        ext = stack[-1].ext if stack else self.ext
        if self.recorder:
            self.recorder.runtime(name, self.tid, (start, self.t), self.corr, ext, flows=flows)
        if self.ledger:
            self.ledger.host(self.tid, start, self.t, "call")

    # instructions

    def _on_begin(self, begin: Begin) -> bool:
        self.open(begin)
        self.spend(self.costs.call_ns)
        return True

    def _on_end(self, _: End) -> bool:
        self.spend(self.costs.call_ns)
        closed = self.stacks[self.thread][-1].begin
        self.close()
        if closed.name.startswith("ProfilerStep#") and self.ledger:
            self.ledger.step_range_ended(self.t)
        return True

    def _on_thread(self, thread: Thread) -> bool:
        self.spend(self.costs.thread_switch_ns)
        self.thread = thread.name
        return True

    def _on_spend(self, spend: Spend) -> bool:
        if spend.is_scaled:
            self.spend(spend.ns)
        else:
            self.t += spend.ns
        return True

    def _on_act(self, act: Act) -> bool:
        self.act = act
        return True

    def _on_step(self, mark: StepMark) -> bool:
        if mark.number is not None:
            self.step, self.noise = mark.number, 0
            if self.ledger:
                self.ledger.step_began(mark.number, self.t)
        elif self.ledger:
            self.ledger.ended()
        return True

    def _on_stall(self, stall: Stall) -> bool:
        dist = self.config.disturbances
        kinds = {"data": dist.data_stalls, "gc": dist.gc_pauses, "checkpoint": dist.checkpoints}
        ns = sum(s.ns for s in kinds[stall.kind] if s.applies(self.rank, self.step))
        if ns and stall.kind != "data":
            name = "gc.collect" if stall.kind == "gc" else "checkpoint.save"
            self.open(Begin(name, rule=stall.kind))
            self.t += ns
            self.close()
        else:
            self.t += ns
        return True

    def _on_kernel(self, kernel: Kernel) -> bool:
        opened = 0
        if kernel.node is not None:
            self.open(Begin(f"autograd::engine::evaluate_function: {kernel.node}", "cpu_op"))
            self.open(Begin(kernel.node, "cpu_op", pair=kernel.pair, is_backward=True))
            opened = 2
        if kernel.op:
            pair = kernel.pair if kernel.node is None else None
            self.open(Begin(kernel.op, "cpu_op", kernel.op_args, pair=pair))
            opened += 1
        self.spend(self.costs.op_ns)
        self._launch(kernel)
        self.spend(self.costs.call_ns)
        for _ in range(opened):
            self.close()
        self.spend(self.costs.python_ns)
        return True

    def _launch(self, kernel: Kernel) -> None:
        api = API.get(
            kernel.copy or "", "cudaLaunchKernelExC" if "nvjet" in kernel.name else "cudaLaunchKernel"
        )
        op = self.new_op(self.compute, api)
        op.kernel = kernel
        scale = self.compute_factor if kernel.cls == "compute" else 1.0
        if kernel.load is not None:
            scale *= self.calls.load(self.rank, self.step, self.act, kernel.load)
        op.dur_ns = self._device_jitter(round(kernel.ns * scale))
        op.in_action = bool(self.act.kind) and kernel.cls == "compute"
        self.give(op)

    def new_op(self, stream: Stream, api: str) -> DeviceOp:
        """An activity launched now, with its runtime call on record."""
        dropped = self.calls.is_launch_dropped(self.rank, self.corr + 1)
        stack = self.stacks[self.thread]
        ext = stack[-1].ext if stack else self.ext
        op = DeviceOp(self.rank, stream, self.t, self.t + self.costs.launch_latency_ns)
        if dropped:
            self.spend(self.costs.launch_ns)
            self.corr += 1
        else:
            self.runtime(api, self.costs.launch_ns, flows=True)
        op.corr, op.ext, op.step, op.tid = self.corr, ext, self.step, self.tid
        op.is_recorded = not dropped
        return op

    def give(self, op: DeviceOp) -> None:
        """Put an activity on its stream."""
        self.n_open += 1
        if op.stream is self.compute:
            for stack in self.stacks.values():
                for note in (r.on_gpu for r in stack if r.on_gpu is not None):
                    note.first, note.last = note.first or op, op
        if self.ledger:
            self.ledger.launched(op)
        self.device.enqueue(op)

    def wait_event(self, waiting: Stream, recorded: Stream, op: DeviceOp | None, record_corr: int) -> None:
        """`cudaStreamWaitEvent`: what the waiting stream gets next runs after the activity."""
        start, corr = self.runtime("cudaStreamWaitEvent", self.costs.call_ns)
        waiting.was_told_to_wait = True
        if op is not None:
            waiting.pending.append(op)
        if self.recorder:
            self.recorder.stream_wait(waiting.number, recorded.number, start, self.t, corr, record_corr)

    def _on_comm(self, comm: Comm) -> bool:
        self.calls.issue(self, comm)
        return True

    def _on_join(self, join: Join) -> bool:
        for op in self.tags.pop(join.tag, []):
            self.calls.join(self, op)
        return True

    # blocking

    def _on_sync(self, sync: Sync) -> bool:
        if self._sync_begin == UNKNOWN:
            self._sync_begin = self.t
            streams = [self.compute] if sync.kind == "stream" else list(self.streams.values())
            self.awaited = [s.last for s in streams if s.last is not None and s.last.end_ns == UNKNOWN]
            self._sync_ends = [s.last for s in streams if s.last is not None]
        self.awaited = [op for op in self.awaited if op.end_ns == UNKNOWN]
        if self.awaited:
            return False
        start, self._sync_begin = self._sync_begin, UNKNOWN
        self.spend(self.costs.call_ns)
        done = max((op.end_ns for op in self._sync_ends), default=0)
        self.t = max(self.t, done + self.costs.sync_return_ns)
        self.corr += 1
        name = "cudaStreamSynchronize" if sync.kind == "stream" else "cudaDeviceSynchronize"
        self.note_call(name, start)
        if self.ledger:
            self.ledger.host(self.tid, start, self.t, "sync")
        if self.recorder:
            self.recorder.synchronized(sync.kind, start, self.t, self.corr)
        return True
