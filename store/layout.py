"""Where everything lies in a run store: names only, no input or output.

A store is a folder: `<table>/rank=N/<source id>.parquet` for the tables that are partitioned by rank,
`sources.parquet` and `quality.parquet` for the run as a whole, `_receipts/<source id>.json` while and after
it is built, and `manifest.json`, written last. The names depend on nothing but the run's relative paths, so
the same run gives the same names on every machine.
"""

from __future__ import annotations

import re

from .schema import STORED

MANIFEST = "manifest.json"
RECEIPTS = "_receipts"
"""Folders that begin with an underscore are skipped by every Parquet reader that walks a folder."""

SINGLE = ("quality", "sources")
"""Tables of the run as a whole: one file each at the top."""

PARTITIONED = tuple(name for name in STORED if name not in SINGLE)
"""Tables with one file per rank and source."""

RUN_RECEIPT = f"{RECEIPTS}/run.json"
"""Says from which sources and options the store was made, so that an unchanged run is not made again."""

NO_RANK = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for the partition of a null key: events of a front end, which is no rank."""

_SOURCE_ID = re.compile(r"[0-9a-f]{12,64}")
"""A digest of the source's path relative to the run: the same on every machine, and unable to leave the store."""


def is_source_id(text: object) -> bool:
    """Whether the text has the form of a source id (and can therefore not lead out of the store)."""
    return isinstance(text, str) and bool(_SOURCE_ID.fullmatch(text))


def part_path(table: str, rank: int | None, source: str) -> str:
    """Path of one part relative to the store, for example `activities/rank=3/0f…c2.parquet`.

    Raises:
        ValueError: the table is not partitioned by rank, or the source id is not one.
    """
    if table not in PARTITIONED:
        raise ValueError(f"{table!r} is not partitioned by rank")
    if not is_source_id(source):
        raise ValueError(f"{source!r} is no source id")
    return f"{table}/rank={NO_RANK if rank is None else int(rank)}/{source}.parquet"


def single_path(table: str) -> str:
    """Path of a table of the run as a whole, relative to the store.

    Raises:
        ValueError: the table is partitioned by rank.
    """
    if table not in SINGLE:
        raise ValueError(f"{table!r} is partitioned by rank")
    return f"{table}.parquet"


def receipt_path(source: str) -> str:
    """Path of a source's receipt, relative to the store."""
    if not is_source_id(source):
        raise ValueError(f"{source!r} is no source id")
    return f"{RECEIPTS}/{source}.json"


def own_entries() -> frozenset[str]:
    """Names that may stand at the top of a store; anything else there is somebody else's."""
    return frozenset({MANIFEST, RECEIPTS, *PARTITIONED, *(single_path(t) for t in SINGLE)})
