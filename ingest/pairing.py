"""Begin and end events of threads matched as a stack, without a loop over events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """Positions (into the arrays given) of matched begins and ends, side by side, and of the rest."""

    begin: Ints
    end: Ints
    open_begin: Ints
    lone_end: Ints


def paired(thread: Ints, start_ns: Ints, is_begin: Bools) -> Pairs:
    """Match every end with the latest begin of its thread that is still open.

    Events are taken in time order; at equal times in the order given. An end without an open begin is left
    alone and does not disturb the others.

    Args:
        thread: thread number of each event.
        start_ns: its time.
        is_begin: begin (True) or end.

    Cost: O(n log n).
    """
    order = np.lexsort((np.arange(len(thread)), start_ns, thread))
    lone = _ends_without_begin(thread[order], is_begin[order])
    lone_end = order[lone]
    order = order[~lone]
    threads, begins = thread[order], is_begin[order]
    # Among what is left every end has its begin, so on one level of a thread they alternate.
    level = _depth(threads, begins) + ~begins
    by_level = np.lexsort((np.arange(len(order)), level, threads))
    begin = by_level[:-1]
    follows = by_level[1:]
    is_pair = begins[begin] & ~begins[follows]
    is_pair &= (threads[begin] == threads[follows]) & (level[begin] == level[follows])
    is_open = begins.copy()
    is_open[begin[is_pair]] = False
    return Pairs(
        begin=order[begin[is_pair]],
        end=order[follows[is_pair]],
        open_begin=np.sort(order[is_open]),
        lone_end=np.sort(lone_end),
    )


def _depth(thread: Ints, is_begin: Bools) -> Ints:
    """How many begins are open after each event of its thread; threads lie one after another."""
    running = np.cumsum(np.where(is_begin, 1, -1))
    return running - _before_thread(thread, running)


def _before_thread(thread: Ints, running: Ints) -> Ints:
    """The running count as it stood before each event's thread began."""
    if not len(thread):
        return running
    is_first = np.r_[True, thread[1:] != thread[:-1]]
    first = np.flatnonzero(is_first)
    base = np.r_[0, running][first]
    lengths = np.diff(np.r_[first, len(thread)])
    return np.repeat(base, lengths)


def _ends_without_begin(thread: Ints, is_begin: Bools) -> Bools:
    """Ends at which the depth of the thread falls below any it had before (and below zero)."""
    if not len(thread):
        return np.zeros(0, np.bool_)
    depth = np.minimum(_depth(thread, is_begin), 0)
    number = np.cumsum(np.r_[0, thread[1:] != thread[:-1]])
    # A drop between threads larger than any depth keeps one running minimum from reaching into the next thread.
    step = len(thread) + 2
    lowest = np.minimum.accumulate(depth - number * step)
    before = np.r_[0, lowest[:-1]]
    is_first = np.r_[True, number[1:] != number[:-1]]
    before = np.where(is_first, -number * step, before)
    return ~is_begin & (lowest < before)
