"""The engine's own account of time: idle causes, step windows and the split of communication, by hand."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import pairwise

import pytest
from builders_sim import TINY, run_in_memory

from rankscope.simulate.device import DeviceOp, Stream
from rankscope.simulate.disturb import Disturbances
from rankscope.simulate.idle_rules import HostRange, gap_pieces
from rankscope.simulate.instructions import Comm, Kernel
from rankscope.simulate.ledger import Ledger
from rankscope.simulate.model import Hardware, Layout, SimulationConfig
from rankscope.simulate.windows import Step, StepWindows

US = 1_000


def _op(
    launch: int, start: int, end: int, *, step: int = 0, told: bool = False, recorded: bool = True
) -> DeviceOp:
    op = DeviceOp(0, Stream(0, 7), launch, launch)
    op.start_ns, op.end_ns, op.step, op.tid = start, end, step, 1
    op.was_told_to_wait, op.is_recorded = told, recorded
    op.kernel = Kernel("k", end - start)
    return op


def _causes(a: int, b: int, ops: list[DeviceOp], ranges: list[HostRange]) -> dict[str, int]:
    out: dict[str, int] = {}
    for start, end, cause in gap_pieces(a, b, ops, {1: deque(ranges)}):
        out[cause] = out.get(cause, 0) + end - start
    return out


# the examples of METHOD 1.3, in us: the gap is [100, 150) unless said otherwise


def test_a_sync_that_covers_the_gaps_start_takes_the_hosts_part() -> None:
    op = _op(140 * US, 150 * US, 160 * US)
    assert _causes(100 * US, 150 * US, [op], [(20 * US, 101 * US, "sync")]) == {
        "host_sync_ns": 40 * US,
        "launch_latency_ns": 10 * US,
    }


def test_the_hosts_part_is_cut_by_what_the_issuing_thread_did() -> None:
    op = _op(140 * US, 150 * US, 160 * US)
    ranges = [(100 * US, 130 * US, "data"), (90 * US, 139 * US, "call")]
    assert _causes(100 * US, 150 * US, [op], ranges) == {
        "data_loading_ns": 30 * US,
        "host_dispatch_ns": 9 * US,
        "host_other_ns": 1 * US,
        "launch_latency_ns": 10 * US,
    }


def test_work_queued_before_a_short_gap_is_a_kernel_gap() -> None:
    assert _causes(100 * US, 101_500, [_op(90 * US, 101_500, 102 * US)], []) == {"kernel_gap_ns": 1_500}


def test_work_queued_before_a_long_gap_waited_for_another_stream_or_for_no_known_reason() -> None:
    told = _op(50 * US, 150 * US, 160 * US, told=True)
    assert _causes(100 * US, 150 * US, [told], []) == {"dependency_wait_ns": 50 * US}
    other = _op(50 * US, 150 * US, 160 * US)
    assert _causes(100 * US, 150 * US, [other], []) == {"device_other_ns": 50 * US}


def test_without_a_launch_record_nothing_is_claimed() -> None:
    assert _causes(0, 50, [_op(10, 50, 60, recorded=False)], [(0, 50, "call")]) == {"unattributed_ns": 50}


def test_the_earliest_recorded_launch_decides() -> None:
    ops = [_op(5, 50, 60, recorded=False), _op(40, 50, 60), _op(20, 50, 60)]
    assert _causes(0, 50, ops, []) == {"host_other_ns": 20, "launch_latency_ns": 30}


def test_a_sync_that_begins_inside_the_gap_or_ended_long_before_explains_nothing() -> None:
    op = _op(140 * US, 150 * US, 160 * US)
    for sync in ((101 * US, 120 * US, "sync"), (20 * US, 97 * US, "sync")):
        assert "host_sync_ns" not in _causes(100 * US, 150 * US, [op], [sync])


def test_checkpoint_and_data_loading_are_stronger_than_a_sync_and_a_sync_than_gc() -> None:
    op = _op(100, 100, 120)
    ranges = [(0, 0, "sync"), (0, 30, "gc"), (10, 20, "data"), (15, 25, "checkpoint")]
    assert _causes(0, 100, [op], ranges) == {"host_sync_ns": 85, "data_loading_ns": 5, "checkpoint_ns": 10}


# windows


class _Windows:
    def __init__(self) -> None:
        self.rows: list[tuple[int, int | None, int]] = []

    def window(self, rank: int, step: Step, end_ns: int) -> None:
        self.rows.append((step.number, step.start_ns, end_ns))


def test_windows_tile_as_in_the_documented_example() -> None:
    # METHOD 1.4: host steps at 0, 100, 200, the last ends at 270; four kernels
    sink = _Windows()
    ledger = Ledger(0, sink)
    kernels = [(10, 30, 60, 0), (90, 95, 130, 0), (110, 130, 170, 1), (210, 230, 260, 2)]
    started: set[int] = set()
    for launch, start, end, step in kernels:
        if step not in started:
            ledger.step_began(step, 100 * step)
            started.add(step)
        op = _op(launch, start, end, step=step)
        ledger.launched(op)
        ledger.resolved(op)
    ledger.step_range_ended(270)
    ledger.ended()
    assert sink.rows == [(0, 0, 130), (1, 130, 200), (2, 200, 270)]


def test_a_boundary_is_held_until_nothing_can_move_it() -> None:
    sink = _Windows()
    windows = StepWindows(0, sink)
    windows.begin(0, 0)
    first = _op(1, 10, 20, step=0)
    windows.launched(first)
    windows.resolved(first)
    windows.begin(1, 15)
    windows.add(0, 10, ("idle_ns",))
    windows.add(10, 20, ("compute_only_ns",))
    windows.settle(18)  # max(H, E) = 20: an activity of step 1 may still start at 18
    assert sink.rows == []
    windows.add(20, 30, ("idle_ns",))
    windows.settle(30)
    assert sink.rows == [(0, 0, 20)]


# the split of exposed communication, against an oracle that looks at every elementary stretch anew

RANKS_OF_ROLES = {"PP": 0, "DP": 1, "FSDP": 1, "CP": 2, "TP": 3, "EP": 4, "other": 5}


def _oracle(ops: list[DeviceOp], start: int, end: int) -> dict[str, int]:
    cuts = {start, end}
    for op in ops:
        cuts |= {op.start_ns, op.end_ns, min(op.start_ns + op.wait_ns, op.end_ns)}
    times = sorted(c for c in cuts if start <= c <= end)
    out = dict.fromkeys(("transfer_ns", "pipeline_wait_ns", "straggler_wait_ns"), 0)
    for a, b in pairwise(times):
        active = [op for op in ops if op.start_ns <= a and op.end_ns >= b and op.end_ns > op.start_ns]
        comms = [op for op in active if op.role is not None]
        if not comms or any(op.cls == "compute" for op in active):
            continue
        latest = max(op.end_ns for op in comms)
        tied = [op for op in comms if op.end_ns == latest]
        best = min(RANKS_OF_ROLES[str(op.role)] for op in tied)
        tied = [op for op in tied if RANKS_OF_ROLES[str(op.role)] == best]
        moving = [op for op in tied if a >= op.start_ns + op.wait_ns]
        if moving:
            out["transfer_ns"] += b - a
        else:
            out["pipeline_wait_ns" if tied[0].role == "PP" else "straggler_wait_ns"] += b - a
    return out


@pytest.mark.parametrize(
    "layout",
    [Layout(tp=2, pp=2, dp=2), Layout(dp=4, fsdp=True), Layout(cp=2, dp=2)],
    ids=["3d", "fsdp", "cp"],
)
def test_exposed_communication_is_split_as_an_oracle_splits_it(layout: Layout) -> None:
    config = SimulationConfig(
        layout=layout,
        model=replace(TINY, layers=2),
        steps=2,
        microbatches=2,
        hardware=Hardware(gpus_per_host=4),
        disturbances=Disturbances(jitter=0.2, slow_ranks=((1, 1.7),)),
    )
    sink, ops = run_in_memory(config)
    for rank, step, end in sink.windows:
        mine = [op for op in ops if op.rank == rank]
        expected = _oracle(mine, step.start_ns or 0, end)
        assert {k: step.sums[k] for k in expected} == expected
    assert sum(s.sums["straggler_wait_ns"] for _, s, _ in sink.windows) > 0


def test_of_two_calls_the_one_that_ends_last_owns_the_instant() -> None:
    sink = _Windows()
    ledger = Ledger(0, sink)
    ledger.step_began(0, 0)
    kept: list[Step] = []
    sink.window = lambda rank, step, end: kept.append(step)  # type: ignore[method-assign]
    for number, (role, start, end, wait) in enumerate([("PP", 0, 50, 50), ("TP", 0, 60, 10)]):
        op = DeviceOp(0, Stream(0, 20 + number), -1, -1)
        op.comm, op.role, op.wait_ns = Comm("x", "all_reduce", 1, "t"), role, wait
        op.start_ns, op.end_ns = start, end
        ledger.launched(op)
        ledger.resolved(op)
    ledger.ended()
    (step,) = kept
    # the all-reduce ends last: it waits 10, then transfers 50; the receive's waiting is hidden behind it
    assert (step.sums["straggler_wait_ns"], step.sums["transfer_ns"], step.sums["pipeline_wait_ns"]) == (
        10,
        50,
        0,
    )
    assert step.sums["TP.exposed_comm_ns"] == 60
