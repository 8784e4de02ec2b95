"""Another look at a run store: the same events under other rules or another step pattern.

Raw traces are simply read again under another cache key. A store's traces may be gone, so its events are
derived anew into a store of its own; the store that was given is never changed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from rankscope.store import layout
from rankscope.store.errors import UsageError
from rankscope.store.manifest import Part
from rankscope.store.place import Place, is_url
from rankscope.store.reader import RunStore
from rankscope.store.schema import EVENTS, SOURCES, Quality, empty
from rankscope.store.writer import PartWriter, write_manifest, write_single

from . import cache as caches
from .derive import DeriveOptions, derive
from .facts import RunFacts
from .finish import USED, issued, quality_table
from .ingest_one import Target, own_facts, write_derived
from .lean import lean
from .options import IngestOptions, ingester_version
from .restate import CONTRADICTED, Identity, contradicted, facts_of, identities

Identities = dict[tuple[str | None, int], Identity]


def rederived(
    store: RunStore, options: IngestOptions, *, out: str | None = None, cache: bool = True
) -> RunStore:
    """The store itself, or one of the same events under these options when they differ from the store's.

    Args:
        store: an open store.
        options: wanted rules, step pattern and facts; what they leave open stays as in the store.
        out: where to write the other store; None: the user's cache.
        cache: with `out` None: False keeps nothing beyond this process.

    Raises:
        UsageError: a fact is wrong, or `out` is not empty.
    """
    wanted = _wanted(store, options)
    if not wanted.is_other and out is None:
        return store
    target = _destination(store, wanted, out=out, cache=cache)
    if not target.exists(layout.MANIFEST):
        _write(_Old(store, store.table("sources").to_pylist()), target, wanted)
    return RunStore(target.root, storage_options=options.storage_options)


@dataclass(frozen=True)
class _Wanted:
    """What the other store is made with: the options in full, and the facts they come to."""

    options: IngestOptions
    facts: RunFacts
    is_other: bool


def _wanted(store: RunStore, options: IngestOptions) -> _Wanted:
    """The options, completed by the store's where they say nothing."""
    stated = store.manifest.get("options") or {}
    full = replace(
        options,
        rules=options.rules or tuple(stated.get("rules") or ()),
        step_regex=options.step_regex if options.step_regex is not None else stated.get("step_regex"),
        sets=options.sets or tuple(stated.get("sets") or ()),
    )
    facts, before = facts_of(store.manifest, options.sets), facts_of(store.manifest, ())
    is_other = facts != before or any(stated.get(k) != v for k, v in full.derivation().items())
    return _Wanted(full, facts, is_other)


def _write(old: _Old, target: Place, wanted: _Wanted) -> None:
    """Derive every rank and window again and write the other store, the manifest last."""
    store = old.store
    identity = identities(store, wanted.facts)
    made = [_derived_again(old, target, part, wanted.options, identity) for part in store.parts("events")]
    derived = [row for one in made for row in one.quality]
    facts = {k: v for k, v in store.manifest.items() if k not in ("format", "schema_version", "parts")}
    dropped = {CONTRADICTED, *(facts.get("derived_codes") or ())}
    kept = [Quality(**q) for q in store.table("quality").to_pylist() if q["code"] not in dropped]
    hosts = {(r["world"], r["rank"]): r["host"] for r in old.rows if r["rank"] is not None}
    quality = [*kept, *derived, *contradicted(store, wanted.facts, hosts)]
    facts |= {
        "options": wanted.options.content(),
        "facts": wanted.facts.stated(),
        "ingester_version": ingester_version(),
        "derived_codes": sorted({q.code for q in derived}),
        "issued_comm": [issued(m.part.world, m.part.window, m.own) for m in made if m.own["n_issued_comm"]],
    }
    parts = [p for one in made for p in one.parts]
    parts.append(write_single(target, "sources", _sources(old, made, identity)))
    parts.append(write_single(target, "quality", quality_table(quality)))
    write_manifest(target, parts, facts)


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


def _destination(store: RunStore, wanted: _Wanted, *, out: str | None, cache: bool) -> Place:
    if out is not None:
        place = Place(out, wanted.options.storage_options)
        if place.entries():
            raise UsageError(
                "the folder is not empty", path=out, hint="give a new folder for the other store"
            )
        return place
    where = store.path if is_url(store.path) else os.path.realpath(store.path)
    key = caches.cache_key([[where, store.manifest]], wanted.options.content(), ingester_version())
    folder = caches.entry(key) if cache and not store.path.startswith("memory://") else None
    return Place(folder if folder is not None else caches.temporary_store())


def _derived_again(
    old: _Old, target: Place, part: Part, options: IngestOptions, identity: Identities
) -> _Made:
    """Derive one rank and window again, and write its events under its identity."""
    store, source_id = old.store, part.source_id or ""
    events = _lean_events(store, part)
    row = old.of_place.get((part.world, part.rank, part.window), {})
    wanted = DeriveOptions(rules=options.rules, step_regex=options.step_regex)
    derived = derive(events, _header(row), wanted)
    own = {} if part.rank is None else identity.get((part.world, part.rank), {})
    place_of = Target(part.rank, own | {"world": part.world, "window": part.window})
    parts = [*write_derived(target, derived, place_of, source_id), _events_again(store, target, part, own)]
    quality = [replace(q, rank=part.rank, path=row.get("path")) for q in derived.quality]
    return _Made(part, own_facts(derived, part.rank), quality, parts)


def _place(part: Part) -> dict[str, Any]:
    """Arguments that read this part only; the rank null of no rank is a rank like any other here."""
    return {"ranks": [part.rank], "worlds": [part.world], "windows": [part.window]}


def _lean_events(store: RunStore, part: Part) -> pa.Table:
    """What `derive` reads of a part, row group by row group."""
    kept = [lean(piece) for piece in store.pieces("events", **_place(part))]
    return pa.concat_tables(kept).unify_dictionaries() if kept else empty(EVENTS)


def _events_again(store: RunStore, target: Place, part: Part, identity: Identity) -> Part:
    """The events of a part, with the rank's identity as it is now."""
    constants = identity | {"world": part.world, "window": part.window}
    with PartWriter(
        target, "events", source_id=part.source_id or "", rank=part.rank, constants=constants
    ) as writer:
        for piece in store.pieces("events", **_place(part)):
            writer.write(piece)
    return writer.part


def _header(row: dict[str, Any]) -> dict[str, Any]:
    """The trace's header, from its row in `sources`."""
    try:
        header = json.loads(row.get("metadata") or "{}")
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _sources(old: _Old, made: list[_Made], identity: Identities) -> pa.Table:
    """The sources with what was counted anew, and their hosts."""
    own = {(m.part.world, m.part.rank, m.part.window): m.own for m in made}
    rows = []
    for row in old.rows:
        found = own.get((row["world"], row["rank"], row["window"])) if row["status"] in USED else None
        host = identity.get((row["world"], row["rank"]), row)["host"]
        counted = {k: found[k] for k in ("n_activities", "pre_ns")} if found else {}
        rows.append(row | counted | {"host": host})
    return pa.Table.from_pylist(rows, schema=SOURCES.arrow)
