"""Steps inferred from device activity alone: the shortest repeating sequence of kernels and collectives.

A capture without host operators has no step marks, but a training or decoding loop repeats the same kernels
in the same order. The sequence is looked for on the stream that computes longest; its largest and its rarest
kernels propose the periods, all of its kernels judge them (a layer repeats as well as a step does but for the
few small kernels at a step's edges).
"""

from __future__ import annotations

import numpy as np

from .columns import I64, Flags, Text

MIN_REPEATS = 3
"""Fewer repeats than this are no evidence of a period."""
MIN_MATCH = 0.8
"""Share of kernels that must recur one period later; one lost kernel breaks about one period."""
WHOLE = 0.95
"""A repeat with this share of the period's kernels is whole: repeats differ by a few small kernels."""
MIN_COVERED = 0.8
"""The repeats must follow one another over this share of the stream, else they are layers or a phase."""
_ANCHORS = 8
_HEAD = 4
_MAX_LAG = 256
_MAX_KERNELS = 200_000


def sequence_starts(
    names: Text, lanes: I64, *, start: I64, end: I64, usable: Flags, is_compute: Flags
) -> I64 | None:
    """Starts of the inferred steps of one device, ascending; None without a period.

    The period is the smallest whose match (the share of kernels equal to the one a period later) comes
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
    tokens = names.codes[rows].astype(np.int64)
    period = _period(tokens, (end - start)[rows])
    if period is None:
        return None
    marks = _marks(tokens, _opening(tokens, start[rows], end[rows], period), period)
    whole = np.count_nonzero(np.append(marks[1:], len(tokens)) - marks >= WHOLE * period)
    if whole < MIN_REPEATS or marks[-1] + period - marks[0] < MIN_COVERED * len(tokens):
        return None
    return np.asarray(start[rows][marks], dtype=np.int64)


def _busiest_lane(lanes: I64, dur: I64) -> int:
    distinct, codes = np.unique(lanes, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, codes.reshape(-1), dur)
    return int(distinct[np.argmax(total)])


def _period(tokens: I64, dur: I64) -> int | None:
    """The smallest period that matches as well as the best one, in tokens; None without one."""
    scores = {p: _match(tokens, p) for p in _candidates(tokens, dur)}
    best = max(scores.values(), default=0.0)
    if best < MIN_MATCH:
        return None
    slack = (1 - best) / 4 + 0.0005
    return min(p for p, score in scores.items() if score >= best - slack)


def _match(tokens: I64, period: int) -> float:
    return float(np.mean(tokens[period:] == tokens[:-period]))


def _candidates(tokens: I64, dur: I64) -> list[int]:
    """Distances at which the rarest and the largest kernels recur, at most a third of the sequence."""
    distinct, inverse, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, inverse, dur)
    often = np.flatnonzero(counts >= MIN_REPEATS)
    rarest = often[np.lexsort((distinct[often], counts[often]))][:_ANCHORS]
    largest = often[np.lexsort((distinct[often], -total[often]))][:_ANCHORS]
    found: set[int] = set()
    for token in np.union1d(rarest, largest).tolist():
        places = np.flatnonzero(inverse == token)
        for lag in range(1, min(len(places) - 1, _MAX_LAG) + 1):
            distance = int(np.median(places[lag:] - places[:-lag]))
            if WHOLE * distance * MIN_REPEATS > len(tokens):
                break
            found.add(distance)
    return sorted(found)


def _opening(tokens: I64, start: I64, end: I64, period: int) -> int:
    """A place at which a step opens: the first of those pairs of kernels, seen about once per period, between
    which the stream idles longest in all.
    """
    if len(tokens) < 2:
        return 0
    busy_until = np.maximum.accumulate(end)
    gap = np.maximum(start[1:] - busy_until[:-1], 0)
    pair = tokens[:-1] * (int(tokens.max()) + 1) + tokens[1:]
    _, first, inverse, counts = np.unique(pair, return_index=True, return_inverse=True, return_counts=True)
    total = np.zeros(len(first), dtype=np.int64)
    np.add.at(total, inverse.reshape(-1), gap)
    repeats = len(tokens) / period
    once = (counts >= 0.5 * repeats) & (counts <= 1.5 * repeats)
    best = np.lexsort((first, -total, ~once))[0]
    return int(first[best]) + 1


def _marks(tokens: I64, opening: int, period: int) -> I64:
    """Token positions at which a step opens, following the sequence where tokens were lost or added.

    From one opening, in both directions: the next is the place nearest to a period away at which the opening
    tokens recur.
    """
    width = min(period, _HEAD, len(tokens) - opening)
    head = tokens[opening : opening + width]
    same = np.ones(len(tokens) - width + 1, dtype=np.bool_)
    for i in range(width):
        same &= tokens[i : len(tokens) - width + 1 + i] == head[i]
    places = np.flatnonzero(same)
    forward = _walk(places, opening, period)
    backward = _walk(-places[::-1], -opening, period)
    return np.asarray([-m for m in backward[:0:-1]] + forward, dtype=np.int64)


def _walk(places: I64, opening: int, period: int) -> list[int]:
    """The opening and its successors among sorted places, each about a period after the one before."""
    slack = max(period // 4, 1)
    marks = [opening]
    while True:
        expected = marks[-1] + period
        low, high = np.searchsorted(places, [max(expected - slack, marks[-1] + 1), expected + slack + 1])
        near = places[low:high]
        if not len(near):
            return marks
        marks.append(int(near[np.argmin(np.abs(near - expected))]))
