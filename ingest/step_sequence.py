"""Steps inferred from device activity alone: the shortest repeating sequence of kernels and collectives.

A capture without host operators has no step marks, but a training or decoding loop repeats the same kernels
in the same order. The sequence is looked for on the stream that computes longest; its largest and its rarest
kernels propose the periods, all of its kernels judge them (a layer repeats as well as a step does but for the
few small kernels at a step's edges).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from .columns import I64, Flags

MIN_REPEATS = 3
"""Fewer repeats than this are no evidence of a period."""
MIN_MATCH = 0.8
"""Share of kernels that must recur one period later; one lost kernel breaks about one period."""
MIN_DISTINCT = 2
"""A single kernel over and over is a loop, but not of steps."""
WHOLE = 0.95
"""A repeat with this share of the period's kernels is whole: repeats differ by a few small kernels."""
MIN_COVERED = 0.8
"""The repeats must follow one another over this share of the stream, else they are layers or a phase."""
_ANCHORS = 8
_HEAD = 4
_MAX_LAG = 256
_MAX_KERNELS = 200_000


@dataclass(frozen=True)
class Kernels:
    """Valid kernels of one device, any order.

    Attributes:
        name: code of the name, alike for alike names.
        lane: stream.
        start, end: ns.
        call: correlation id, -1 where unknown; kernels of one graph launch share it.
        is_compute: whether it computes (else it communicates).
    """

    name: I64
    lane: I64
    start: I64
    end: I64
    call: I64
    is_compute: Flags

    def take(self, rows: I64) -> Kernels:
        """The rows, in that order."""
        return Kernels(*(getattr(self, f.name)[rows] for f in fields(self)))


def sequence_starts(kernels: Kernels) -> I64 | None:
    """Starts of the inferred steps of one device, ascending; None without a period.

    The period is the smallest whose match (the share of kernels equal to the one a period later) comes
    as close to the best as noise explains; layers repeat within a step too, but break at its edges. A step
    begins with the kernel before which the stream idles longest, summed over the repeats, and never inside a
    graph launch. Whole repeats number at least three and hold at least two different kernels; a cut first
    repeat is not a step, a cut last one is.
    """
    if not len(kernels.name):
        return None
    lane = _busiest_lane(kernels)
    mine = np.flatnonzero(kernels.lane == lane)
    order = np.lexsort((kernels.end[mine], kernels.name[mine], kernels.start[mine]))
    k = kernels.take(mine[order][:_MAX_KERNELS])
    if len(np.unique(k.name)) < MIN_DISTINCT:
        return None
    k = replace(k, name=2 * k.name + _can_open(k))  # the first kernel of a graph is like no other
    period = _period(k.name, k.end - k.start)
    opening = _opening(k, period) if period else None
    if period is None or opening is None:
        return None
    marks = _marks(k.name, _can_open(k), opening=opening, period=period)
    whole = np.count_nonzero(np.append(marks[1:], len(k.name)) - marks >= WHOLE * period)
    if whole < MIN_REPEATS or marks[-1] + period - marks[0] < MIN_COVERED * len(k.name):
        return None
    return np.asarray(k.start[marks], dtype=np.int64)


def _busiest_lane(kernels: Kernels) -> int:
    """The stream that computes longest, where nothing computes the one that is busy longest."""
    weight = kernels.end - kernels.start
    computing = np.where(kernels.is_compute, weight, 0)
    distinct, codes = np.unique(kernels.lane, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, codes.reshape(-1), computing if computing.any() else weight)
    return int(distinct[np.argmax(total)])


def _can_open(k: Kernels) -> Flags:
    """Kernels that may open a step: not those launched together with the one before (a graph)."""
    together = (k.call[1:] == k.call[:-1]) & (k.call[1:] >= 0)
    return np.append(True, ~together)


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


def _opening(k: Kernels, period: int) -> int | None:
    """A place at which a step opens: the first of those pairs of kernels, seen about once per period, between
    which the stream idles longest in all; None when all of it is one graph launch.
    """
    gap = np.maximum(k.start[1:] - np.maximum.accumulate(k.end)[:-1], 0)
    places = np.flatnonzero(_can_open(k)[1:])
    if not len(places):
        return None
    pair = (k.name[:-1] * (int(k.name.max()) + 1) + k.name[1:])[places]
    _, first, inverse, counts = np.unique(pair, return_index=True, return_inverse=True, return_counts=True)
    total = np.zeros(len(first), dtype=np.int64)
    np.add.at(total, inverse.reshape(-1), gap[places])
    repeats = len(k.name) / period
    once = (counts >= 0.5 * repeats) & (counts <= 1.5 * repeats)
    best = np.lexsort((first, -total, ~once))[0]
    return int(places[first[best]]) + 1


def _marks(tokens: I64, can_open: Flags, *, opening: int, period: int) -> I64:
    """Token positions at which a step opens, following the sequence where tokens were lost or added.

    From one opening, in both directions: the next is the place nearest to a period away at which the opening
    tokens recur.
    """
    width = min(period, _HEAD, len(tokens) - opening)
    head = tokens[opening : opening + width]
    same = can_open[: len(tokens) - width + 1].copy()
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
