"""Activities, windows and host events as tables from short tuples, and random small programs of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa

from rankscope.store.schema import ACTIVITIES, EVENTS, HOST_ACTIVITIES, STEPS

THREAD = "1/1"
PLACE = {"rank": 0, "world": "0", "window": 0}


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{c: r.get(c) for c in schema.names} for r in rows], schema=schema)


def act(cls: str, start: int, end: int, **given: Any) -> dict[str, Any]:
    """One device activity, on stream 7, without launch record unless `launch` is given (the call's start)."""
    launch = given.pop("launch", None)
    row = PLACE | {
        "device": 0,
        "stream": 7,
        "name": f"{cls}_kernel",
        "class": cls,
        "rule": "test",
        "valid": True,
    }
    row |= {"start_ns": start, "end_ns": end, "recorded_end_ns": end}
    if launch is not None:
        row |= {
            "launch_start_ns": launch,
            "launch_tid": THREAD,
            "launch_id": given.get("correlation", launch),
        }
    return row | given


def activities(*rows: dict[str, Any]) -> pa.Table:
    """ACTIVITIES of these rows."""
    return _table(list(rows), ACTIVITIES.arrow)


def host_activities(*rows: tuple[str, int, int]) -> pa.Table:
    """HOST_ACTIVITIES of (class, start, end)."""
    made = [
        PLACE
        | {"tid": THREAD, "name": c, "class": c, "rule": "test", "start_ns": s, "end_ns": e, "valid": True}
        for c, s, e in rows
    ]
    return _table(made, HOST_ACTIVITIES.arrow)


def window(start: int, end: int, step: int | None = None, **given: Any) -> dict[str, Any]:
    """One step window of device 0."""
    row = PLACE | {"device": 0, "step": step, "source": "profiler_step", "timeline": "device"}
    return row | {"start_ns": start, "end_ns": end} | given


def windows(*rows: dict[str, Any]) -> pa.Table:
    """STEPS of these rows."""
    return _table(list(rows), STEPS.arrow)


def event(cat: str, name: str, start: int, end: int, **given: Any) -> dict[str, Any]:
    """One host event on the launching thread."""
    row = PLACE | {"pid": "1", "tid": "1", "cat": cat, "name": name, "ph": "X", "valid": True}
    return row | {"start_ns": start, "dur_ns": end - start} | given


def events(*rows: dict[str, Any]) -> pa.Table:
    """EVENTS of these rows."""
    return _table(list(rows), EVENTS.arrow)


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    """The rows in another order."""
    import numpy as np

    return table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))


# -- random programs -------------------------------------------------------------------------------------

LAST = 40
"""Random programs live in [0, LAST)."""

