"""Reading a run store: only the files its manifest names, only the columns and rows asked for."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import layout
from .errors import MissingColumn, StoreVersion, UsageError
from .manifest import Part, load_manifest, parts_of
from .place import Place
from .schema import STORED

_REMOTE_READS = 16
"""Files of a remote store read at once: the time goes into waiting."""


class RunStore:
    """An open, valid run store.

    Args:
        path: folder, local or an fsspec URL.
        storage_options: passed to fsspec.

    Raises:
        UsageError: no such folder.
        StoreVersion: no store, an unfinished one, or one of another schema version.
        UnreadableFile: it cannot be read.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
    ) -> None:
        self.path = os.fspath(path)
        self.storage_options = storage_options
        self.place = Place(self.path, storage_options)
        self.manifest: dict[str, Any] = load_manifest(self.place)
        self._parts: dict[str, list[Part]] = {}
        for part in parts_of(self.manifest, self.place):
            self._parts.setdefault(part.table, []).append(part)

    def __repr__(self) -> str:
        return f"RunStore({self.path!r}: {len(self.ranks())} ranks)"

    def parts(self, name: str) -> list[Part]:
        """The files of a table, ordered by world, rank, window.

        Raises:
            UsageError: there is no such table.
        """
        if name not in STORED:
            raise UsageError(f"no table {name!r}", hint=f"tables: {', '.join(sorted(STORED))}")
        return list(self._parts.get(name, ()))

    def is_complete(self) -> bool:
        """Whether every file the manifest names is there (one look at each; meant for local stores)."""
        return all(self.place.exists(p.path) for parts in self._parts.values() for p in parts)

    def ranks(self, world: str | None = None) -> list[int]:
        """Ranks that have data (in one world, or in any), ascending."""
        found = self._placed if world is None else [p for p in self._placed if p.world == world]
        return sorted({p.rank for p in found if p.rank is not None})

    def worlds(self) -> list[str]:
        """Worlds that have data, in order of name."""
        return sorted({p.world for p in self._placed if p.world is not None and p.rank is not None})

    def windows(self) -> list[int]:
        """Windows that have data, ascending."""
        return sorted({p.window for p in self._placed if p.window is not None and p.rank is not None})

    @property
    def default_world(self) -> str | None:
        """The only world, or the one with the most ranks; None in a store without ranks."""
        named = self.manifest.get("default_world")
        return named if isinstance(named, str) else None

    @cached_property
    def _placed(self) -> list[Part]:
        return [p for name in layout.PARTITIONED for p in self._parts.get(name, ())]

    def table(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        ranks: Collection[int | None] | None = None,
        worlds: Collection[str | None] | None = None,
        windows: Collection[int | None] | None = None,
        cats: Collection[str] | None = None,
    ) -> pa.Table:
        """A stored table, or the part of it asked for.

        Files of other ranks, worlds and windows are not opened; columns not asked for are not read. The
        dictionaries of text columns are the same over the whole result, so it can be grouped by them.

        Args:
            name: a stored table.
            columns: wanted columns in the wanted order; all when None. `rank` is added from the folder.
            ranks: wanted ranks; all when None.
            worlds: wanted worlds; all when None.
            windows: wanted windows; all when None.
            cats: wanted event categories (tables with a column `cat`).

        Returns:
            Rows by world, rank, window and then as stored.

        Raises:
            UsageError: no such table.
            MissingColumn: no such column.
            StoreVersion: a file the manifest names is missing or damaged.
        """
        schema = _schema(name, columns)
        parts = self._selected(name, ranks, worlds, windows)
        tables = list(self._read_all(parts, schema, cats))
        return pa.concat_tables(tables).unify_dictionaries() if tables else schema.empty_table()

    def pieces(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        ranks: Collection[int | None] | None = None,
        worlds: Collection[str | None] | None = None,
        windows: Collection[int | None] | None = None,
        cats: Collection[str] | None = None,
    ) -> Iterator[pa.Table]:
        """The rows of `table`, one row group after the other: for what is too large to hold at once.

        Dictionaries differ from piece to piece. Arguments, order and errors are those of `table`.
        """
        schema = _schema(name, columns)
        for part in self._selected(name, ranks, worlds, windows):
            yield from self._read(part, schema, cats)

    def _selected(
        self,
        name: str,
        ranks: Collection[int | None] | None,
        worlds: Collection[str | None] | None,
        windows: Collection[int | None] | None,
    ) -> list[Part]:
        if name in layout.SINGLE:
            return self.parts(name)
        if ranks is None:
            parts = self._parts.get(name, [])
        else:
            of_rank = self._of_rank.get(name, {})
            found = [p for rank in dict.fromkeys(ranks) for p in of_rank.get(rank, ())]
            parts = sorted(found, key=lambda p: p.order)
        return [
            p
            for p in parts
            if p.rows and (worlds is None or p.world in worlds) and (windows is None or p.window in windows)
        ]

    @cached_property
    def _of_rank(self) -> dict[str, dict[int | None, list[Part]]]:
        """Parts by table and rank: with a thousand ranks, looking through all for each one adds up."""
        found: dict[str, dict[int | None, list[Part]]] = {}
        for name, parts in self._parts.items():
            for part in parts:
                found.setdefault(name, {}).setdefault(part.rank, []).append(part)
        return found

    def _read_all(
        self, parts: list[Part], schema: pa.Schema, cats: Collection[str] | None
    ) -> Iterator[pa.Table]:
        def read(part: Part) -> list[pa.Table]:
            return list(self._read(part, schema, cats))

        if self.place.is_local or len(parts) < 2:
            yield from (piece for part in parts for piece in read(part))
            return
        with ThreadPoolExecutor(_REMOTE_READS) as pool:
            yield from (piece for pieces in pool.map(read, parts) for piece in pieces)

    def _read(self, part: Part, schema: pa.Schema, cats: Collection[str] | None) -> Iterator[pa.Table]:
        """The wanted rows of one file, row group by row group."""
        try:
            with self.place.reading(part.path) as stream:
                file = pq.ParquetFile(stream)
                if file.metadata.num_rows != part.rows:
                    raise self._damaged(part, f"it has {file.metadata.num_rows} rows, not {part.rows}")
                for piece in _row_groups(file, schema, part, cats):
                    yield _with_rank(piece, schema, part)
        except FileNotFoundError:
            raise self._damaged(part, "it is not there") from None
        except pa.ArrowException as error:
            raise self._damaged(part, str(error).splitlines()[0][:120]) from error

    def _damaged(self, part: Part, why: str) -> StoreVersion:
        return StoreVersion(
            f"the store is not complete: the manifest names {part.path}, but {why}",
            path=self.path,
            hint="ingest the traces again",
        )


