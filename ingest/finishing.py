"""From scanned to finished events: absolute starts, closed pairs, and which times count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rankscope.store.schema import Quality, Severity

from .merging import EndEvents
from .survey import Survey, times_of, words_mask
from .validity import (
    DURATION_IMPOSSIBLE,
    DURATION_NEGATIVE,
    END_UNMATCHED,
    EVENT_UNCLOSED,
    TS_INVALID,
    Bools,
    Ints,
    Times,
)

_EFFECTS = {
    TS_INVALID: "no usable start: the event enters no sum",
    DURATION_NEGATIVE: "no usable duration: the event enters no sum",
    DURATION_IMPOSSIBLE: "no usable duration: the event enters no sum",
    EVENT_UNCLOSED: "its end is not in the file: the event enters no sum",
    END_UNMATCHED: "its begin is not in the file: the event enters no sum",
}


@dataclass
class Examined:
    """What a look at all times of a file found."""

    start_ns: int | None = None
    end_ns: int | None = None
    quality: list[Quality] = field(default_factory=list)


class Finisher:
    """Finishes batch after batch of one file, in file order.

    Args:
        survey: of the whole file.
        base_ns: added to every start.
    """

    def __init__(self, survey: Survey, *, base_ns: int) -> None:
        rows, starts, pairs, lone = survey.pairs()
        dur = starts[pairs.end] - starts[pairs.begin]
        everything = np.ones(len(dur), np.bool_)
        survey.finder.add(Times(starts[pairs.begin], everything, dur, everything, ~everything, everything))
        order = np.argsort(rows[pairs.begin], kind="stable")
        self._begin_rows: Ints = rows[pairs.begin][order]
        self._begin_durs: Ints = dur[order]
        self._closing: Ints = np.sort(rows[pairs.end])
        self._merging = EndEvents(survey.ends, self._begin_rows, rows[pairs.end][order])
        self._odd = {key: np.array(found, np.int64) for key, found in survey.odd.items()}
        self._lone: Ints = np.sort(np.concatenate([lone, rows[pairs.open_begin], rows[pairs.lone_end]]))
        self._base_ns = base_ns
        self._limits = survey.finder.limits(base_ns)

    def examine(self, batches: Iterable[pa.RecordBatch]) -> Examined:
        """Count what is invalid and find the first start and last end; needs `ph, start_ns, dur_ns, name`."""
        out = Examined()
        counts: dict[str, int] = {}
        examples: dict[str, str] = {}
        row = 0
        for batch in batches:
            times = self._times(batch, row)
            reasons = self._reasons(batch, times, row)
            bad = np.zeros(batch.num_rows, np.bool_)
            for code, mask in reasons.items():
                hits = np.flatnonzero(mask & ~bad)
                if len(hits):
                    counts[code] = counts.get(code, 0) + len(hits)
                    examples.setdefault(code, _example(batch, times, int(hits[0]), row))
                bad |= mask
            self._widen(out, times, bad | self._slice(self._closing, batch, row))
            row += batch.num_rows
        out.quality = [
            Quality(code, Severity.WARNING, None, counts[code], examples[code], _EFFECTS[code])
            for code in _EFFECTS
            if code in counts
        ]
        return out

    def finished(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with absolute starts and `valid`, without the end events that closed a begin."""
        row = 0
        for batch in batches:
            times = self._times(batch, row)
            bad = np.zeros(batch.num_rows, np.bool_)
            for mask in self._reasons(batch, times, row).values():
                bad |= mask
            keep = ~self._slice(self._closing, batch, row)
            done = self._with_times(self._merging.merged(batch, row), times, bad)
            row += batch.num_rows
            yield done if keep.all() else done.filter(pa.array(keep))

    def _times(self, batch: pa.RecordBatch, row: int) -> Times:
        """Times of a batch, with the durations of closed begins."""
        t = times_of(batch)
        first, last = np.searchsorted(self._begin_rows, (row, row + batch.num_rows))
        if first == last:
            return t
        at = self._begin_rows[first:last] - row
        dur, has_dur, is_span = t.dur_ns.copy(), t.has_dur.copy(), t.is_span.copy()
        dur[at] = self._begin_durs[first:last]
        has_dur[at] = True
        is_span[at] = True
        return Times(t.start_ns, t.has_start, dur, has_dur, t.is_meta, is_span)

    def _reasons(self, batch: pa.RecordBatch, t: Times, row: int) -> dict[str, Bools]:
        """Per quality code the rows it takes out; a row counts under the first that holds."""
        odd = {key: self._slice(found, batch, row) for key, found in self._odd.items()}
        lone = self._slice(self._lone, batch, row)
        is_end = words_mask(batch.column("ph"), ("E",)) if lone.any() else lone
        return {
            TS_INVALID: (self._limits.bad_ts(t) | odd["ts"] | (t.is_span & ~t.has_start)) & ~t.is_meta,
            DURATION_NEGATIVE: t.is_span & t.has_dur & (t.dur_ns < 0),
            DURATION_IMPOSSIBLE: self._limits.bad_duration(t) | odd["dur"],
            EVENT_UNCLOSED: (t.is_span & ~t.has_dur) | odd["unfinished"] | (lone & ~is_end),
            END_UNMATCHED: lone & is_end,
        }

    def _slice(self, rows: Ints, batch: pa.RecordBatch, row: int) -> Bools:
        """Which rows of the batch are among the (sorted) rows of the file."""
        out = np.zeros(batch.num_rows, np.bool_)
        first, last = np.searchsorted(rows, (row, row + batch.num_rows))
        out[rows[first:last] - row] = True
        return out

    def _widen(self, out: Examined, t: Times, left_out: Bools) -> None:
        use = t.has_start & ~t.is_meta & ~left_out
        if not use.any():
            return
        first = int(t.start_ns[use].min()) + self._base_ns
        last = int(t.end_ns[use].max()) + self._base_ns
        out.start_ns = first if out.start_ns is None else min(out.start_ns, first)
        out.end_ns = last if out.end_ns is None else max(out.end_ns, last)

    def _with_times(self, batch: pa.RecordBatch, t: Times, bad: Bools) -> pa.RecordBatch:
        fits = (t.start_ns <= self._limits.max_start_ns) & (t.start_ns >= self._limits.min_start_ns)
        start = np.where(fits, t.start_ns, 0) + self._base_ns
        arrays = {
            "start_ns": pa.array(start, mask=~(t.has_start & fits)),
            "dur_ns": pa.array(t.dur_ns, mask=~t.has_dur),
            "valid": pa.array(~bad),
        }
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            arrays.setdefault(name, column)
        return pa.RecordBatch.from_pydict(arrays)


def _example(batch: pa.RecordBatch, t: Times, at: int, row: int) -> str:
    """The event's name, its row and its times as the file has them."""
    name = batch.column("name")[at].as_py() or "(no name)"
    start = f"{t.start_ns[at]} ns" if t.has_start[at] else "none"
    dur = f"{t.dur_ns[at]} ns" if t.has_dur[at] else "none"
    return f"{name[:80]} (event {row + at}): start {start}, duration {dur}"
