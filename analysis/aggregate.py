"""Rows of the breakdown summed by any key: exact integers, or means per window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.store.errors import UsageError
from rankscope.store.schema import Timeline

from .breakdown import in_order, ratio
from .closure import check_closure
from .intervals import I64, Flags
from .tables import LABELS, flags, int_array, ints, need, numbers, small_codes, text

KEYS = ("rank", "device", "step", "window", "world", "host", "coords", "phase", "run")
"""What rows can be summed by; `run` is everything."""

DEFAULT_BY = ("rank", "device")
"""The keys where none are asked for; see `default_keys`."""


def aggregate(rows: pa.Table, by: Sequence[str] = DEFAULT_BY, *, mean: bool = False) -> pa.Table:
    """Breakdown rows summed by key: exact int64 sums in the same columns, and `n`, the windows summed.

    Ratios come from the sums. A sum over a null is null (`communication_ns`); `bubble_ns` is null while the sum
    of `unsplit_comm_ns` is above 0; `is_comm_recorded` holds when it holds for all. `wall_min_ns` and `wall_max_ns`
    are the shortest and longest window. Rows of device and host timelines are never summed together.

    Args:
        rows: BREAKDOWN rows, any order (of `breakdown`, or aggregated ones: sums of sums are sums).
        by: keys among `KEYS`.
        mean: float64 `*_ms` columns instead of `*_ns`: sum / n / 1e6 (the extremes undivided).

    Returns:
        One row per timeline and key, sorted by them with nulls last. Identity, place, step and phase are kept
        where all rows of a group agree, else null.

    Raises:
        UsageError: a key is unknown.
        ClosureError: sums do not close (a defect of this program).

    Cost: one sort of the rows.
    Source: CONTRACT section 5 of this project's design.
    """
    check_keys(by)
    need(rows, ["timeline", "wall_ns", "n"], "breakdown rows")
    keys = [k for k in dict.fromkeys(by) if k != "run"]
    order, first = _grouped(rows, keys)
    columns: dict[str, pa.Array] = {
        c: _label(rows, c, order, first) for c in (*LABELS, "timeline") if c in rows.column_names
    }
    if rows.num_rows:
        columns |= _sums(rows, order, first)
    else:
        columns |= {c: rows.column(c) for c in rows.column_names if c not in columns}
        columns |= {c: pa.array([], pa.int64()) for c in ("wall_min_ns", "wall_max_ns")}
    table = in_order(pa.table(columns))
    check_closure(table)
    return means(table) if mean else table


def default_keys(rows: pa.Table) -> list[str]:
    """Rank and device, and the phase where the rows (windows or breakdown rows) are inference iterations."""
    phases = rows.column("phase")
    return [*DEFAULT_BY, *(["phase"] if phases.null_count < len(phases) else [])]


def check_keys(by: Sequence[str]) -> None:
    """Nothing, unless a key is unknown.

    Raises:
        UsageError: naming the keys that exist.
    """
    unknown = [k for k in by if k not in KEYS]
    if unknown:
        raise UsageError(f"cannot sum by {', '.join(unknown)}", hint=f"keys: {', '.join(KEYS)}")


def means(sums: pa.Table) -> pa.Table:
    """Means per window in ms (float64 `*_ms`) of aggregated rows; extremes are not divided."""
    n = np.maximum(numbers(sums, "n"), 1)
    names, columns = [], []
    for name in sums.column_names:
        column = sums.column(name)
        if name.endswith("_ns"):
            values, known = ints(sums, name)
            divisor = 1 if name in ("wall_min_ns", "wall_max_ns") else n
            column = pa.array(values / divisor / 1e6, mask=~known)
            name = f"{name[:-3]}_ms"
        names.append(name)
        columns.append(column)
    return pa.table(columns, names=names)


def _grouped(rows: pa.Table, keys: Sequence[str]) -> tuple[I64, I64]:
    """Row order by timeline (device first) and keys, and where each group begins."""
    timeline = text(rows, "timeline").is_one_of(Timeline.HOST).astype(np.int64)
    codes = [timeline, *(small_codes(rows, k) for k in keys)]
    order = np.lexsort(tuple(reversed(codes))).astype(np.int64)
    fresh = np.zeros(len(order), dtype=np.bool_)
    fresh[:1] = True
    for code in codes:
        fresh[1:] |= np.diff(code[order]) != 0
    return order, np.flatnonzero(fresh)


def _label(rows: pa.Table, name: str, order: I64, first: I64) -> pa.Array:
    """The group's value where all its rows agree, else null."""
    if not len(order):
        return rows.column(name)
    codes = small_codes(rows, name)[order]
    agree = np.minimum.reduceat(codes, first) == np.maximum.reduceat(codes, first)
    heads = pa.array(order[first], mask=~agree)
    return rows.column(name).take(heads)


def _sums(rows: pa.Table, order: I64, first: I64) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    summed: dict[str, tuple[I64, Flags]] = {}
    skipped = ("bubble_ns", "wall_min_ns", "wall_max_ns")
    for name in [c for c in rows.column_names if (c.endswith("_ns") or c == "n") and c not in skipped]:
        values, known = ints(rows, name)
        total = np.add.reduceat(values[order], first)
        summed[name] = (total, np.logical_and.reduceat(known[order], first))
        columns[name] = int_array(*summed[name])
    is_split = summed["unsplit_comm_ns"][0] == 0
    columns["bubble_ns"] = int_array(summed["bubble_min_ns"][0], is_split)
    communication, known = summed["communication_ns"]
    columns["overlap_ratio"] = ratio(summed["overlap_ns"][0], np.where(known, communication, 0))
    recorded = flags(rows, "is_comm_recorded", default=True)[order]
    columns["is_comm_recorded"] = pa.array(np.logical_and.reduceat(recorded, first))
    return columns | _extremes(rows, order, first)


def _extremes(rows: pa.Table, order: I64, first: I64) -> dict[str, pa.Array]:
    low, high = (_extreme(rows, f"wall_{e}_ns")[order] for e in ("min", "max"))
    return {
        "wall_min_ns": int_array(np.minimum.reduceat(low, first)),
        "wall_max_ns": int_array(np.maximum.reduceat(high, first)),
    }


def _extreme(rows: pa.Table, name: str) -> npt.NDArray[np.int64]:
    return numbers(rows, name if name in rows.column_names else "wall_ns")
