"""Issuing communication: group, sequence number, size, splits, transfer time; and waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from .costs import jittered, message_ns, mix, unit
from .device import Call, DeviceOp, Facts, Stream
from .groups import Group, build_groups, groups_by_rank
from .instructions import Act, Begin, Comm

if TYPE_CHECKING:
    from .host import RankHost
    from .model import SimulationConfig

C10D = {
    "all_reduce": ("c10d::allreduce_", "nccl:all_reduce", "allreduce"),
    "all_gather": ("c10d::_allgather_base_", "nccl:_all_gather_base", "_allgather_base"),
    "reduce_scatter": ("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", "_reduce_scatter_base"),
    "all_to_all": ("c10d::alltoall_base_", "nccl:all_to_all", "all_to_allv"),
    "send": ("c10d::send", "nccl:send", "send"),
    "recv": ("c10d::recv_", "nccl:recv", "recv"),
}
"""Operation: dispatcher operator, profiler title, `Collective name`."""


class CallDesk:
    """Knows the groups, numbers the calls and brings the members of each together."""

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config
        self.groups = build_groups(config)
        self.by_rank = groups_by_rank(self.groups, config.layout.world)
        self._seq: dict[tuple[int, str], int] = {}
        self._open: dict[tuple[str, str, int, int], Call] = {}
        self._routing: Callable[..., list[list[int]]] = lru_cache(maxsize=1024)(self._draw_routing)

    # routing of tokens to experts

    def _draw_routing(self, group: Group, step: int, stage: int, mb: int, layer: str) -> list[list[int]]:
        """Tokens that member i sends to member j, each row summing to the tokens routed there."""
        model, lay = self.config.model, self.config.layout
        total = model.tokens // lay.cp * model.topk
        rows = []
        for i in range(group.size):
            key = (self.config.seed, group.index, step, stage, mb, int(layer), i)
            weights = [0.7 + 0.6 * unit(*key, j) for j in range(group.size)]
            row = [int(total * w / sum(weights)) for w in weights]
            row[-1] += total - sum(row)
            rows.append(row)
        return rows

    def load(self, rank: int, step: int, act: Act, layer: str) -> float:
        """Tokens a rank's experts received as a share of the average."""
        group = self.by_rank[rank].get("ep")
        if group is None:
            return 1.0
        rows = self._routing(group, step, act.stage, act.microbatch, layer)
        return sum(r[group.ranks.index(rank)] for r in rows) / sum(rows[0])

    def is_launch_dropped(self, rank: int, corr: int) -> bool:
        """Whether the record of a launch is lost."""
        share = self.config.disturbances.dropped_launches
        return share > 0 and unit(self.config.seed, rank, corr, 99) < share

    # issuing

    def issue(self, host: RankHost, comm: Comm) -> None:
        """Make the call as PyTorch does: operator, parameters, profiler range, events, launch."""
        group = self.by_rank[host.rank].get(comm.axis)
        if group is None:
            return
        stream = self._stream(host, comm)
        facts = self._facts(host, comm, group)
        operator, facts.title, _ = C10D[comm.op]
        if facts.src is not None and facts.dst is not None:
            a, b = group.ranks.index(facts.src), group.ranks.index(facts.dst)
            facts.title += f" {a}->{b}" if comm.op == "send" else f" {b}<-{a}"
        args = host.recorder.comm_args(comm, facts) if host.recorder else ""
        host.open(Begin(operator, "cpu_op"))
        host.spend(host.costs.call_ns)
        ext = host.open(Begin("record_param_comms", "cpu_op", args)).ext
        facts.title_ext = host.open(Begin(facts.title)).ext
        if stream is not host.compute:
            _, record = host.runtime("cudaEventRecord", host.costs.call_ns)
            host.wait_event(stream, host.compute, host.compute.last if comm.after_compute else None, record)
        op = host.new_op(stream, "cudaLaunchKernelExC")
        op.comm, op.call, op.role, op.facts, op.ext = (
            comm,
            self._call(host, comm, facts),
            group.role,
            facts,
            ext,
        )
        if stream is not host.compute:
            _, facts.end_record = host.runtime("cudaEventRecord", host.costs.call_ns)
        for _ in range(3):
            host.close()
        if comm.is_async:
            host.tags.setdefault(comm.tag, []).append(op)
        host.give(op)
        if not comm.is_async and stream is not host.compute:
            host.wait_event(host.compute, stream, op, facts.end_record)
        host.spend(host.costs.python_ns)

    def join(self, host: RankHost, op: DeviceOp) -> None:
        """`Work.wait()`: recorded as a `wait` on the call's Seq, with the event wait inside."""
        if op.comm is None or op.facts is None:
            return
        args = host.recorder.wait_args(op.comm, op.facts) if host.recorder else ""
        host.open(Begin("record_param_comms", "cpu_op", args))
        host.wait_event(host.compute, op.stream, op, op.facts.end_record)
        host.close()
        host.spend(host.costs.python_ns)

    def _stream(self, host: RankHost, comm: Comm) -> Stream:
        if not comm.is_async and self.config.sync_on_current_stream:
            return host.compute
        key = (comm.axis, comm.lane + comm.op if comm.lane else "", comm.peer)
        if key not in host.streams:
            host.streams[key] = Stream(host.rank, 13 + 4 * len(host.streams))
        return host.streams[key]

    def _number(self, rank: int, kind: str) -> int:
        self._seq[rank, kind] = self._seq.get((rank, kind), 0) + 1
        return self._seq[rank, kind]

    def _facts(self, host: RankHost, comm: Comm, group: Group) -> Facts:
        """The call as this member sees it: sequence number, peers, elements and splits."""
        n = comm.nbytes // comm.itemsize
        share = n // group.size
        sizes = {"all_gather": (share, n), "reduce_scatter": (n, share)}.get(comm.op, (n, n))
        if comm.op not in ("send", "recv"):
            seq = self._number(host.rank, group.pg_name)
            facts = Facts(group, (group.pg_name, "", -1, seq), seq, comm.nbytes, *sizes)
            if comm.uneven:
                self._split(host, comm, facts)
            return facts
        here = group.ranks.index(host.rank)
        other = group.ranks[(here + comm.peer) % group.size]
        src, dst = (host.rank, other) if comm.op == "send" else (other, host.rank)
        order = self._number(host.rank, f"{group.pg_name}.{comm.lane}.{src}.{dst}.{comm.op}")
        key = (group.pg_name, comm.lane, src * self.config.layout.world + dst, order)
        seq = self._number(host.rank, f"{group.pg_name}.p2p")
        return Facts(group, key, seq, comm.nbytes, *sizes, src=src, dst=dst)

    def _call(self, host: RankHost, comm: Comm, facts: Facts) -> Call:
        """The call, made by whichever member issues it first."""
        if facts.key not in self._open:
            self._open[facts.key] = self._new_call(host, comm, facts)
        return self._open[facts.key]

    def _new_call(self, host: RankHost, comm: Comm, facts: Facts) -> Call:
        group, dist, hw = facts.group, self.config.disturbances, self.config.hardware
        is_p2p = facts.src is not None and facts.dst is not None
        members = (facts.src, facts.dst) if facts.src is not None and facts.dst is not None else group.ranks
        call = Call(group, "send_recv" if is_p2p else comm.op, facts.seq, len(members))
        hosts = frozenset(self.config.host_of(r) for r in members)
        size = self._largest(host, comm, group) if comm.uneven else comm.nbytes
        call.nbytes, call.step = size, host.step
        ns = message_ns(hw.inter if len(hosts) > 1 else hw.intra, comm.op, len(members), size)
        ns = round(ns * dist.link_factor(group.role, group.index, hosts))
        noise = (self.config.seed, mix(*members), facts.key[3], 2 if is_p2p else 1)
        call.transfer_ns = jittered(ns, dist.jitter, *noise)
        call.is_buffered = is_p2p and comm.nbytes <= self.config.p2p_buffer_bytes
        if self.config.end_spread_ns and not is_p2p:
            call.spread = {r: round(self.config.end_spread_ns * unit(*noise, r)) for r in members}
        return call

    def forget(self, call: Call) -> None:
        """A concluded call is no longer looked for."""
        facts = call.members[0].facts
        if facts is not None:
            self._open.pop(facts.key, None)

    # uneven all-to-all

    def _matrix(self, host: RankHost, comm: Comm, group: Group) -> list[list[int]]:
        layer = (comm.uneven or "d0")[1:]
        rows = self._routing(group, host.step, host.act.stage, host.act.microbatch, layer)
        if (comm.uneven or "").startswith("c"):
            return [list(column) for column in zip(*rows, strict=True)]
        return rows

    def _split(self, host: RankHost, comm: Comm, facts: Facts) -> None:
        group, width = facts.group, self.config.model.hidden
        here, rows = group.ranks.index(host.rank), self._matrix(host, comm, group)
        facts.in_split, facts.out_split = rows[here], [r[here] for r in rows]
        facts.in_nelems, facts.out_nelems = sum(facts.in_split) * width, sum(facts.out_split) * width
        facts.nbytes = facts.in_nelems * comm.itemsize

    def _largest(self, host: RankHost, comm: Comm, group: Group) -> int:
        rows = self._matrix(host, comm, group)
        tokens = max(max(sum(r) for r in rows), max(sum(c) for c in zip(*rows, strict=True)))
        return int(tokens * self.config.model.hidden * comm.itemsize)
