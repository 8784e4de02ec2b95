"""The profiler's view: what Kineto would have written of a rank, event by event, as JSON text.

Times leave here on the clock of the rank's host: true time plus the host's offset, relative to
`baseTimeNanoseconds`, in microseconds with exactly three decimals.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from .calls import C10D
from .costs import mix
from .device import Annotation, DeviceOp, Facts
from .instructions import COMPUTE, Comm, Kernel

if TYPE_CHECKING:
    from .host import OpenRange

BASE_NS = 1_790_857_026_000_000_000
"""Kineto's base of late 2026: bases lie on a grid of 7,889,238 s."""

START_NS = 2_411_520_000_000_000
"""When the run begins, after the base."""

CBID = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaMemsetAsync": 51,
    "cudaEventRecord": 135, "cudaStreamWaitEvent": 147, "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165,
}  # fmt: skip

NCCL_KERNEL = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_{dtype}_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_{dtype}_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_all": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
SHORT = {"BFloat16": "bf16", "Float": "f32"}
SMS = 132
MOST_RANKS = 30
"""PyTorch shortens longer lists of ranks and splits in the arguments of a call."""


class TextSink(Protocol):
    """Takes finished lines of the trace."""

    def write(self, line: str) -> None:
        """One event."""


class Recorder:
    """Writes one rank's events.

    Args:
        sink: takes the lines.
        rank: whose events these are.
        pid: process id, also the id of the main thread.
        device: index of the GPU on its host.
        offset_ns: by how much the host's clock is ahead.
        has_seq: calls carry `Seq`.
    """

    def __init__(
        self, sink: TextSink, *, rank: int, pid: int, device: int, offset_ns: int = 0, has_seq: bool = True
    ) -> None:
        self.rank, self.sink, self.pid, self.gpu, self.has_seq = rank, sink, pid, device, has_seq
        self.shift_ns = START_NS + offset_ns
        self.first_ns: int | None = None
        self.last_ns = 0
        self._flow = 0
        self._known: set[int] = set()

    # parts of an event

    def ts(self, t: int) -> str:
        """A time as the file shows it."""
        t += self.shift_ns
        return f"{t // 1000}.{t % 1000:03d}"

    @staticmethod
    def dur(ns: int) -> str:
        """A duration as the file shows it."""
        return f"{ns // 1000}.{ns % 1000:03d}"

    def _event(self, cat: str, name: str, place: str, start: int, end: int, *, args: str) -> None:
        self.first_ns = start if self.first_ns is None else self.first_ns
        self.last_ns = max(self.last_ns, end)
        self.sink.write(
            f'{{"ph": "X", "cat": "{cat}", "name": {quoted(name)}, {place}, '
            f'"ts": {self.ts(start)}, "dur": {self.dur(end - start)}, "args": {{{args}}}}}'
        )

    def _flow_end(self, kind: str, ident: int, place: str, t: int) -> None:
        bind = ', "bp": "e"' if kind[0] == "f" else ""
        name = kind[2:]
        self.sink.write(
            f'{{"ph": "{kind[0]}", "id": {ident}, {place}, "ts": {self.ts(t)}, '
            f'"cat": "{name}", "name": "{name}"{bind}}}'
        )

    def _host(self, tid: int) -> str:
        if tid not in self._known:
            self._known.add(tid)
            name = "python3.12" if tid == self.pid else "pt_autograd_0"
            self._name_thread(self.pid, tid, f"thread {tid} ({name})")
        return f'"pid": {self.pid}, "tid": {tid}'

    def _stream(self, number: int) -> str:
        if -2 - number not in self._known:
            self._known.add(-2 - number)
            self._name_thread(self.gpu, number, f"stream {number} ")
        return f'"pid": {self.gpu}, "tid": {number}'

    def _name_thread(self, pid: int, tid: int, name: str) -> None:
        for key, arg in (("thread_name", f'"name": "{name}"'), ("thread_sort_index", f'"sort_index": {tid}')):
            self.meta(key, pid, tid, arg)

    def meta(self, key: str, pid: int, tid: int, arg: str) -> None:
        """A metadata event."""
        self.sink.write(
            f'{{"name": "{key}", "ph": "M", "ts": {self.ts(0)}, "pid": {pid}, "tid": {tid}, "args": {{{arg}}}}}'
        )

    def opening(self) -> None:
        """What stands first: the processes, host and device."""
        for pid, label, order in ((self.pid, "CPU", self.pid), (self.gpu, f"GPU {self.gpu}", 5_000_000)):
            self.meta("process_name", pid, 0, '"name": "python3.12"')
            self.meta("process_labels", pid, 0, f'"labels": "{label}"')
            self.meta(
                "process_sort_index", pid, 0, f'"sort_index": {order + (self.gpu if pid != self.pid else 0)}'
            )
        self._event("overhead", "Activity Buffer Request", '"pid": -1, "tid": 0', 0, 1_800, args="")

    def closing(self) -> None:
        """What stands last: the profiler's own span."""
        start, end = self.first_ns or 0, self.last_ns
        self.sink.write(
            f'{{"ph": "X", "cat": "Trace", "ts": {self.ts(start)}, "dur": {self.dur(end - start)}, "pid": "Spans", '
            f'"tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {{"Op count": 0}}}}'
        )
        for name, pid, tid, t in (
            ("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", start),
            ("Record Window End", "", "", end),
        ):
            self.sink.write(
                f'{{"name": "{name}", "ph": "i", "s": "g", "pid": "{pid}", "tid": "{tid}", "ts": {self.ts(t)}}}'
            )

    # host events

    def host_range(self, done: OpenRange, tid: int, end: int) -> None:
        """An operator or annotation has ended."""
        begin, ext = done.begin, done.ext
        args = f'"External id": {ext}, "Record function id": 0, '
        if done.sequence is not None:
            args += f'"Sequence number": {done.sequence}, "Fwd thread id": {int(begin.is_backward)}, '
        if begin.args:
            args += begin.args + ", "
        args += f'"Ev Idx": {ext - 1}'
        self._event(begin.cat, begin.name, self._host(tid), done.start_ns, end, args=args)

    def runtime(
        self, name: str, tid: int, span: tuple[int, int], corr: int, ext: int, *, flows: bool
    ) -> None:
        """A runtime call has returned."""
        start, end = span
        place = self._host(tid)
        args = f'"External id": {ext}, "cbid": {CBID[name]}, "correlation": {corr}'
        self._event("cuda_runtime", name, place, start, end, args=args)
        if flows:
            self._flow_end("s:ac2g", corr, place, start)

    def forward_backward(self, start: int, tid: int, back_start: int, back_tid: int) -> None:
        """A backward operator begins; the flow from its forward one is drawn."""
        self._flow += 1
        self._flow_end("s:fwdbwd", self._flow, self._host(tid), start)
        self._flow_end("f:fwdbwd", self._flow, self._host(back_tid), back_start)

    def stream_wait(
        self, waiting: int, recorded: int, start: int, end: int, corr: int, record_corr: int
    ) -> None:
        """A stream was made to wait for an event of another."""
        args = (
            f'"External id": {corr}, "cuda_sync_kind": "Stream Wait Event", "wait_on_stream": {recorded}, '
            f'"wait_on_cuda_event_record_corr_id": {record_corr}, "wait_on_cuda_event_id": {recorded + 1}, '
            f'"stream": {waiting}, "correlation": {corr}, "device": {self.gpu}, "context": 1'
        )
        self._event("cuda_sync", "Stream Wait Event", self._stream(waiting), start, end, args=args)

    def synchronized(self, kind: str, start: int, end: int, corr: int) -> None:
        """The host waited for a stream or the whole device."""
        name, stream = ("Stream Sync", COMPUTE) if kind == "stream" else ("Context Sync", -1)
        args = (
            f'"External id": {corr}, "cuda_sync_kind": "{name}", "stream": {stream if stream > 0 else 4294967295}, '
            f'"correlation": {corr}, "device": {self.gpu}, "context": 1'
        )
        self._event("cuda_sync", name, f'"pid": {self.gpu}, "tid": {stream}', start, end, args=args)

    # device events

    def device(self, op: DeviceOp) -> None:
        """An activity's times are known."""
        place = self._stream(op.stream.number)
        link = f'"External id": {op.ext}, ' if op.is_recorded else ""
        where = f'"device": {self.gpu}, "context": 1, "stream": {op.stream.number}, "correlation": {op.corr}'
        if op.comm is not None and op.facts is not None:
            self._comm_kernel(op, op.comm, op.facts, place, link, where)
        elif op.kernel is not None and op.kernel.cls == "memcpy":
            self._copy(op, op.kernel, place, f"{link}{where}")
        elif op.kernel is not None:
            shape = _shape(op.kernel.grid, op.kernel.block)
            args = f'{link}"queued": 0, {where}, {shape}, "graph id": 0, "graph node id": 0'
            self._event("kernel", op.kernel.name, place, op.start_ns, op.end_ns, args=args)
        if op.is_recorded:
            self._flow_end("f:ac2g", op.corr, place, op.start_ns)

    def _copy(self, op: DeviceOp, kernel: Kernel, place: str, args: str) -> None:
        rate = kernel.nbytes / max(1, op.end_ns - op.start_ns)
        args += f', "bytes": {kernel.nbytes}, "memory bandwidth (GB/s)": {rate:.6f}, "graph id": 0, "graph node id": 0'
        cat = "gpu_memset" if kernel.copy == "memset" else "gpu_memcpy"
        self._event(cat, kernel.name, place, op.start_ns, op.end_ns, args=args)

    def _comm_kernel(self, op: DeviceOp, comm: Comm, facts: Facts, place: str, link: str, where: str) -> None:
        name = NCCL_KERNEL[comm.op].format(dtype=SHORT[comm.dtype])
        shape = _shape((24 if facts.nbytes > 1 << 16 else 1, 1, 1), (544, 1, 1))
        args = f'{link}"queued": 0, {where}, {shape}, "graph id": 0, "graph node id": 0'
        if op.is_recorded:
            args += ", " + self._call_args(comm, facts)
        self._event("kernel", name, place, op.start_ns, op.end_ns, args=args)
        if op.is_recorded:
            note = f'"External id": {facts.title_ext}'
            self._event("gpu_user_annotation", facts.title, place, op.start_ns, op.end_ns, args=note)

    def device_annotation(self, note: Annotation, end: int) -> None:
        """A host range as the device saw it."""
        if note.first is not None:
            args = f'"External id": {note.ext}'
            self._event(
                "gpu_user_annotation", note.name, self._stream(COMPUTE), note.first.start_ns, end, args=args
            )

    # arguments of calls

    def _call_args(self, comm: Comm, facts: Facts) -> str:
        group = facts.group
        text = (
            f'"Collective name": "{C10D[comm.op][2]}", "In msg nelems": {facts.in_nelems}, '
            f'"Out msg nelems": {facts.out_nelems}, "Group size": {group.size}, "dtype": "{comm.dtype}", '
            f'"In split size": "{_listed(facts.in_split or ())}", "Out split size": "{_listed(facts.out_split or ())}", '
            f'"Process Group Name": "{group.pg_name}", "Process Group Description": "{group.pg_desc}", '
            f'"Process Group Ranks": "{_listed(group.ranks)}"'
        )
        if comm.op == "recv":
            text += f', "Src Rank": {facts.src}'
        if comm.op == "send":
            text += f', "Dst Rank": {facts.dst}'
        if self.has_seq:
            text += f', "Seq": {facts.seq}, "Comms Id": {_comms_id(facts)}'
        return text

    def comm_args(self, comm: Comm, facts: Facts) -> str:
        """Arguments of `record_param_comms` around a call; `Rank` is the peer's for a message."""
        first, stride = _span(facts)
        peer = {"send": facts.dst, "recv": facts.src}.get(comm.op)
        member = facts.group.ranks.index(self.rank if peer is None else peer)
        mode = f', "Is asynchronized op": {int(comm.is_async)}' if self.has_seq else ""
        return (
            f'{self._call_args(comm, facts)}{mode}, "Rank": {member}, '
            f'"Global rank start": {first}, "Global rank stride": {stride}'
        )

    def wait_args(self, comm: Comm, facts: Facts) -> str:
        """Arguments of `record_param_comms` around a wait: the Seq awaited, and little else."""
        seq = f', "Seq": {facts.seq}, "Is asynchronized op": 0' if self.has_seq else ""
        return (
            f'"Collective name": "wait", "In msg nelems": 0, "Out msg nelems": 0, "Group size": 1, '
            f'"dtype": "{comm.dtype}", "In split size": "[]", "Out split size": "[]", '
            f'"Process Group Name": "{facts.group.pg_name}", "Process Group Description": "{facts.group.pg_desc}", '
            f'"Process Group Ranks": ""{seq}'
        )


