"""Another look at a run store: the same events under other rules or another step pattern.

Raw traces are simply read again under another cache key. A store's traces may be gone, so its events are
derived anew into a store of its own; the store that was given is never changed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from rankscope.store import layout
from rankscope.store.errors import UsageError
from rankscope.store.manifest import Part
from rankscope.store.place import Place, is_url
from rankscope.store.reader import RunStore
from rankscope.store.schema import SOURCES, Quality
from rankscope.store.writer import write_manifest, write_single

from . import cache as caches
from .derive import DeriveOptions, derive
from .finish import USED, quality_table
from .ingest_one import Target, own_facts, without_python, write_derived
from .options import IngestOptions, ingester_version


def rederived(
    store: RunStore, options: IngestOptions, *, out: str | None = None, cache: bool = True
) -> RunStore:
    """The store itself, or one of the same events under these options when they differ from the store's.

    Args:
        store: an open store.
        options: wanted rules and step pattern.
        out: where to write the other store; None: the user's cache.
        cache: with `out` None: False keeps nothing beyond this process.
    """
    if not is_other(store, options) and out is None:
        return store
    target = _destination(store, options, out=out, cache=cache)
    if target.exists(layout.MANIFEST):
        return RunStore(target.root, storage_options=options.storage_options)
    facts = {k: v for k, v in store.manifest.items() if k not in ("format", "schema_version", "parts")}
    stated = dict(facts.get("options") or {})
    facts |= {"options": stated | options.derivation(), "ingester_version": ingester_version()}
    old = _Old(store, store.table("sources").to_pylist())
    made = [_derived_again(old, target, part, options) for part in store.parts("events")]
    quality = [row for one in made for row in one.quality]
    parts = [p for one in made for p in one.parts]
    parts.append(write_single(target, "sources", _sources(old, made)))
    kept = _kept_quality(store, facts.get("derived_codes") or ())
    parts.append(write_single(target, "quality", quality_table([*kept, *quality])))
    facts["derived_codes"] = sorted({q.code for q in quality})
    facts["unrecorded_comm"] = [row for one in made for row in one.unrecorded]
    write_manifest(target, parts, facts)
    return RunStore(target.root, storage_options=options.storage_options)


def is_other(store: RunStore, options: IngestOptions) -> bool:
    """Whether the wanted derivation differs from the store's; options that say nothing want nothing else."""
    wanted = options.derivation()
    if wanted == IngestOptions().derivation():
        return False
    stated = store.manifest.get("options") or {}
    return any(stated.get(name) != value for name, value in wanted.items())


@dataclass(frozen=True)
class _Old:
    """The store that is derived again, with its sources."""

    store: RunStore
    rows: list[dict[str, Any]]

    @cached_property
    def of_place(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The source that was read for each world, rank and window."""
        read = [r for r in self.rows if r["status"] in USED]
        return {(r["world"], r["rank"], r["window"]): r for r in read}


@dataclass(frozen=True)
class _Made:
    """One rank and window, derived again."""

    part: Part
    own: dict[str, Any]
    quality: list[Quality]
    parts: list[Part]

    @property
    def unrecorded(self) -> list[dict[str, Any]]:
        place = {"world": self.part.world, "rank": self.part.rank, "window": self.part.window}
        return [] if self.own["is_comm_recorded"] else [place | {"n_issued": self.own["n_issued_comm"]}]


def _destination(store: RunStore, options: IngestOptions, *, out: str | None, cache: bool) -> Place:
    if out is not None:
        place = Place(out, options.storage_options)
        if place.entries():
            raise UsageError(
                "the folder is not empty", path=out, hint="give a new folder for the other store"
            )
        return place
    where = store.path if is_url(store.path) else os.path.realpath(store.path)
    key = caches.cache_key([[where, store.manifest]], options.derivation(), ingester_version())
    folder = caches.entry(key) if cache and not store.path.startswith("memory://") else None
    return Place(folder if folder is not None else caches.temporary_store())


def _derived_again(old: _Old, target: Place, part: Part, options: IngestOptions) -> _Made:
    """Derive one rank and window again, and copy its events."""
    store, source_id = old.store, part.source_id or ""
    events = without_python(_events(store, part))
    row = old.of_place.get((part.world, part.rank, part.window), {})
    wanted = DeriveOptions(rules=options.rules, step_regex=options.step_regex)
    derived = derive(events, _header(row), wanted)
    place_of = Target(part.rank, None, _constants(store, part))
    parts = [*write_derived(target, derived, place_of, source_id), _copied(store, target, part)]
    quality = [replace(q, rank=part.rank, path=row.get("path")) for q in derived.quality]
    return _Made(part, own_facts(derived, part.rank), quality, parts)


def _events(store: RunStore, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
    """The events of one part; the rank null of no rank is a rank like any other here."""
    ranks, worlds, windows = [part.rank], [part.world], [part.window]
    return store.table("events", columns=columns, ranks=ranks, worlds=worlds, windows=windows)


def _constants(store: RunStore, part: Part) -> dict[str, Any]:
    """Identity and place of a part: the same in every row of its events."""
    names = ["host", "local_rank", "coords", "world", "window"]
    rows = _events(store, part, names).slice(0, 1).to_pylist()
    return rows[0] if rows else {"world": part.world, "window": part.window}


def _header(row: dict[str, Any]) -> dict[str, Any]:
    """The trace's header, from its row in `sources`."""
    try:
        header = json.loads(row.get("metadata") or "{}")
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _copied(store: RunStore, target: Place, part: Part) -> Part:
    with store.place.reading(part.path) as old, target.writing(part.path) as new:
        shutil.copyfileobj(old, new, 4 << 20)
    return part


def _sources(old: _Old, made: list[_Made]) -> pa.Table:
    """The sources with what was counted anew."""
    own = {(m.part.world, m.part.rank, m.part.window): m.own for m in made}
    rows = []
    for row in old.rows:
        found = own.get((row["world"], row["rank"], row["window"])) if row["status"] in USED else None
        rows.append(row | {k: found[k] for k in ("n_activities", "pre_ns")} if found else row)
    return pa.Table.from_pylist(rows, schema=SOURCES.arrow)


def _kept_quality(store: RunStore, derived: Collection[str]) -> list[Quality]:
    """Rows that do not come from deriving."""
    return [Quality(**row) for row in store.table("quality").to_pylist() if row["code"] not in derived]
