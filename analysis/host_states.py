"""What a host thread was doing at each instant: the rules by category and name, strongest first.

Only the thread that issued the launch is asked. Operators and runtime calls count by themselves; annotations
and Python frames count only where a rule names them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import pyarrow as pa

from .intervals import EMPTY, I64, SMALLEST, Flags, merge
from .tables import Key, Text, flags, ints, numbers, rows_by, text, threads

RUNTIME = re.compile(r"^(cuda|hip|xpu|musa|privateuse1)_(runtime|driver)$")
"""Categories of runtime and driver calls."""

HOST_CATEGORIES = (
    "cpu_op",
    "user_annotation",
    "python_function",
    "cuda_sync",
    *(
        f"{vendor}_{kind}"
        for vendor in ("cuda", "hip", "xpu", "musa", "privateuse1")
        for kind in ("runtime", "driver")
    ),
)
"""Categories of events that idle causes are decided from."""

HOST_COLUMNS = (
    "rank", "world", "window", "pid", "tid", "cat", "name", "start_ns", "dur_ns", "correlation",
    "device", "stream", "collective", "group_size", "wait_on_stream", "valid",
)  # fmt: skip
"""Columns of `events` that idle causes are decided from."""

CAPTURE = ("world", "rank", "window")


class State(IntEnum):
    """What the host did, strongest first; SYNC is decided per gap, OTHER is nothing recorded."""

    CHECKPOINT = 0
    DATA_LOADING = 1
    ALLOCATOR = 2
    COMPILE = 3
    SYNC = 4
    COMM_WAIT = 5
    GC = 6
    DISPATCH = 7
    OTHER = 8


_OPS, _CALLS, _NOTES, _FRAMES = "ops", "calls", "notes", "frames"
_EVERYWHERE = frozenset({_OPS, _NOTES, _FRAMES})

# Recomputing activations is called checkpointing too, and is work like any other.
_RECOMPUTE = re.compile(
    r"activation.?checkpoint|utils/checkpoint\.py|checkpoint_wrapper|CheckpointFunction|recompute", re.I
)

_RULES: tuple[tuple[State, frozenset[str], re.Pattern[str]], ...] = (
    (
        State.CHECKPOINT,
        frozenset({_NOTES}),
        re.compile(r"checkpoint|save_state|(?<![a-z])dcp(?![a-z])", re.I),
    ),
    (
        State.CHECKPOINT,
        frozenset({_FRAMES}),
        re.compile(
            r"torch/distributed/checkpoint/|torch/serialization\.py\(\d+\): save|save_(state|checkpoint)"
        ),
    ),
    (State.DATA_LOADING, _EVERYWHERE, re.compile(r"DataLoader|torch/utils/data/dataloader\.py")),
    (
        State.ALLOCATOR,
        frozenset({_CALLS}),
        re.compile(
            r"^(cuda|hip)(Malloc|Free|Host(Alloc|Malloc|Free))|"
            r"^cuMem(Alloc|Free|HostAlloc|Create|Release|Map|Unmap|SetAccess|Address(Reserve|Free))"
        ),
    ),
    (
        State.COMPILE,
        frozenset({_CALLS}),
        re.compile(r"^(cuModuleLoad|cuLibraryLoad|hipModuleLoad|cudaLibraryLoad)"),
    ),
    (
        State.COMPILE,
        frozenset({_OPS, _NOTES}),
        re.compile(r"\(dynamo_timed\)|^(_?compile_fx|compile_inner|async_compile)"),
    ),
    (
        State.COMM_WAIT,
        frozenset({_OPS, _NOTES}),
        re.compile(r"^c10d::\w*wait|^gloo:|\b(TCP|File|Hash|Prefix)Store\b"),
    ),
    (
        State.GC,
        _EVERYWHERE,
        re.compile(r"\bgc\.collect\b|garbage.?collection|\bPython GC\b|<built-in function collect>", re.I),
    ),
)

SYNC_CALL = re.compile(
    r"^(cuda|hip)(Stream|Device|Event|Thread)Synchronize(_\w+)?$|^(cuStream|cuEvent|cuCtx)Synchronize$"
    r"|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|Peer|HtoD|DtoH|DtoD|WithStream)?(_\w+)?$"
    r"|^cuMemcpy(HtoD|DtoH|DtoD|HtoA|AtoH|2D|3D|Peer)?(_v2)?$"
)
"""Runtime and driver calls that return only when the device is done: synchronisations and synchronous copies."""

SYNC_OP = re.compile(r"^aten::(item|_local_scalar_dense|nonzero)$")
"""Operators that bring a value to the host and wait for it."""

_MARK = re.compile(r"^(ProfilerStep\s?#|Optimizer\.\w+#|enumerate\(DataLoader\)#)")
"""Annotations of PyTorch's own, which some traces (before 2022) file under the operators."""

