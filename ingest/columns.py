"""Arrow columns as numpy arrays: the one place where nulls become masks and text becomes codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

LARGEST = np.iinfo(np.int64).max
SMALLEST = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Text:
    """A text column: `codes[i]` indexes `values`, -1 where null; `values` are sorted and distinct.

    Sorted values make the codes themselves comparable, so ties broken by text never depend on row order.
    """

    codes: I32
    values: tuple[str, ...]

    def where(self, wanted: npt.NDArray[np.bool_]) -> Flags:
        """Rows whose value is flagged in `wanted` (one flag per distinct value); nulls are not."""
        flags = np.append(wanted, False)
        return np.asarray(flags[self.codes], dtype=np.bool_)

    def take(self, rows: I64) -> Text:
        """The rows, in that order."""
        return Text(self.codes[rows], self.values)

    def at(self, rows: I64) -> Text:
        """The rows, in that order; null for row -1."""
        return Text(np.append(self.codes, np.int32(-1))[rows], self.values)

    def arrow(self) -> pa.DictionaryArray:
        """The column as an Arrow dictionary array."""
        indices = pa.array(self.codes, mask=self.codes < 0, type=pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.values, pa.string()))


def ints(table: pa.Table, name: str) -> tuple[I64, Flags]:
    """An integer column as values (0 where null) and a mask of the rows that have one."""
    column = table.column(name)
    known = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=np.bool_)
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values, known


def ints_at(table: pa.Table, name: str, rows: I64) -> tuple[I64, Flags]:
    """`ints` of some rows, in that order."""
    values, known = ints(table, name)
    return values[rows], known[rows]


def flags(table: pa.Table, name: str) -> Flags:
    """A boolean column; null counts as false."""
    return np.asarray(pc.fill_null(table.column(name), False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def text(table: pa.Table, name: str) -> Text:
    """A text column, dictionary coded or not, as sorted codes."""
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    chunk = _one_chunk(column)
    raw = chunk.dictionary.to_pylist()
    codes = pc.fill_null(chunk.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    used = np.unique(codes[codes >= 0]).tolist()
    values = tuple(sorted({raw[i] for i in used if raw[i] is not None}))
    place = {v: i for i, v in enumerate(values)}
    recode = np.full(len(raw) + 1, -1, dtype=np.int32)
    for i in used:
        recode[i] = place.get(raw[i], -1)
    return Text(recode[codes], values)


def _one_chunk(column: pa.ChunkedArray) -> pa.DictionaryArray:
    if column.num_chunks == 0:
        return pa.array([], pa.string()).dictionary_encode()
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.unify_dictionaries().combine_chunks()


def integer_array(values: I64, known: Flags) -> pa.Array:
    """Values as Arrow int64, null where not known."""
    return pa.array(values, mask=~known, type=pa.int64())


def threads(table: pa.Table) -> Text:
    """`pid/tid` of every row; a missing part is `?`."""
    pid, tid = text(table, "pid"), text(table, "tid")
    n = len(tid.values) + 1
    pair = (pid.codes.astype(np.int64) + 1) * n + (tid.codes + 1)
    pairs, inverse = np.unique(pair, return_inverse=True)
    names = [f"{_named(pid, int(p) // n)}/{_named(tid, int(p) % n)}" for p in pairs]
    values = tuple(sorted(set(names)))
    place = {v: i for i, v in enumerate(values)}
    recode = np.array([place[v] for v in names], dtype=np.int32)
    return Text(recode[inverse.reshape(-1)] if len(names) else np.empty(0, np.int32), values)


def _named(column: Text, shifted: int) -> str:
    return column.values[shifted - 1] if shifted else "?"


def saturating_end(start: I64, dur: I64) -> tuple[I64, Flags]:
    """Start plus duration, and whether it fits; a sum beyond int64 is held at the largest value, a negative
    duration counts as zero.
    """
    dur = np.maximum(dur, 0)
    room = LARGEST - np.maximum(start, 0)
    return start + np.minimum(dur, room), dur <= room
