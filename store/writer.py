"""Parts of a store: Arrow batches in, Parquet files out, whole or not at all.

Encoding is chosen by measurement (docs: zstd-1, DELTA_BINARY_PACKED for integers, dictionary for repeating
text, row groups of 128 k, statistics only where a reader prunes by them).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import layout
from .errors import MissingColumn
from .manifest import Part, encode, manifest
from .place import Place
from .schema import STORED, TableSchema

ROW_GROUP = 131_072
"""Rows per row group: large enough to compress, small enough to bound the writer's memory."""

PRUNED_BY = frozenset({"cat", "start_ns", "end_ns", "device", "step", "class", "rank", "code"})
"""Columns with minimum and maximum per row group; on the others statistics cost time and prune nothing."""


def file_schema(table: str) -> pa.Schema:
    """The columns of a table as its files hold them: in a partitioned table the folder carries the rank."""
    schema = STORED[table].arrow
    return schema if table in layout.SINGLE else schema.remove(schema.get_field_index("rank"))


class PartWriter:
    """Writes one part, batch by batch, in bounded memory.

    Use as a context manager: the file appears when the block ends well, and not at all when it does not.

    Args:
        place: the store.
        table: name of a table partitioned by rank.
        constants: values of columns that are the same in every row (identity and place); they are dictionary
            coded and cost nothing. `rank` and `source_id` name the part.
    """

    def __init__(
        self, place: Place, table: str, *, source_id: str, rank: int | None, constants: dict[str, Any]
    ) -> None:
        self._schema = file_schema(table)
        self._constants = {k: v for k, v in constants.items() if k in self._schema.names and v is not None}
        self.path = layout.part_path(table, rank, source_id)
        self.rows = 0
        self._pending: list[pa.Table] = []
        self._n_pending = 0
        self._place = place
        self._stack = ExitStack()
        self._place_of = {
            "table": table,
            "rank": rank,
            "source_id": source_id,
            "world": constants.get("world"),
            "window": constants.get("window"),
        }

    def __enter__(self) -> Self:
        stream = self._stack.enter_context(self._place.writing(self.path))
        self._writer = self._stack.enter_context(_parquet_writer(stream, self._schema))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                self._flush()
            except BaseException as failure:
                self._stack.__exit__(type(failure), failure, failure.__traceback__)
                raise
        self._stack.__exit__(kind, error, trace)

    @property
    def part(self) -> Part:
        """What was written."""
        return Part(path=self.path, rows=self.rows, **self._place_of)  # type: ignore[arg-type]

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows: any subset of the table's columns, in any order; absent ones become null.

        Raises:
            pyarrow.ArrowInvalid: a value does not fit its column.
        """
        if rows.num_rows == 0:
            return
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        self._pending.append(self._fitted(table))
        self._n_pending += table.num_rows
        self.rows += table.num_rows
        if self._n_pending >= ROW_GROUP:
            self._flush(keep_rest=True)

    def _fitted(self, table: pa.Table) -> pa.Table:
        arrays = []
        names = set(table.column_names)
        for field in self._schema:
            if field.name in self._constants:
                arrays.append(constant(self._constants[field.name], field.type, table.num_rows))
            elif field.name in names:
                column = table.column(field.name)
                arrays.append(column if column.type == field.type else column.cast(field.type))
            else:
                arrays.append(pa.nulls(table.num_rows, field.type))
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _flush(self, *, keep_rest: bool = False) -> None:
        if not self._n_pending:
            return
        table = pa.concat_tables(self._pending)
        whole = table.num_rows - table.num_rows % ROW_GROUP if keep_rest else table.num_rows
        for offset in range(0, whole, ROW_GROUP):
            self._writer.write_table(compacted(table.slice(offset, min(ROW_GROUP, whole - offset))))
        rest = table.slice(whole)
        self._pending = [rest] if rest.num_rows else []
        self._n_pending = rest.num_rows


def constant(value: Any, kind: pa.DataType, n: int) -> pa.Array:
    """A column of one value; text is one dictionary entry."""
    if pa.types.is_dictionary(kind):
        codes = pa.array(np.zeros(n, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(codes, pa.array([value], kind.value_type))
    return pa.repeat(pa.scalar(value, kind), n)


def compacted(table: pa.Table) -> pa.Table:
    """The rows in one chunk per column, each dictionary reduced to the values in use, in order of first use.

    Arrow writes a dictionary whole into every row group, used or not; and a dictionary that depends only on
    the rows makes the file's bytes depend only on the rows.
    """
    return pa.Table.from_arrays(
        [_compact(column) if pa.types.is_dictionary(column.type) else column for column in table.columns],
        schema=table.schema,
    )


def _compact(column: pa.ChunkedArray) -> pa.Array:
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no rows: combine_chunks gives an empty chunked array
        return pa.array([], column.type)
    if len(whole) == 0 or len(whole.dictionary) <= 1:
        return whole
    # The codes carry no dictionary, so this encodes plain integers: cheap, and in order of first use.
    coded = whole.indices.dictionary_encode()
    values = whole.dictionary.take(coded.dictionary)
    return pa.DictionaryArray.from_arrays(coded.indices.cast(pa.int32()), values)


def _parquet_writer(stream: Any, schema: pa.Schema) -> pq.ParquetWriter:
    text = [f.name for f in schema if pa.types.is_dictionary(f.type)]
    integers = {f.name: "DELTA_BINARY_PACKED" for f in schema if pa.types.is_integer(f.type)}
    return pq.ParquetWriter(
        stream,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=text,
        column_encoding=integers,
        write_statistics=[f.name for f in schema if f.name in PRUNED_BY],
    )


def write_table(
    place: Place, table: str, rows: pa.Table, *, source_id: str, rank: int | None, constants: dict[str, Any]
) -> Part:
    """Write a whole part (see `PartWriter`) and say what was written.

    Raises:
        UnreadableFile: the place cannot be written.
    """
    with PartWriter(place, table, source_id=source_id, rank=rank, constants=constants) as writer:
        writer.write(rows)
    return writer.part


def write_single(place: Place, table: str, rows: pa.Table | Iterable[pa.Table]) -> Part:
    """Write `sources` or `quality`, the tables of the run as a whole, in the order given.

    Args:
        place: the store.
        table: which of the two.
        rows: the whole table, or pieces of it, each of which becomes a row group.

    Raises:
        MissingColumn: the rows lack a column of the table.
    """
    schema: TableSchema = STORED[table]
    path = layout.single_path(table)
    n = 0
    with place.writing(path) as stream, _parquet_writer(stream, schema.arrow) as writer:
        for piece in [rows] if isinstance(rows, pa.Table) else rows:
            missing = [c for c in schema.arrow.names if c not in piece.column_names]
            if missing:
                raise MissingColumn(f"table {table} lacks {', '.join(missing)}")
            writer.write_table(compacted(piece.select(schema.arrow.names).cast(schema.arrow)))
            n += piece.num_rows
    return Part(table=table, world=None, rank=None, window=None, source_id=None, path=path, rows=n)


def write_manifest(place: Place, parts: Iterable[Part], facts: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest; with it the folder becomes a store. Nothing may be written after it."""
    content = manifest(parts, facts)
    place.write(layout.MANIFEST, encode(content))
    return content


def write_receipt(place: Place, source_id: str, receipt: dict[str, Any]) -> None:
    """Say that all parts of a source are written."""
    place.write(layout.receipt_path(source_id), encode(receipt))


def read_receipt(place: Place, source_id: str) -> dict[str, Any] | None:
    """The receipt of a source, None when there is none that can be understood."""
    try:
        content = json.loads(place.read(layout.receipt_path(source_id)))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