_WAITS = "Stream Wait Event"


@dataclass(frozen=True)
class Thread:
    """One host thread of one capture.

    Attributes:
        cuts: instants at which its state may change, ascending.
        states: state before the first cut, between the cuts, after the last.
        sync_start: start of its blocking calls, ascending.
        sync_reach: latest end of any blocking call begun so far.
    """

    cuts: I64
    states: I64
    sync_start: I64
    sync_reach: I64

    def is_covered(self, instants: I64, slack_ns: int) -> Flags:
        """Whether a blocking call began at or before the instant and ended no earlier than slack before it."""
        at = np.searchsorted(self.sync_start, instants, side="right")
        reach = np.concatenate([np.full(1, SMALLEST), self.sync_reach])[at]
        return np.asarray((at > 0) & (instants <= reach + slack_ns), dtype=np.bool_)


@dataclass(frozen=True)
class HostEvents:
    """Host events of any number of ranks as columns; only valid ranges.

    Attributes:
        rule: for each event and state, whether the state's rule names it (bit `1 << state`).
        waits: told a stream to wait for an event of another stream (`cuda_sync`).
    """

    thread: Text
    start: I64
    end: I64
    rule: I64
    waits: Flags
    table: pa.Table

    @cached_property
    def captures(self) -> dict[Key, I64]:
        """Rows by (world, rank, window)."""
        return rows_by(self.table, CAPTURE)

    def threads_of(self, capture: Key) -> Mapping[str, I64]:
        """Rows of each thread of a capture, by `pid/tid`."""
        rows = self.captures.get(capture, np.empty(0, np.int64))
        codes = self.thread.codes[rows]
        order = np.argsort(codes, kind="stable")
        bounds = np.flatnonzero(np.diff(codes[order])) + 1
        groups = np.split(rows[order], bounds) if len(rows) else []
        return {self.thread.values[int(self.thread.codes[g[0]])]: g for g in groups}

    def thread_states(self, rows: I64) -> Thread:
        """The states of one thread from its events."""
        rule, start, end = self.rule[rows], self.start[rows], self.end[rows]
        held = {}
        for state in State:
            mine = (rule & (1 << state)) != 0
            held[state] = merge(start[mine], end[mine]) if mine.any() and state is not State.SYNC else EMPTY
        cuts = np.sort(np.concatenate([x for h in held.values() for x in (h.start, h.end)]))
        cuts = cuts[np.append(cuts[1:] != cuts[:-1], True)[: len(cuts)]]
        states = np.full(len(cuts) + 1, State.OTHER, dtype=np.int64)
        for state in sorted(State, reverse=True):
            states[1:][held[state].holds(cuts)] = state
        blocks = np.flatnonzero(rule & (1 << State.SYNC))
        blocks = blocks[np.argsort(start[blocks], kind="stable")]
        reach = np.maximum.accumulate(end[blocks]) if len(blocks) else end[blocks]
        return Thread(cuts, states, start[blocks], reach)

    def stream_waits(self, capture: Key) -> tuple[I64, I64, I64]:
        """When the host told which stream to wait for another one: device, stream, host time of the call.

        The time is the runtime call's of the same correlation; the record's own where there is no such call.
        """
        rows = self.captures.get(capture, np.empty(0, np.int64))
        waits = rows[self.waits[rows]]
        stream, has_stream = (c[waits] for c in self._stream)
        on, has_on = (c[waits] for c in self._awaited)
        is_other = has_stream & ~(has_on & (on == stream))
        waits = waits[is_other]
        return self._device[waits], stream[is_other], self._call_times(rows, waits)

    def _call_times(self, rows: I64, waits: I64) -> I64:
        correlation, known = self._correlation
        calls = rows[known[rows] & ~self.waits[rows]] if len(waits) else waits
        calls = calls[np.lexsort((self.start[calls], correlation[calls]))]
        ids = np.append(correlation[calls], 0)
        at = np.searchsorted(ids[:-1], correlation[waits])
        found = known[waits] & (at < len(calls)) & (ids[at] == correlation[waits])
        when = self.start[waits].copy()
        when[found] = self.start[calls[at[found]]]
        return when

    @cached_property
    def _correlation(self) -> tuple[I64, Flags]:
        return ints(self.table, "correlation")

    @cached_property
    def _stream(self) -> tuple[I64, Flags]:
        return ints(self.table, "stream")

    @cached_property
    def _awaited(self) -> tuple[I64, Flags]:
        return ints(self.table, "wait_on_stream")

    @cached_property
    def _device(self) -> I64:
        return numbers(self.table, "device")


