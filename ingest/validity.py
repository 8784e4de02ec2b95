"""Which times of a trace are impossible: they leave every sum and are counted.

CONTRACT section 3: a zero `ts` when the file's next larger one is a second away or more; a negative, unfinished
or impossible duration, where impossible means that it ends beyond int64 or is longer than the span of all other
valid events plus an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankscope.store.units import INT64_MAX, NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

HOUR_NS = 3_600 * NS_PER_S
ZERO_GAP_NS = NS_PER_S
"""A zero time stamp with the next one this far away is a record that was never filled in."""

TS_INVALID = "ts_invalid"
DURATION_NEGATIVE = "duration_negative"
DURATION_IMPOSSIBLE = "duration_impossible"
EVENT_UNCLOSED = "event_unclosed"
END_UNMATCHED = "end_unmatched"


@dataclass(frozen=True)
class Times:
    """The times of some events, relative to the file's base; values are meaningless where not known.

    Attributes:
        start_ns, has_start: start.
        dur_ns, has_dur: duration.
        is_meta: metadata (`M`), which has no time.
        is_span: an event with an extent (`X`, or a begin).
    """

    start_ns: Ints
    has_start: Bools
    dur_ns: Ints
    has_dur: Bools
    is_meta: Bools
    is_span: Bools

    @property
    def end_ns(self) -> Ints:
        """Start plus duration where there is one; saturated."""
        dur = np.where(self.has_dur, np.maximum(self.dur_ns, 0), 0)
        ends: Ints = self.start_ns + np.minimum(dur, INT64_MAX - np.maximum(self.start_ns, 0))
        return ends


@dataclass(frozen=True)
class Limits:
    """What decides validity in one file, once all of it is known.

    Attributes:
        is_zero_invalid: a zero start is a record never filled in.
        max_dur_ns: longest possible duration.
        max_end_ns: latest end that still fits int64 once the file's base is added.
        max_start_ns, min_start_ns: the same for starts.
    """

    is_zero_invalid: bool
    max_dur_ns: int
    max_end_ns: int
    max_start_ns: int
    min_start_ns: int

    def bad_ts(self, t: Times) -> Bools:
        """Starts that are impossible."""
        out = (t.start_ns > self.max_start_ns) | (t.start_ns < self.min_start_ns)
        if self.is_zero_invalid:
            out |= (t.start_ns == 0) & ~t.is_meta
        return out & t.has_start

    def bad_duration(self, t: Times) -> Bools:
        """Durations that are impossible."""
        room = self.max_end_ns - np.maximum(t.start_ns, 0)
        too_long = (t.dur_ns > self.max_dur_ns) | (t.has_start & (t.dur_ns > room))
        return too_long & t.has_dur & t.is_span


@dataclass
class LimitsFinder:
    """Gathers, batch by batch, what `Limits` needs; its memory is the events longer than an hour."""

    next_start: int = INT64_MAX
    first: int = INT64_MAX
    last: int = -INT64_MAX
    last_of_zero: int = -1
    long_starts: list[Ints] = field(default_factory=list)
    long_durs: list[Ints] = field(default_factory=list)

    def add(self, t: Times) -> None:
        """Take in the events of one batch (begins and ends only when paired)."""
        timed = t.has_start & ~t.is_meta
        positive = t.start_ns[timed & (t.start_ns > 0)]
        if len(positive):
            self.next_start = min(self.next_start, int(positive.min()))
        sound = timed & (~t.is_span | (t.has_dur & (t.dur_ns >= 0)))
        is_long = sound & t.is_span & (t.dur_ns > HOUR_NS)
        if is_long.any():
            self.long_starts.append(t.start_ns[is_long])
            self.long_durs.append(t.dur_ns[is_long])
        short = sound & ~is_long
        ends = t.end_ns
        self._widen(t.start_ns[short & (t.start_ns != 0)], ends[short & (t.start_ns != 0)])
        at_zero = ends[short & (t.start_ns == 0)]
        if len(at_zero):
            self.last_of_zero = max(self.last_of_zero, int(at_zero.max()))

    def _widen(self, starts: Ints, ends: Ints) -> None:
        if len(starts):
            self.first = min(self.first, int(starts.min()))
            self.last = max(self.last, int(ends.max()))

    def limits(self, base_ns: int) -> Limits:
        """The limits of the whole file."""
        is_zero_invalid = self.next_start != INT64_MAX and self.next_start >= ZERO_GAP_NS
        if self.last_of_zero >= 0 and not is_zero_invalid:
            self._widen(np.zeros(1, np.int64), np.array([self.last_of_zero]))
        self._admit_long(is_zero_invalid)
        return Limits(
            is_zero_invalid=is_zero_invalid,
            max_dur_ns=min(self._span() + HOUR_NS, INT64_MAX),
            max_end_ns=INT64_MAX - max(base_ns, 0),
            max_start_ns=INT64_MAX - max(base_ns, 0),
            min_start_ns=-INT64_MAX - min(base_ns, 0),
        )

    def _span(self) -> int:
        return max(self.last - self.first, 0) if self.first <= self.last else 0

    def _admit_long(self, is_zero_invalid: bool) -> None:
        """Widen the span by the long events that are possible, shortest first.

        In that order garbage cannot vouch for garbage: the first event too long for the rest ends it, since
        all that follow are longer still.
        """
        if not self.long_durs:
            return
        durs = np.concatenate(self.long_durs)
        starts = np.concatenate(self.long_starts)
        for i in np.argsort(durs, kind="stable").tolist():
            start, dur = int(starts[i]), int(durs[i])
            if start == 0 and is_zero_invalid:
                continue
            if dur > self._span() + HOUR_NS or start + dur > INT64_MAX:
                return
            self._widen(starts[i : i + 1], np.array([start + dur]))
