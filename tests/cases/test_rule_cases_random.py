"""Small random traces end to end: step windows and the partition, counted tick by tick from the definitions."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders_rules import US, five, note, opened
from builders_trace import NCCL, kernel, launch, memcpy


@dataclass
class Act:
    """One device activity; `launch` is None without a launch record."""

    device: int
    stream: int
    start: int
    end: int
    kind: str
    launch: int | None


def drawn(rnd: random.Random) -> tuple[list[tuple[int, int]], list[Act], list[dict[str, Any]]]:
    """Host steps, activities and the events that record both."""
    at, marks = rnd.randint(0, 30), []
    for _ in range(rnd.randint(1, 5)):
        marks.append((at, rnd.randint(20, 80)))
        at += marks[-1][1] + rnd.choice([0, 0, 5])
    events = [note(f"ProfilerStep#{i}", a, d) for i, (a, d) in enumerate(marks)]
    acts = []
    for corr in range(1, rnd.randint(2, 26)):
        launched = rnd.randint(0, at + 20)
        start, dur = launched + rnd.randint(1, 60), rnd.choice([0, 1, 5, 10, 30, 60])
        act = Act(
            rnd.randint(0, 1), rnd.choice([7, 8, 20]), start, start + dur, rnd.choice("ccnnm"), launched
        )
        place = {"stream": act.stream, "device": act.device, "corr": corr}
        if rnd.random() < 0.85:
            events.append(launch(launched, corr, tid=rnd.choice([100, 200])))
        else:
            act.launch = None
        name = "gemm" if act.kind == "c" else NCCL
        events.append(
            memcpy(start, dur, **place) if act.kind == "m" else kernel(name, start, dur, **place)  # type: ignore[arg-type]
        )
        acts.append(act)
    rnd.shuffle(events)
    return marks, acts, events


def clipped(acts: list[Act]) -> list[int]:
    """Ends, where three later activities of the stream inside make a stamp late."""
    ends = []
    for a in acts:
        later = [b for b in acts if (b.device, b.stream) == (a.device, a.stream) and b.start > a.start]
        inside = [b for b in later if b.start < a.end and b.end <= a.end]
        ends.append(min(b.start for b in later) if len(inside) >= 3 else a.end)
    return ends


def edges(marks: list[tuple[int, int]], mine: list[Act]) -> list[int]:
    """b_n = min(F_n, max(H_n, E_(n-1))), monotone, and the end."""
    starts = [a for a, _ in marks]
    until = max(a + d for a, d in marks)

    def step(act: Act) -> int | None:
        if act.launch is None or not starts[0] <= act.launch < until:
            return None
        return max(i for i, s in enumerate(starts) if s <= act.launch)

    found: list[float] = []
    for n, entered in enumerate(starts):
        first = min((a.start for a in mine if step(a) == n), default=math.inf)
        earlier = [a.end for a in mine if (s := step(a)) is not None and s < n]
        found.append(max(min(first, max([entered, *earlier])), *found[-1:], -math.inf))
    return [int(b) for b in [*found, max(until, *(a.end for a in mine))]]


def parts(mine: list[Act], low: int, high: int) -> tuple[float, ...]:
    """The five parts of [low, high), tick by tick."""
    sums = [0, 0, 0, 0, 0]
    for tick in range(low, high):
        kinds = {a.kind for a in mine if a.start <= tick < a.end}
        both = {"c", "n"} <= kinds
        sums[1 if both else 0 if "c" in kinds else 2 if "n" in kinds else 3 if kinds else 4] += 1
    return tuple(sums)


@pytest.mark.parametrize("seed", range(25))
def test_windows_and_parts_are_those_of_a_plain_count(tmp_path: Path, seed: int) -> None:
    marks, acts, events = drawn(random.Random(seed))
    for act, end in zip(acts, clipped(acts), strict=True):
        act.end = end
    run = opened(tmp_path, events)
    rows = run.breakdown_table(by=["device", "step"], steps="all").to_pylist()
    got = {(r["device"], r["step"]): five(r) for r in rows}
    windows = {(r["device"], r["step"]): r for r in run.table("steps").to_pylist()}
    for device in {a.device for a in acts}:
        mine = [a for a in acts if a.device == device]
        bounds = edges(marks, mine)
        for n in range(len(marks)):
            window = windows[device, n]
            assert (window["start_ns"], window["end_ns"]) == (bounds[n] * US, bounds[n + 1] * US)
            assert got[device, n] == parts(mine, bounds[n], bounds[n + 1])