NO_THREAD = Thread(EMPTY.start, np.full(1, State.OTHER, np.int64), EMPTY.start, EMPTY.start)
"""A thread of which nothing was recorded."""


def host_columns(events: pa.Table) -> HostEvents:
    """The events that idle causes are decided from; others and invalid ones are left out.

    Args:
        events: EVENTS rows with `HOST_COLUMNS`, any order, other categories allowed.
    """
    start, has_start = ints(events, "start_ns")
    dur, has_dur = ints(events, "dur_ns")
    rule = _rules(text(events, "cat"), text(events, "name"))
    waits = text(events, "cat").is_one_of("cuda_sync") & text(events, "name").is_one_of(_WAITS)
    sound = has_start & has_dur & (dur >= 0) & flags(events, "valid", default=True)
    kept = np.flatnonzero(sound & ((rule != 0) | waits))
    table = events.take(pa.array(kept)) if len(kept) < events.num_rows else events
    return HostEvents(threads(table), start[kept], start[kept] + dur[kept], rule[kept], waits[kept], table)


def _rules(cat: Text, name: Text) -> I64:
    """Bits of the states whose rules name each event."""
    kinds = np.array([*(_kind(c) for c in cat.values), 0], dtype=np.int64)[cat.codes]
    found = np.zeros(len(kinds), dtype=np.int64)
    for i, kind in enumerate(_KINDS, 1):
        mine = kinds == i
        used = np.bincount(name.codes[mine & (name.codes >= 0)], minlength=len(name.values)).tolist()
        bits = [_bits(kind, v) if used[j] else 0 for j, v in enumerate(name.values)]
        found[mine] = np.array([*bits, _bits(kind, "")], dtype=np.int64)[name.codes[mine]]
    return found


_KINDS = (_OPS, _CALLS, _NOTES, _FRAMES)


def _kind(cat: str) -> int:
    if RUNTIME.match(cat):
        return 1 + _KINDS.index(_CALLS)
    named = {"cpu_op": _OPS, "user_annotation": _NOTES, "python_function": _FRAMES}.get(cat)
    return 1 + _KINDS.index(named) if named else 0


def _bits(kind: str, name: str) -> int:
    kind = _NOTES if kind == _OPS and _MARK.match(name) else kind
    bits = 1 << State.DISPATCH if kind in (_OPS, _CALLS) else 0
    for state, kinds, pattern in _RULES:
        if kind in kinds and pattern.search(name):
            is_other_meaning = state is State.CHECKPOINT and _RECOMPUTE.search(name)
            bits |= 0 if is_other_meaning else 1 << state
    blocks = SYNC_CALL if kind == _CALLS else SYNC_OP if kind == _OPS else None
    return bits | (1 << State.SYNC if blocks and blocks.match(name) else 0)


def host_events(events: pa.Table) -> pa.Table:
    """The rows and columns of `events` that idle causes are decided from, smallest form.

    All operators, runtime and driver calls, stream waits, and those annotations and Python frames
    that a rule names (data loading, checkpoints, garbage collection, compilation, host communication).

    Args:
        events: EVENTS rows; reading only `HOST_CATEGORIES` and `HOST_COLUMNS` is enough.

    Returns:
        The rows, in their order, with the columns of `HOST_COLUMNS` that exist.
    """
    table = events.select([c for c in HOST_COLUMNS if c in events.column_names])
    cat, name = text(table, "cat"), text(table, "name")
    kept = _rules(cat, name) != 0
    kept |= cat.is_one_of("cuda_sync") & name.is_one_of(_WAITS)
    return table if kept.all() else table.filter(pa.array(kept))
