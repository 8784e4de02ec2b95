"""Arrow tables as numpy columns, and rows by timeline: where nulls become masks and text becomes codes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankscope.store.errors import MissingColumn
from rankscope.store.schema import IDENTITY, PLACE

from .intervals import I64, Flags

TIMELINE = ("world", "rank", "window", "device")
"""What tells one device's time from another's: windows of one rank are captures of their own."""

LABELS = (*(c.name for c in (*IDENTITY, *PLACE)), "step", "phase")
"""Columns that say which rank, capture and step a row is about."""

Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Text:
    """A text column: `codes[i]` indexes `values`, -1 where null; `values` are sorted and distinct, so ties
    broken by code never depend on row order.
    """

    codes: I64
    values: tuple[str, ...]

    def where(self, wanted: Sequence[bool]) -> Flags:
        """Rows whose value is flagged (one flag per distinct value); nulls are not."""
        return np.append(np.asarray(wanted, dtype=np.bool_), False)[self.codes]

    def is_one_of(self, *names: str) -> Flags:
        """Rows with one of these values."""
        return self.where([v in names for v in self.values])

    def at(self, rows: I64) -> Text:
        """The rows, in that order; null for row -1."""
        return Text(np.append(self.codes, -1)[rows], self.values)

    def arrow(self) -> pa.DictionaryArray:
        """The column as an Arrow dictionary array."""
        indices = pa.array(self.codes.astype(np.int32), mask=self.codes < 0, type=pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.values, pa.string()))


def need(table: pa.Table, columns: Iterable[str], what: str) -> None:
    """Nothing, unless a column is absent.

    Raises:
        MissingColumn: naming the absent ones.
    """
    absent = [c for c in columns if c not in table.column_names]
    if absent:
        raise MissingColumn(f"the table of {what} lacks {', '.join(absent)}")


def ints(table: pa.Table, name: str) -> tuple[I64, Flags]:
    """An integer column as values (0 where null or absent) and a mask of the rows that have one."""
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, np.bool_)
    column = table.column(name)
    if not column.null_count:
        values = column.to_numpy()
        return values.astype(np.int64, copy=False), np.ones(len(values), np.bool_)
    known = np.asarray(pc.is_valid(column).to_numpy(), dtype=np.bool_)
    return pc.fill_null(column, 0).to_numpy().astype(np.int64, copy=False), known


def numbers(table: pa.Table, name: str) -> I64:
    """An integer column without its mask (0 where null)."""
    return ints(table, name)[0]


def flags(table: pa.Table, name: str, *, default: bool) -> Flags:
    """A boolean column; null and absent count as the default."""
    if name not in table.column_names:
        return np.full(table.num_rows, default, dtype=np.bool_)
    return np.asarray(pc.fill_null(table.column(name), default).to_numpy(), dtype=np.bool_)


def text(table: pa.Table, name: str) -> Text:
    """A text column, dictionary coded or not, as sorted codes; all null when the table lacks it."""
    if name not in table.column_names:
        return Text(np.full(table.num_rows, -1, np.int64), ())
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries() if column.num_chunks > 1 else column
    chunk = column.combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):
        chunk = chunk.chunk(0) if chunk.num_chunks else pa.array([], pa.string()).dictionary_encode()
    raw = chunk.dictionary.to_pylist()
    codes = pc.fill_null(chunk.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    used = np.bincount(codes[codes >= 0], minlength=len(raw)) > 0
    values = tuple(sorted({v for v, u in zip(raw, used.tolist(), strict=True) if u and v is not None}))
    place = {v: i for i, v in enumerate(values)}
    recode = np.array([*(place.get(v, -1) for v in raw), -1], dtype=np.int64)
    return Text(recode[codes], values)


def threads(events: pa.Table) -> Text:
    """`pid/tid` of every event; a missing part is `?`."""
    pid, tid = text(events, "pid"), text(events, "tid")
    n = len(tid.values) + 1
    pairs, inverse = np.unique((pid.codes + 1) * n + tid.codes + 1, return_inverse=True)
    pids, tids = ("?", *pid.values), ("?", *tid.values)
    names = [f"{pids[p // n]}/{tids[p % n]}" for p in pairs.tolist()]
    values = tuple(sorted(set(names)))
    place = {v: i for i, v in enumerate(values)}
    recode = np.array([place[v] for v in names], dtype=np.int64)
    return Text(recode[inverse.reshape(-1)] if names else np.empty(0, np.int64), values)


def rows_by(table: pa.Table, columns: Sequence[str] = TIMELINE) -> dict[Key, I64]:
    """Rows of each distinct combination of values, keys ascending with nulls last, rows ascending.

    Cost: one stable sort of n small integers.
    """
    n = table.num_rows
    if not n:
        return {}
    code = np.zeros(n, dtype=np.int64)
    for name in columns:
        codes = small_codes(table, name)
        if codes.max() == codes.min():
            continue
        code = np.unique(code * (int(codes.max()) + 1) + codes, return_inverse=True)[1].reshape(-1)
    order = np.argsort(code, kind="stable")
    first = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(code[order])) + 1])
    groups = np.split(order.astype(np.int64), first[1:])
    heads = order[first]
    values = [table.column(c).take(pa.array(heads)).to_pylist() for c in columns]
    return dict(zip(zip(*values, strict=True), groups, strict=True))


def small_codes(table: pa.Table, name: str) -> I64:
    """Small integers that stand for a column's values: ordered as they are, nulls last."""
    column = table.column(name)
    if pa.types.is_integer(column.type):
        values, known = ints(table, name)
        if len(values) and known.all() and values.max() == values.min():
            return np.zeros(len(values), dtype=np.int64)
        distinct, codes = np.unique(values, return_inverse=True)
        codes = np.where(known, codes.reshape(-1), len(distinct))
        return np.asarray(codes, dtype=np.int64)
    found = text(table, name)
    return np.where(found.codes < 0, len(found.values), found.codes)


def int_array(values: I64, known: Flags | None = None) -> pa.Array:
    """Values as Arrow int64, null where not known."""
    return pa.array(values, type=pa.int64(), mask=None if known is None else ~known)