HOST_KINDS = {
    "checkpoint": ("user_annotation", "save_checkpoint"),
    "data": ("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
    "allocator": ("cuda_runtime", "cudaMalloc"),
    "compile": ("cuda_driver", "cuModuleLoadData"),
    "sync": ("cuda_runtime", "cudaStreamSynchronize"),
    "comm_wait": ("cpu_op", "c10d::wait_tensor_blocking"),
    "gc": ("python_function", "gc.collect"),
    "dispatch": ("cpu_op", "aten::add"),
    "call": ("cuda_runtime", "cudaLaunchKernel"),
    "annotation": ("user_annotation", "forward"),
}
"""Kinds of host range and an event of each."""


@dataclass(frozen=True)
class Act:
    """A device activity of a random program."""

    cls: str
    start: int
    end: int
    stream: int = 7
    launch: int | None = None
    thread: str = THREAD
    correlation: int = 1
    group_size: int | None = None
    valid: bool = True

    def row(self) -> dict[str, Any]:
        """As ACTIVITIES row."""
        launch: dict[str, Any] = {}
        if self.launch is not None:
            launch = {
                "launch_start_ns": self.launch,
                "launch_tid": self.thread,
                "launch_id": self.correlation,
            }
        given = {"stream": self.stream, "correlation": self.correlation, "group_size": self.group_size}
        return act(self.cls, self.start, self.end, valid=self.valid, **given, **launch)


@dataclass(frozen=True)
class Program:
    """Activities of one device, host ranges (kind, thread, start, end), waits (stream, time) and windows."""

    acts: tuple[Act, ...]
    host: tuple[tuple[str, str, int, int], ...] = ()
    waits: tuple[tuple[int, int], ...] = ()
    cuts: tuple[int, ...] = field(default=(0, LAST))

    def activities(self) -> pa.Table:
        """As ACTIVITIES."""
        return activities(*(a.row() for a in self.acts))

    def events(self) -> pa.Table:
        """As EVENTS."""
        rows = []
        for kind, thread, start, end in self.host:
            cat, name = HOST_KINDS[kind]
            rows.append(event(cat, name, start, end, tid=thread.split("/")[1]))
        for i, (stream, when) in enumerate(self.waits):
            rows.append(
                event(
                    "cuda_sync",
                    "Stream Wait Event",
                    when,
                    when + 1,
                    pid="0",
                    tid=str(stream),
                    device=0,
                    stream=stream,
                    correlation=1000 + i,
                    wait_on_stream=99,
                )
            )
        return events(*rows)

    def windows(self) -> pa.Table:
        """As STEPS: consecutive windows between the cuts."""
        pairs = zip(self.cuts, self.cuts[1:], strict=False)
        return windows(*(window(a, b, i) for i, (a, b) in enumerate(pairs)))

    def moved(self, shift: int) -> Program:
        """Everything later by so much."""
        return self.mapped(lambda t: t + shift)

    def mapped(self, of: Any) -> Program:
        """Every time mapped."""
        acts = tuple(
            replace(a, start=of(a.start), end=of(a.end), launch=None if a.launch is None else of(a.launch))
            for a in self.acts
        )
        host = tuple((k, t, of(s), of(e)) for k, t, s, e in self.host)
        return Program(acts, host, tuple((s, of(w)) for s, w in self.waits), tuple(of(c) for c in self.cuts))


_TIMES = st.integers(0, LAST)


@st.composite
def random_acts(draw: st.DrawFn, *, launched: bool = False) -> Act:
    """An activity; zero-length and invalid ones among them."""
    start = draw(_TIMES)
    end = min(start + draw(st.integers(0, 5 if launched else 8)), LAST)
    correlation = draw(st.integers(1, 6))
    is_launched = launched and draw(st.integers(0, 4)) > 0
    launch = min(start, correlation * 6) if is_launched else None  # one call, one time
    return Act(
        cls=draw(st.sampled_from(("compute", "comm", "memcpy"))),
        start=start,
        end=end,
        stream=draw(st.sampled_from((7, 20))),
        launch=launch,
        thread=draw(st.sampled_from(("1/1", "1/2"))) if launched else THREAD,
        correlation=correlation,
        group_size=draw(st.sampled_from((None, 1, 8))),
        valid=draw(st.sampled_from((True,) * 9 + (False,))),
    )


@st.composite
def programs(draw: st.DrawFn, *, launched: bool = False) -> Program:
    """A program of up to ten activities; with launches and host ranges when asked for."""
    acts = draw(st.lists(random_acts(launched=launched), max_size=7 if launched else 10))
    cuts = sorted({0, LAST, *draw(st.lists(_TIMES, max_size=3))})
    host = []
    for _ in range(draw(st.integers(1, 8)) if launched else 0):
        start = draw(_TIMES)
        kind, thread = draw(st.sampled_from(sorted(HOST_KINDS))), draw(st.sampled_from(("1/1", "1/2")))
        host.append((kind, thread, start, min(start + draw(st.integers(0, 20)), LAST)))
    waits = draw(st.lists(st.tuples(st.sampled_from((7, 20)), _TIMES), max_size=3)) if launched else []
    return Program(tuple(acts), tuple(host), tuple(waits), tuple(cuts))
