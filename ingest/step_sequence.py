"""Steps inferred from device activity alone: the shortest repeating sequence of large kernels.

A capture without host operators has no step marks, but a training or decoding loop repeats the same kernels
in the same order. The sequence is looked for on the busiest stream among the names that make up most of its
time.
"""

from __future__ import annotations

import numpy as np

from .columns import I64, Flags, Text

LARGE_SHARE = 0.8
"""Names that together hold this share of the stream's kernel time are large."""
MIN_REPEATS = 3
"""Fewer repeats than this are no evidence of a period."""
MIN_MATCH = 0.9
"""Share of kernels that must recur one period later."""
MIN_COVERED = 0.8
"""The repeats must follow one another over this share of the stream, else they are layers or a phase."""
_RAREST = 8
_MAX_LAG = 256
_MAX_KERNELS = 200_000


def sequence_starts(
    names: Text, lanes: I64, *, start: I64, end: I64, usable: Flags, is_compute: Flags
) -> I64 | None:
    """Starts of the inferred steps of one device, ascending; None without a period.

    The period is the smallest whose match (the share of large kernels equal to the one a period later) comes
    as close to the best as noise explains; layers repeat within a step too, but break at its edges. A step
    begins with the kernel before which the stream idles longest, summed over the repeats. Whole repeats
    number at least three; a cut first repeat is not a step, a cut last one is.

    Args:
        names: name of each activity.
        lanes: stream of each activity.
        start: start, ns.
        end: end, ns.
        usable: valid kernels; everything else is left out.
        is_compute: kernels that compute; the stream that computes longest is the one looked at.
    """
    rows = np.flatnonzero(usable & (names.codes >= 0))
    if not len(rows):
        return None
    weight = (end - start)[rows]
    computing = np.where(is_compute[rows], weight, 0)
    rows = rows[lanes[rows] == _busiest_lane(lanes[rows], computing if computing.any() else weight)]
    rows = rows[np.lexsort((end[rows], names.codes[rows], start[rows]))][:_MAX_KERNELS]
    rows = rows[_is_large(names.codes[rows], (end - start)[rows])]
    tokens = names.codes[rows]
    period = _period(tokens)
    if period is None:
        return None
    first = _rotation(tokens, start[rows], end[rows], period)
    marks = _marks(tokens, first, period)
    whole = np.count_nonzero(np.append(marks[1:], len(tokens)) - marks >= period)
    if whole < MIN_REPEATS or marks[-1] + period - first < MIN_COVERED * (len(tokens) - first):
        return None
    return np.asarray(start[rows][marks], dtype=np.int64)


def _busiest_lane(lanes: I64, dur: I64) -> int:
    distinct, codes = np.unique(lanes, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, codes.reshape(-1), dur)
    return int(distinct[np.argmax(total)])


def _is_large(codes: I64, dur: I64) -> Flags:
    """Kernels of the names that, largest first, make up `LARGE_SHARE` of the time."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, inverse.reshape(-1), dur)
    order = np.lexsort((distinct, -total))
    before = np.cumsum(total[order]) - total[order]
    large = np.zeros(len(distinct), dtype=np.bool_)
    large[order[before < LARGE_SHARE * max(int(total.sum()), 1)]] = True
    return np.asarray(large[inverse.reshape(-1)], dtype=np.bool_)


def _period(tokens: I64) -> int | None:
    """The smallest period that matches as well as the best one, in tokens; None without one."""
    scores = {p: _match(tokens, p) for p in _candidates(tokens)}
    best = max(scores.values(), default=0.0)
    if best < MIN_MATCH:
        return None
    slack = (1 - best) / 4 + 0.0005
    return min(p for p, score in scores.items() if score >= best - slack)


def _match(tokens: I64, period: int) -> float:
    return float(np.mean(tokens[period:] == tokens[:-period]))


def _candidates(tokens: I64) -> list[int]:
    """Distances at which the rarest large kernels recur regularly, at most a third of the sequence."""
    distinct, inverse, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    often = np.flatnonzero(counts >= MIN_REPEATS)
    rarest = often[np.lexsort((distinct[often], counts[often]))][:_RAREST]
    found: set[int] = set()
    for token in rarest.tolist():
        places = np.flatnonzero(inverse.reshape(-1) == token)
        for lag in range(1, min(len(places) // MIN_REPEATS + 1, _MAX_LAG + 1)):
            if lag < len(places):
                found.add(int(np.median(places[lag:] - places[:-lag])))
    return sorted(p for p in found if 1 <= p <= len(tokens) // MIN_REPEATS)


def _rotation(tokens: I64, start: I64, end: I64, period: int) -> int:
    """Which token of the period opens a step: the one before which the stream idles longest in all."""
    busy_until = np.maximum.accumulate(end)
    gap = np.append(0, np.maximum(start[1:] - busy_until[:-1], 0))
    place = np.arange(len(tokens)) % period
    total = np.zeros(period, dtype=np.int64)
    np.add.at(total, place, gap)
    return int(np.argmax(total))


def _marks(tokens: I64, first: int, period: int) -> I64:
    """Token positions at which a step opens, following the sequence where tokens were lost or added.

    A step's opening is the place near the expected one (a period later) where the opening tokens recur.
    """
    width = min(period, 4)
    head = tokens[first : first + width]
    same = np.ones(max(len(tokens) - width + 1, 0), dtype=np.bool_)
    for i in range(width):
        same &= tokens[i : len(tokens) - width + 1 + i] == head[i]
    places = np.flatnonzero(same)
    marks = [first]
    slack = max(period // 4, 1)
    while True:
        expected = marks[-1] + period
        low, high = np.searchsorted(places, [max(expected - slack, marks[-1] + 1), expected + slack + 1])
        near = places[low:high]
        if not len(near):
            break
        marks.append(int(near[np.argmin(np.abs(near - expected))]))
    return np.asarray(marks, dtype=np.int64)
