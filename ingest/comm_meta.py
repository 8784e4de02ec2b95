"""Metadata of communication activities: their own arguments, else those of the call that issued them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .columns import I64, Flags, ints, text
from .frame import Frame
from .operations import message_bytes

COLUMNS = (
    "collective",
    "pg",
    "pg_description",
    "pg_ranks",
    "group_size",
    "in_nelems",
    "out_nelems",
    "in_split",
    "out_split",
    "dtype",
    "seq",
    "src_rank",
    "dst_rank",
    "comms_id",
    "is_async",
)
"""Columns of `events` that describe a collective call."""


def comm_metadata(frame: Frame, rows: I64, is_comm: Flags, records: I64) -> dict[str, pa.ChunkedArray]:
    """Columns describing the collective of each activity, null for those that are no communication.

    An argument an activity lacks is taken from its call: the enclosing `record_param_comms` of its launch,
    else the CPU record with the same External id. An activity that names another collective than its call
    keeps its own arguments alone.

    Args:
        frame: the events.
        rows: event row of each activity.
        is_comm: which of them are communication.
        records: event row of the collective call around each activity's launch, -1 without one.

    Returns:
        `COLUMNS`, and `in_bytes`, `out_bytes` = elements times element size.
    """
    records = np.where(records >= 0, records, _by_external_id(frame, rows))
    own, theirs = frame.collective.codes[rows], frame.collective.codes[records]
    usable = is_comm & (records >= 0) & ((own < 0) | (own == theirs))
    first = pa.array(rows, mask=~is_comm)
    second = pa.array(records, mask=~usable)
    meta = {}
    for name in COLUMNS:
        column = frame.table.column(name)
        meta[name] = pc.coalesce(_plain(column.take(first)), _plain(column.take(second)))
    table = pa.table(meta)
    dtypes = text(table, "dtype")
    for side in ("in", "out"):
        meta[f"{side}_bytes"] = message_bytes(*ints(table, f"{side}_nelems"), dtypes)
    return meta


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _by_external_id(frame: Frame, rows: I64) -> I64:
    """Event row of the collective call with the activity's External id (the earliest), else -1."""
    external, known = frame.external_id
    records = np.flatnonzero(frame.is_comm_record & known)
    result = np.full(len(rows), -1, dtype=np.int64)
    if not len(records):
        return result
    records = records[np.lexsort((frame.name.codes[records], frame.start[records], external[records]))]
    ids = external[records]
    at = np.searchsorted(ids, external[rows])
    found = known[rows] & (at < len(ids))
    found &= ids[np.minimum(at, len(ids) - 1)] == external[rows]
    result[found] = records[at[found]]
    return result
