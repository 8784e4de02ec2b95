"""The manifest: the one file that makes a folder of Parquet a store, and the list of what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from . import layout
from .errors import StoreVersion, UsageError
from .place import Place
from .schema import SCHEMA_VERSION, STORED

FORMAT = "rankscope-store"


@dataclass(frozen=True)
class Part:
    """One file of a store.

    Attributes:
        table: name of the stored table.
        world, rank, window: what the file holds; None where the table or source has none.
        source_id: digest that names the source.
        path: relative to the store.
        rows: rows in the file.
    """

    table: str
    world: str | None
    rank: int | None
    window: int | None
    source_id: str | None
    path: str
    rows: int

    @property
    def order(self) -> tuple[str, str, int, int, str]:
        """Key of the one order in which parts are listed and read; unknown comes last."""
        unknown = 1 << 62
        return (
            self.table,
            self.world if self.world is not None else "\U0010ffff",
            self.rank if self.rank is not None else unknown,
            self.window if self.window is not None else unknown,
            self.source_id or "",
        )


def manifest(parts: Iterable[Part], facts: dict[str, Any]) -> dict[str, Any]:
    """The manifest's content: the run's facts and every part, in one fixed order.

    Args:
        parts: the files of the store.
        facts: JSON-able facts of the run (ingester version, options, worlds, devices, versions ...).
    """
    listed = [asdict(p) for p in sorted(parts, key=lambda p: p.order)]
    return {"format": FORMAT, "schema_version": SCHEMA_VERSION, **facts, "parts": listed}


def encode(content: Any) -> bytes:
    """JSON with sorted keys, so that equal content is equal bytes."""
    return (
        json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    ).encode()


def load_manifest(place: Place) -> dict[str, Any]:
    """Read and check the manifest of a store.

    Raises:
        UsageError: the folder does not exist.
        StoreVersion: it is no store, an unfinished one, or one of another schema version.
        UnreadableFile: the manifest cannot be read.
    """
    try:
        raw = place.read(layout.MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        raise _no_manifest(place) from None
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        raise _damaged(place, "manifest.json is not JSON") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StoreVersion("manifest.json is not one of a run store", path=place.root)
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        raise StoreVersion(
            f"the store has schema version {version}, this Rankscope reads {SCHEMA_VERSION}",
            path=place.root,
            hint="ingest the traces again with this version",
        )
    parts_of(content, place)
    return content


def parts_of(content: dict[str, Any], place: Place) -> list[Part]:
    """The parts a manifest names, checked: every path must be the one its table, rank and source give.

    A manifest is input like any other: a path that leads out of the store is refused, not followed.

    Raises:
        StoreVersion: an entry is not well formed.
    """
    listed = content.get("parts")
    if not isinstance(listed, list):
        raise _damaged(place, "manifest.json lists no parts")
    parts = []
    for entry in listed:
        try:
            part = Part(**entry)
            single = part.table in layout.SINGLE
            expected = (
                layout.single_path(part.table)
                if single
                else layout.part_path(part.table, part.rank, part.source_id or "")
            )
        except (TypeError, ValueError):
            raise _damaged(place, "manifest.json has a part that is not well formed") from None
        if part.path != expected or part.table not in STORED or not isinstance(part.rows, int):
            raise _damaged(place, f"manifest.json names a part outside the layout: {str(part.path)[:80]}")
        parts.append(part)
    return sorted(parts, key=lambda p: p.order)


def is_store(place: Place) -> bool:
    """Whether the folder holds a manifest (of any version)."""
    return place.exists(layout.MANIFEST)


def is_unfinished(place: Place) -> bool:
    """Whether the folder holds receipts but no manifest: an ingest that was interrupted."""
    entries = place.entries()
    return layout.RECEIPTS in entries and layout.MANIFEST not in entries


def _no_manifest(place: Place) -> Exception:
    if not place.exists():
        return UsageError("no such file or folder", path=place.root)
    if is_unfinished(place):
        return StoreVersion(
            "the ingest into this folder was interrupted",
            path=place.root,
            hint="run the same `rankscope ingest` again: it resumes where it stopped",
        )
    return StoreVersion("no run store: there is no manifest.json", path=place.root)


def _damaged(place: Place, why: str) -> StoreVersion:
    return StoreVersion(why, path=place.root, hint="ingest the traces again")
