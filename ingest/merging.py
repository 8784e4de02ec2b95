"""What end events carry, moved into the begin events they close."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from .validity import Ints

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SUFFIX = " (end)"
"""Marks an end event's value where the begin event has another one under the same key."""


class EndEvents:
    """The columns of end events that hold anything, looked up by the row of their begin.

    Args:
        ends: rows of end events, and their non-empty columns.
        begin_rows: sorted rows of closed begins.
        end_rows: the rows of their ends, side by side.
    """

    def __init__(self, ends: list[tuple[Ints, pa.RecordBatch]], begin_rows: Ints, end_rows: Ints) -> None:
        self._begin_rows = begin_rows
        self._end_rows = end_rows
        self._starts = [int(rows[0]) for rows, _ in ends]
        self._ends = ends

    def merged(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """The batch, which starts at `row` of the file, with its ends' values.

        A value the begin lacks is filled in; an equal one changes nothing; a different one goes to `extra`
        under its key with ` (end)` behind it.
        """
        if not self._ends:
            return batch
        first, last = np.searchsorted(self._begin_rows, (row, row + batch.num_rows))
        found = {
            int(b) - row: values
            for b, e in zip(self._begin_rows[first:last], self._end_rows[first:last], strict=True)
            if (values := self._values(int(e)))
        }
        return _filled(batch, found) if found else batch

    def _values(self, row: int) -> dict[str, Any]:
        """What the end event of that row carries."""
        at = int(np.searchsorted(self._starts, row, side="right")) - 1
        if at < 0:
            return {}
        rows, columns = self._ends[at]
        place = int(np.searchsorted(rows, row))
        if place == len(rows) or rows[place] != row:
            return {}
        values = {name: columns.column(name)[place].as_py() for name in columns.schema.names}
        return {name: value for name, value in values.items() if value is not None}


def _filled(batch: pa.RecordBatch, found: dict[int, dict[str, Any]]) -> pa.RecordBatch:
    cells = {
        name: batch.column(name).to_pylist()
        for name in batch.schema.names
        if any(name in values for values in found.values()) or name == "extra"
    }
    for at, values in found.items():
        left: dict[str, msgspec.Raw] = {}
        for name, value in values.items():
            if name == "extra" or name not in cells or cells[name][at] == value:
                continue
            if cells[name][at] is None:
                cells[name][at] = value
            else:
                left[name + _SUFFIX] = msgspec.Raw(msgspec.json.encode(value))
        if "extra" in cells:
            cells["extra"][at] = _merged_extra(cells["extra"][at], values.get("extra"), left)
    arrays = [_rebuilt(batch, field, cells.get(field.name)) for field in batch.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _merged_extra(begin: str | None, end: str | None, left: dict[str, msgspec.Raw]) -> str | None:
    if not left and (end is None or begin == end):
        return begin
    mine = _OBJECT.decode(begin) if begin else {}
    for key, value in (_OBJECT.decode(end) if end else {}).items():
        if key not in mine:
            mine[key] = value
        elif bytes(mine[key]) != bytes(value):
            mine[key + _SUFFIX] = value
    return msgspec.json.encode(mine | left).decode()


def _rebuilt(batch: pa.RecordBatch, field: pa.Field, values: list[Any] | None) -> pa.Array:
    if values is None:
        return batch.column(field.name)
    if pa.types.is_dictionary(field.type):
        return pa.array(values, field.type.value_type).dictionary_encode()
    return pa.array(values, field.type)
