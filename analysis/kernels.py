"""Kernels and copies by name: how often, how long, how evenly over ranks, and how much slower under communication."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.store.schema import TEXT, Class

from .intervals import I64, Flags, merge
from .tables import TIMELINE, flags, int_array, ints, need, numbers, rows_by, text

F64 = npt.NDArray[np.float64]
_BY = ("name", "class", "rule", "copy_kind")


def kernels(activities: pa.Table, windows: pa.Table | None = None) -> pa.Table:
    """Device activities by name, costliest first.

    Each activity counts once, in the window in which it starts, with its whole duration; those of zero length
    count, invalid ones do not. `p50_ns`, `p99_ns` are nearest-rank percentiles: recorded durations. `share_ratio` =
    total / total of all names (durations are summed, not united: shares do not say how long the device was busy).
    `rank_spread_ratio` = largest mean over ranks / smallest - 1. With f_i the part of activity i during which
    communication runs on its device, `slowdown_under_comm_ratio` = (sum d_i f_i / sum f_i) /
    (sum d_i (1 - f_i) / sum (1 - f_i)): mean duration under communication over mean duration without.

    Args:
        activities: ACTIVITIES rows, any order, any number of ranks (HOST_ACTIVITIES rows give host ranges by name).
        windows: STEPS rows in use; all activities when None.

    Returns:
        `name, class, rule, copy_kind, count, total_ns, mean_ns` (float64), `p50_ns, p99_ns, min_ns, max_ns,
        share_ratio, n_ranks, rank_spread_ratio` (null with one rank or a zero mean), `slowdown_under_comm_ratio`
        (null for communication, and where one side is missing); sorted by total descending, then name, class, rule.

    Raises:
        MissingColumn: a needed column is absent.

    Cost: O(n log n).
    Source: this project.
    """
    need(activities, [*TIMELINE, "name", "class", "rule", "start_ns", "end_ns"], "activities")
    start, end = numbers(activities, "start_ns"), numbers(activities, "end_ns")
    known = [ints(activities, c)[1] for c in ("start_ns", "end_ns")]
    sound = flags(activities, "valid", default=True) & known[0] & known[1]
    kept = np.flatnonzero(sound & _in_windows(activities, windows, start, end))
    under = _under_communication(activities, sound, kept, start, end)
    return _by_name(activities.take(pa.array(kept)), end[kept] - start[kept], under)


def _by_name(table: pa.Table, dur: I64, under: F64) -> pa.Table:
    """The rows by name, class and rule, from durations and the part under communication."""
    columns = {c: text(table, c) for c in _BY}
    codes = [columns[c].codes for c in reversed(_BY)]
    order = np.lexsort((dur, *codes))
    fresh = np.zeros(len(order), dtype=np.bool_)
    fresh[:1] = True
    for code in codes:
        fresh[1:] |= np.diff(code[order]) != 0
    grouped = _Grouped(np.flatnonzero(fresh), dur[order], numbers(table, "rank")[order], under[order])
    stats = grouped.stats()
    heads = order[grouped.first]
    labels = {c: columns[c].at(heads).arrow().cast(TEXT) for c in _BY}
    is_comm = columns["class"].at(heads).is_one_of(Class.COMM)
    stats["slowdown_under_comm_ratio"] = _nulled(stats["slowdown_under_comm_ratio"], is_comm)
    ranked = np.lexsort((np.arange(len(heads)), -stats["total_ns"].to_numpy()))
    return pa.table(labels | stats).take(pa.array(ranked))


@dataclass(frozen=True)
class _Grouped:
    """Durations sorted by name and length: where each name begins, and what is known of each activity."""

    first: I64
    dur: I64
    rank: I64
    under: F64

    def stats(self) -> dict[str, pa.Array]:
        """The columns of numbers, a row per name."""
        count = np.diff(np.append(self.first, len(self.dur)))
        total = np.add.reduceat(self.dur, self.first)
        n_ranks, spread = self._over_ranks(count)
        whole = int(total.sum())
        slowdown, known = self._slowdown()
        return {
            "count": int_array(count),
            "total_ns": int_array(total),
            "mean_ns": pa.array(total / count),
            "p50_ns": int_array(self._percentile(count, 50)),
            "p99_ns": int_array(self._percentile(count, 99)),
            "min_ns": int_array(self.dur[self.first]),
            "max_ns": int_array(self.dur[self.first + count - 1]),
            "share_ratio": pa.array(total / max(whole, 1), mask=np.full(len(total), whole == 0)),
            "n_ranks": int_array(n_ranks),
            "rank_spread_ratio": spread,
            "slowdown_under_comm_ratio": pa.array(slowdown, mask=~known),
        }

    def _percentile(self, count: I64, percent: int) -> I64:
        """The smallest duration that at least so many percent do not exceed."""
        return np.asarray(self.dur[self.first + (count * percent + 99) // 100 - 1], dtype=np.int64)

    def _over_ranks(self, count: I64) -> tuple[I64, pa.Array]:
        name = np.repeat(np.arange(len(self.first)), count)
        order = np.lexsort((self.rank, name))
        fresh = np.ones(len(order), dtype=np.bool_)
        fresh[1:] = (np.diff(name[order]) != 0) | (np.diff(self.rank[order]) != 0)
        begins = np.flatnonzero(fresh)
        mean = np.add.reduceat(self.dur[order], begins) / np.diff(np.append(begins, len(order)))
        heads = np.flatnonzero(np.diff(name[order][begins], prepend=-1))
        low, high = np.minimum.reduceat(mean, heads), np.maximum.reduceat(mean, heads)
        n_ranks = np.diff(np.append(heads, len(begins)))
        known = (n_ranks > 1) & (low > 0)
        return n_ranks, pa.array(high / np.where(known, low, 1) - 1, mask=~known)

    def _slowdown(self) -> tuple[F64, Flags]:
        lasting = self.dur > 0
        f, d = np.where(lasting, self.under, 0.0), self.dur.astype(np.float64)
        g = np.where(lasting, 1.0 - self.under, 0.0)
        sums = [np.add.reduceat(x, self.first) for x in (d * f, f, d * g, g)]
        known = (sums[1] > 0) & (sums[3] > 0) & (sums[2] > 0)
        safe = [np.where(known, x, 1.0) for x in sums]
        return (safe[0] / safe[1]) / (safe[2] / safe[3]), known


def _nulled(column: pa.Array, rows: Flags) -> pa.Array:
    values = column.to_numpy(zero_copy_only=False)
    return pa.array(values, mask=rows | np.asarray(column.is_null()), type=pa.float64())


def _in_windows(activities: pa.Table, windows: pa.Table | None, start: I64, end: I64) -> Flags:
    """Whether each activity starts inside a window of its timeline; one of zero length may start at its end."""
    if windows is None:
        return np.ones(len(start), dtype=np.bool_)
    low, high = numbers(windows, "start_ns"), numbers(windows, "end_ns")
    inside = np.zeros(len(start), dtype=np.bool_)
    places = rows_by(windows)
    for key, rows in rows_by(activities).items():
        mine = places.get(key)
        if mine is None:
            continue
        mine = mine[np.lexsort((high[mine], low[mine]))]
        at = np.searchsorted(low[mine], start[rows], side="right") - 1
        until = high[mine][np.maximum(at, 0)]
        touching = (start[rows] == until) & (end[rows] == start[rows])
        inside[rows] = (at >= 0) & ((start[rows] < until) | touching)
    return inside


def _under_communication(activities: pa.Table, sound: Flags, kept: I64, start: I64, end: I64) -> F64:
    """Part of each kept activity during which communication runs on its device."""
    is_comm = text(activities, "class").is_one_of(Class.COMM) & sound
    covered = np.zeros(len(start), dtype=np.int64)
    for rows in rows_by(activities).values():
        comm = rows[is_comm[rows]]
        if len(comm):
            covered[rows] = merge(start[comm], end[comm]).within(start[rows], end[rows])
    dur = end[kept] - start[kept]
    return np.asarray(covered[kept] / np.where(dur > 0, dur, 1), dtype=np.float64)
