"""What must be known of a whole file before any of its events can be finished: gathered while it is scanned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .pairing import Pairs, paired
from .validity import Bools, Ints, LimitsFinder, Times

UNFINISHED = '"finished": false'
_LABELS = {
    "process_name": ("_process_names", "name"),
    "process_labels": ("_process_labels", "labels"),
    "thread_name": ("_thread_names", "name"),
}
MAX_LABELS = 100_000
"""Names kept; MTIA traces repeat theirs 300,000 times, a real file has a few hundred."""


def words_mask(column: pa.DictionaryArray, words: tuple[str, ...]) -> Bools:
    """Where a dictionary-coded column is one of the words; one look-up per distinct word."""
    is_word = np.array([w in words for w in column.dictionary.to_pylist()] + [False], np.bool_)
    codes: npt.NDArray[np.int32] = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: Bools = is_word[codes]
    return found


def int_values(column: pa.Array) -> tuple[Ints, Bools]:
    """Values (0 where null) and a mask of those known."""
    known: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    values: Ints = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values, known


def times_of(batch: pa.RecordBatch) -> Times:
    """The times of a batch; of begins and ends only the start is known here."""
    start, has_start = int_values(batch.column("start_ns"))
    dur, has_dur = int_values(batch.column("dur_ns"))
    phase = batch.column("ph")
    return Times(start, has_start, dur, has_dur, words_mask(phase, ("M",)), words_mask(phase, ("X",)))


@dataclass
class Survey:
    """Facts about a file, batch by batch.

    Attributes:
        n_rows: rows seen.
        names: header entries made of metadata events: `_process_names`, `_process_labels`, `_thread_names`.
        pids: processes that have events other than metadata.
        odd: rows whose `ts` or `dur` could not be a time, and rows marked unfinished.
        ends: the end events that carry anything, by row, for merging into their begins.
    """

    n_rows: int = 0
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    pids: set[str] = field(default_factory=set)
    odd: dict[str, list[int]] = field(default_factory=lambda: {"ts": [], "dur": [], "unfinished": []})
    ends: list[tuple[Ints, pa.RecordBatch]] = field(default_factory=list)
    finder: LimitsFinder = field(default_factory=LimitsFinder)
    _thread_of: dict[tuple[str | None, str | None], int] = field(default_factory=dict)
    _stack_rows: list[Ints] = field(default_factory=list)
    _stack_threads: list[Ints] = field(default_factory=list)
    _stack_starts: list[Ints] = field(default_factory=list)
    _stack_begins: list[Bools] = field(default_factory=list)
    _lone: list[Ints] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next batch of the file."""
        times = times_of(batch)
        phase = batch.column("ph")
        begins, ends = words_mask(phase, ("B",)), words_mask(phase, ("E",))
        if begins.any() or ends.any():
            self._add_stack(batch, times, begins, ends)
            times = _without(times, begins | ends)
        self.finder.add(times)
        self._note_odd(batch, times)
        if times.is_meta.any():
            self._add_names(batch.filter(pa.array(times.is_meta)))
        self._add_pids(batch, times)
        self.n_rows += batch.num_rows

    def pairs(self) -> tuple[Ints, Ints, Pairs, Ints]:
        """Rows, starts and matches of all begin and end events, and the rows of those without a time."""
        rows = _joined(self._stack_rows)
        starts = _joined(self._stack_starts)
        begins = np.concatenate(self._stack_begins) if self._stack_begins else np.zeros(0, np.bool_)
        found = paired(_joined(self._stack_threads), starts, begins)
        return rows, starts, found, _joined(self._lone)

    def _add_stack(self, batch: pa.RecordBatch, times: Times, begins: Bools, ends: Bools) -> None:
        both = begins | ends
        timed = np.flatnonzero(both & times.has_start)
        self._lone.append(np.flatnonzero(both & ~times.has_start) + self.n_rows)
        self._stack_rows.append(timed + self.n_rows)
        self._stack_threads.append(self._threads(batch, timed))
        self._stack_starts.append(times.start_ns[timed])
        self._stack_begins.append(begins[timed])
        at = np.flatnonzero(ends & times.has_start)
        carried = _carried(batch.take(pa.array(at)))
        if carried is not None:
            self.ends.append((at + self.n_rows, carried))

    def _threads(self, batch: pa.RecordBatch, rows: Ints) -> Ints:
        pids, tids = (batch.column(name).take(pa.array(rows)) for name in ("pid", "tid"))
        pid_codes, tid_codes = (c.indices.fill_null(-1).to_numpy(zero_copy_only=False) for c in (pids, tids))
        width = len(tids.dictionary) + 1
        keys, inverse = np.unique(
            (pid_codes.astype(np.int64) + 1) * width + tid_codes + 1, return_inverse=True
        )
        pid_words, tid_words = ([None, *c.dictionary.to_pylist()] for c in (pids, tids))
        numbers = []
        for key in keys.tolist():
            thread = pid_words[key // width], tid_words[key % width]
            numbers.append(self._thread_of.setdefault(thread, len(self._thread_of)))
        return np.array(numbers, np.int64)[inverse]

    def _note_odd(self, batch: pa.RecordBatch, times: Times) -> None:
        """Rows whose time stands in `extra` because it was no time, and those the profiler calls unfinished."""
        extra = batch.column("extra")
        for key, missing in (("ts", ~times.has_start), ("dur", times.is_span & ~times.has_dur)):
            suspects = np.flatnonzero(missing & extra.is_valid().to_numpy(zero_copy_only=False))
            self.odd[key] += [i + self.n_rows for i in suspects.tolist() if key in _keys(extra[i].as_py())]
        unfinished = pc.match_substring(extra, UNFINISHED).fill_null(False).to_numpy(zero_copy_only=False)
        self.odd["unfinished"] += (np.flatnonzero(unfinished & times.is_span) + self.n_rows).tolist()

    def _add_names(self, meta: pa.RecordBatch) -> None:
        meta = meta.filter(pa.array(words_mask(meta.column("name"), tuple(_LABELS))))
        columns = (meta.column(c).to_pylist() for c in ("name", "pid", "tid", "extra"))
        for kind, pid, tid, extra in zip(*columns, strict=True):
            target, key = _LABELS[kind]
            text = _keys(extra).get(key)
            names = self.names.setdefault(target, {})
            if text is None or len(names) >= MAX_LABELS:
                continue
            owner = f"{pid}/{tid}" if kind == "thread_name" else str(pid)
            names.setdefault(owner, text)

    def _add_pids(self, batch: pa.RecordBatch, times: Times) -> None:
        pid = batch.column("pid")
        codes = pid.indices.fill_null(-1).to_numpy(zero_copy_only=False)[~times.is_meta]
        words = pid.dictionary.to_pylist()
        self.pids.update(words[code] for code in np.unique(codes).tolist() if code >= 0)


def _without(times: Times, rows: Bools) -> Times:
    return Times(
        times.start_ns,
        times.has_start & ~rows,
        times.dur_ns,
        times.has_dur & ~rows,
        times.is_meta,
        times.is_span & ~rows,
    )


def _carried(ends: pa.RecordBatch) -> pa.RecordBatch | None:
    """The columns of end events that hold anything beyond place and time."""
    place = ("pid", "tid", "ph", "start_ns", "dur_ns")
    kept = {
        name: column
        for name, column in zip(ends.schema.names, ends.columns, strict=True)
        if name not in place and column.null_count < len(column)
    }
    if not kept:
        return None
    dense = {n: pc.dictionary_decode(c) if pa.types.is_dictionary(c.type) else c for n, c in kept.items()}
    return pa.RecordBatch.from_pydict(dense)


def _keys(extra: str | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(extra) if extra else {}
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
