"""Rows of stored tables from plain lists, and small stores."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rankscope.store import layout
from rankscope.store.manifest import Part
from rankscope.store.place import Place
from rankscope.store.schema import STORED
from rankscope.store.writer import write_manifest, write_single, write_table

SOURCE_ID = "0123456789ab"
"""The id of a source of a small store; ranks have folders of their own, so it may be the same in all."""


def rows(table: str, **columns: list[Any]) -> pa.Table:
    """Rows of a stored table from plain lists, each column in its stored type."""
    schema = STORED[table].arrow
    return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})


def events(n: int, *, start: int = 0, cat: str = "cpu_op") -> pa.Table:
    """`n` events, one nanosecond apart, with names from a small set."""
    names = [f"op{i % 3}" for i in range(n)]
    return rows(
        "events",
        cat=[cat] * n, name=names, ph=["X"] * n, start_ns=list(range(start, start + n)), dur_ns=[5] * n,
        valid=[True] * n,
    )  # fmt: skip


def small_store(root: str, *, ranks: int = 2, n: int = 4, facts: dict[str, Any] | None = None) -> Place:
    """A valid store of `ranks` ranks in world "0" with `n` events each; the other tables are empty."""
    place = Place(root)
    parts: list[Part] = []
    for rank in range(ranks):
        source = SOURCE_ID
        constants = {"host": f"node{rank // 8}", "world": "0", "window": 0}
        for table in layout.PARTITIONED:
            content = events(n, start=1000 * rank) if table == "events" else STORED[table].arrow.empty_table()
            parts.append(write_table(place, table, content, source_id=source, rank=rank, constants=constants))
    for table in layout.SINGLE:
        parts.append(write_single(place, table, STORED[table].arrow.empty_table()))
    write_manifest(place, parts, facts or {"default_world": "0"})
    return place
