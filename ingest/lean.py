"""Events as `derive` wants them, in little memory: they are the largest table of an ingest."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

NOT_DERIVED_FROM = frozenset(
    {"graph_node_id", "python_id", "python_parent_id", "wait_on_stream", "wait_on_correlation"}
)
"""Columns of the events that `derive` never looks at."""

_PYTHON = pa.array(["python_function"])
_COPIES = pa.array(["gpu_memcpy", "gpu_memset"])
_FLOWS = pa.array(["s", "t", "f"])


def lean(events: pa.Table) -> pa.Table:
    """The events without what derives nothing.

    Python frames are most of a trace with stacks, flow arrows as many as launches, and of the verbatim rest
    only that of copies and memsets is read.
    """
    cat = events.column("cat").cast(pa.string())
    is_idle = pc.or_(_is_one_of(cat, _PYTHON), _is_one_of(events.column("ph").cast(pa.string()), _FLOWS))
    rest = pc.if_else(_is_one_of(cat, _COPIES), events.column("extra"), pa.scalar(None, pa.string()))
    place = events.column_names.index("extra")
    return events.set_column(place, "extra", rest).filter(pc.invert(is_idle))


def _is_one_of(column: pa.ChunkedArray, wanted: pa.Array) -> pa.ChunkedArray:
    return pc.fill_null(pc.is_in(column, value_set=wanted), False)


def with_shared_nulls(piece: pa.Table, nothing: dict[pa.DataType, pa.Array]) -> pa.Table:
    """The table; its columns without any value, most of them, share one block of nulls with all others."""
    columns = []
    for column in piece.columns:
        if column.null_count == piece.num_rows:
            block = nothing.get(column.type)
            if block is None or len(block) < piece.num_rows:
                block = nothing[column.type] = pa.nulls(piece.num_rows, column.type)
            column = pa.chunked_array([block.slice(0, piece.num_rows)])
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=piece.schema)