@lru_cache(maxsize=4096)
def quoted(text: str) -> str:
    """Text as a JSON string."""
    return json.dumps(text)


@lru_cache(maxsize=1024)
def _shape(grid: tuple[int, int, int], block: tuple[int, int, int]) -> str:
    blocks = grid[0] * grid[1] * grid[2]
    warps = blocks * (block[0] * block[1] * block[2] / 32)
    occupancy = min(100, int(100 * warps / SMS / 64))
    return (
        f'"registers per thread": 168, "shared memory": 0, "blocks per SM": {blocks / SMS:.6f}, '
        f'"warps per SM": {warps / SMS:.6f}, "grid": {list(grid)}, "block": {list(block)}, '
        f'"est. achieved occupancy %": {occupancy}'
    )


def _listed(values: tuple[int, ...] | list[int]) -> str:
    """A list as PyTorch prints it: the first thirty, and dots for the rest."""
    if len(values) <= MOST_RANKS:
        return f"[{', '.join(map(str, values))}]"
    return f"[{', '.join(map(str, values[:MOST_RANKS]))}, ...]"


def _span(facts: Facts) -> tuple[int, int]:
    """First rank of a group, and the distance to the second."""
    ranks = facts.group.ranks
    return ranks[0], ranks[1] - ranks[0] if len(ranks) > 1 else 1


def _comms_id(facts: Facts) -> int:
    """A 64-bit number that all members of a collective share, as PyTorch 2.13 derives one."""
    return mix(
        int(facts.group.pg_name), facts.seq, int(facts.src is not None), *_span(facts), facts.group.size
    )