@cache
def _arrow(name: str) -> pa.Schema:
    return STORED[name].arrow


def _schema(name: str, columns: Sequence[str] | None) -> pa.Schema:
    """The wanted columns of a stored table.

    Raises:
        UsageError: no such table. MissingColumn: no such column.
    """
    if name not in STORED:
        raise UsageError(f"no table {name!r}", hint=f"tables: {', '.join(sorted(STORED))}")
    whole = _arrow(name)
    if columns is None:
        return whole
    wanted = list(dict.fromkeys(columns))
    unknown = [c for c in wanted if c not in whole.names]
    if unknown:
        raise MissingColumn(f"table {name} has no column {', '.join(unknown)}")
    return pa.schema([whole.field(c) for c in wanted])


def _row_groups(
    file: pq.ParquetFile, schema: pa.Schema, part: Part, cats: Collection[str] | None
) -> Iterator[pa.Table]:
    """The wanted columns and categories of one file, a row group at a time."""
    stored = [n for n in schema.names if n != "rank" or part.table in layout.SINGLE]
    read = [*stored, *(["cat"] if cats is not None and "cat" not in stored else [])]
    wanted = None if cats is None else pa.array(sorted(cats), pa.string())
    for i in range(file.metadata.num_row_groups):
        group = file.read_row_group(i, columns=read)
        if wanted is not None:
            group = group.filter(_is_one_of(group.column("cat"), wanted)).select(stored)
        if group.num_rows:
            yield group


def _is_one_of(column: pa.ChunkedArray, wanted: pa.Array) -> pa.ChunkedArray:
    """Whether each value is wanted; on a dictionary column only the dictionary's values are compared."""
    if not pa.types.is_dictionary(column.type):
        return pc.is_in(column, value_set=wanted)
    chunks = [pc.is_in(c.dictionary, value_set=wanted).take(c.indices) for c in column.chunks]
    # A null category gives a null here, which `filter` drops.
    return pa.chunked_array(chunks, pa.bool_())


def _with_rank(table: pa.Table, schema: pa.Schema, part: Part) -> pa.Table:
    """The file's columns in the asked order and types, with the folder's rank as a column."""
    n = table.num_rows
    arrays = []
    for field in schema:
        if field.name == "rank" and part.table not in layout.SINGLE:
            arrays.append(pa.repeat(pa.scalar(part.rank, pa.int64()), n))
        else:
            column = table.column(field.name)
            arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)
