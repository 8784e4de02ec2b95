"""The causes of idle time against a walk over single ticks, written from the rules and from nothing else."""

from __future__ import annotations

from builders_analysis import LAST, Act, Program, programs, shuffled
from hypothesis import given, settings

from rankscope.analysis.breakdown import breakdown
from rankscope.analysis.idle import idle_segments

KERNEL_GAP, SLACK = 3, 2
STRONGER_THAN_SYNC = ("checkpoint", "data", "allocator", "compile")
WEAKER = ("comm_wait", "gc", "dispatch", "call")
CAUSE = {
    "checkpoint": "checkpoint", "data": "data_loading", "allocator": "allocator", "compile": "compile",
    "comm_wait": "host_comm_wait", "gc": "gc", "dispatch": "host_dispatch", "call": "host_dispatch",
}  # fmt: skip
# Every runtime call and operator also counts as dispatch; a blocking call does so where it does not cover the gap.
IS_DISPATCH = {"allocator", "compile", "sync", "comm_wait", "dispatch", "call"}


def told(program: Program) -> set[int]:
    """Positions of activities that were launched first after a wait on their stream."""
    found = set()
    for stream, when in program.waits:
        later = [
            (a.launch, a.correlation, a.start, -a.end, a.thread, i)
            for i, a in enumerate(program.acts)
            if a.valid and a.stream == stream and a.launch is not None and a.launch >= when
        ]
        if later:
            found.add(min(later)[-1])
    return found


def host_cause(program: Program, thread: str, a: int, t: int) -> str:
    mine = [(k, s, e) for k, th, s, e in program.host if th == thread]
    active = {k for k, s, e in mine if s <= t < e}
    for kind in STRONGER_THAN_SYNC:
        if kind in active:
            return CAUSE[kind]
    if any(k == "sync" and s <= a <= e + SLACK for k, s, e in mine):
        return "host_sync"
    for kind in WEAKER[:2]:
        if kind in active:
            return CAUSE[kind]
    return "host_dispatch" if active & IS_DISPATCH else "host_other"


def tick_cause(program: Program, a: int, b: int, t: int) -> str:
    acts = [x for x in program.acts if x.valid]
    if not any(x.start >= b and x.end > x.start for x in acts):
        return "tail"
    after = [(i, x) for i, x in enumerate(program.acts) if x.valid and x.start == b and x.end > x.start]

    def is_running(x: Act) -> bool:
        # a launch call is known by its record, else by the correlation
        return any(
            (y.correlation, y.launch is None) == (x.correlation, x.launch is None) and y.end <= a
            for y in acts
        )

    counted = [x for _, x in after if x.launch is not None] or [x for _, x in after]
    if all(is_running(x) for x in counted):
        return "graph_gap"
    launched = [
        (x.launch, x.correlation, i not in told(program), x.thread) for i, x in after if x.launch is not None
    ]
    if not launched:
        return "unattributed"
    launch, _, not_told, thread = min(launched)
    if t < launch:
        return host_cause(program, thread, a, t)
    if launch > a:
        return "launch_latency"
    if b - a <= KERNEL_GAP:
        return "kernel_gap"
    return "device_other" if not_told else "dependency_wait"


def expected(program: Program) -> dict[int, str]:
    """Cause of every idle tick."""
    busy = {t for a in program.acts if a.valid for t in range(a.start, a.end)}
    idle = [t for t in range(LAST) if t not in busy]
    causes = {}
    for t in idle:
        a = b = t
        while a - 1 in idle:
            a -= 1
        while b in idle:
            b += 1
        causes[t] = tick_cause(program, a, b, t)
    return causes


def segments(program: Program, seed: int = 0) -> list[dict[str, object]]:
    table = idle_segments(
        shuffled(program.activities(), seed),
        shuffled(program.events(), seed),
        windows=program.windows(),
        kernel_gap_ns=KERNEL_GAP,
        sync_slack_ns=SLACK,
    )
    return table.to_pylist()


@settings(max_examples=500, deadline=None)
@given(programs(launched=True))
def test_every_idle_tick_has_the_cause_of_the_rules(program: Program) -> None:
    got: dict[int, str] = {}
    for row in segments(program):
        for t in range(row["start_ns"], row["end_ns"]):  # type: ignore[call-overload]
            assert t not in got
            got[t] = str(row["cause"])
    assert got == expected(program)


@settings(max_examples=60, deadline=None)
@given(programs(launched=True))
def test_causes_do_not_depend_on_the_order_of_rows(program: Program) -> None:
    assert segments(program, 1) == segments(program, 2)


@settings(max_examples=100, deadline=None)
@given(programs(launched=True))
def test_causes_are_clipped_to_the_windows(program: Program) -> None:
    causes = expected(program)
    acts, events, windows = program.activities(), program.events(), program.windows()
    idle = idle_segments(acts, events, windows=windows, kernel_gap_ns=KERNEL_GAP, sync_slack_ns=SLACK)
    rows = breakdown(acts, windows, idle=idle, causes="full").to_pylist()
    for row in rows:
        low = program.cuts[row["step"]]
        mine = [c for t, c in causes.items() if low <= t < low + row["wall_ns"]]
        for cause in set(causes.values()):
            assert row[f"{cause}_ns"] == mine.count(cause)
