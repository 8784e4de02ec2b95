"""The end of an ingest: receipts of all sources become `sources`, `quality` and the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from rankscope.store.errors import EmptyRun, RankConflict, TraceError, UnknownFormat
from rankscope.store.manifest import Part
from rankscope.store.place import Place
from rankscope.store.schema import QUALITY, SOURCES, Quality
from rankscope.store.writer import write_manifest, write_single

from .header_facts import encodable
from .options import IngestOptions, ingester_version
from .planned import Plan, PlannedSource
from .verify import verify_windows

USED = ("whole", "truncated")
"""States of a source whose events are in the store."""

_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_SOURCES_PER_PIECE = 64
"""Headers of large runs take a megabyte each: the table is written in pieces."""

Receipt = dict[str, Any]
Used = Sequence[tuple[PlannedSource, Receipt]]


def finish(place: Place, plan: Plan, receipts: dict[str, Receipt], options: IngestOptions) -> dict[str, Any]:
    """Write what belongs to the run as a whole; the manifest last. Gives the manifest.

    Args:
        place: the store.
        plan: what was decided about the run.
        receipts: of every source that was to be read, by source id.
        options: how the run was read.

    Raises:
        EmptyRun, UnreadableFile, UnknownFormat, DamagedFile: no source holds anything to analyse.
    """
    final = _verified(plan, receipts)
    used = [(s, receipts[s.source_id]) for s in final.to_read()]
    if not used:
        raise _nothing(final.sources, receipts)
    kept = {s.source_id for s, _ in used}
    found = [
        Quality(**q)
        for s in final.sources
        if s.source_id in receipts and (s.source_id in kept or receipts[s.source_id]["status"] not in USED)
        for q in receipts[s.source_id]["quality"]
    ]
    parts = [Part(**p) for _, r in used for p in r["parts"]]
    parts.append(write_single(place, "sources", _sources(final.sources, receipts)))
    parts.append(write_single(place, "quality", quality_table([*final.quality, *found])))
    return write_manifest(place, parts, _facts(final, used, options))


def _verified(plan: Plan, receipts: dict[str, Receipt]) -> Plan:
    """The plan with what reading the files taught: which cannot be used, and their exact times."""
    sources = []
    for source in plan.sources:
        receipt = receipts.get(source.source_id)
        if receipt is not None and receipt["status"] not in USED:
            source = replace(source, status=receipt["status"], reason=receipt["reason"])
        elif receipt is not None and len(receipt["ranks"]) > 1:
            ranks = tuple(own["rank"] for own in receipt["ranks"] if own["rank"] is not None)
            source = replace(source, rank=None, ranks=ranks)
        sources.append(source)
    read = {i: r for i, r in receipts.items() if r["status"] in USED}
    ranges = {i: None if r["start_ns"] is None else (r["start_ns"], r["end_ns"]) for i, r in read.items()}
    steps = {i: r["step_source"] for i, r in read.items() if r["step_source"] is not None}
    return verify_windows(replace(plan, sources=tuple(sources)), ranges, step_sources=steps)


def _nothing(sources: Sequence[PlannedSource], receipts: dict[str, Receipt]) -> TraceError:
    """One error for a run of which nothing can be used, naming up to three files and why."""
    if len(sources) == 1:
        (only,) = sources
        error = (receipts.get(only.source_id) or {}).get("error") or {}
        kind = _KINDS.get(error.get("type", ""), _KIND_OF_STATUS.get(only.status, EmptyRun))
        message = error.get("message") or only.reason or "holds no event"
        return kind(message, path=only.label, hint=error.get("hint"), offset=error.get("offset"))
    named = [f"{s.label}: {s.reason or 'holds no event'}" for s in sources]
    more = f"; and {len(named) - 3} more" if len(named) > 3 else ""
    is_doubled = any(s.status == "refused" and s.source_id not in receipts for s in sources)
    kind = RankConflict if is_doubled else EmptyRun
    return kind(f"none of the {len(named)} files can be used", hint=f"{'; '.join(named[:3])}{more}")


_KIND_OF_STATUS: dict[str, type[TraceError]] = {"skipped": UnknownFormat, "refused": RankConflict}
_KINDS: dict[str, type[TraceError]] = {
    kind.__name__: kind for kind in TraceError.__subclasses__() if kind.exit_code == TraceError.exit_code
}


def quality_table(found: Iterable[Quality]) -> pa.Table:
    """The quality table: worst first, then by code, rank and file; the same whatever the order of `found`."""

    def key(q: Quality) -> tuple[Any, ...]:
        severity = _SEVERITY.get(q.severity, 3)
        return severity, q.code, q.rank is None, q.rank or 0, q.path or "", q.example, q.count, q.effect

    rows = [
        asdict(q) | {"example": encodable(q.example), "path": q.path and encodable(q.path)}
        for q in sorted(found, key=key)
    ]
    return pa.Table.from_pylist(rows, schema=QUALITY.arrow)


def _sources(sources: Sequence[PlannedSource], receipts: dict[str, Receipt]) -> Iterator[pa.Table]:
    rows: list[dict[str, Any]] = []
    for source in sources:
        rows += _source_rows(source, receipts.get(source.source_id))
        if len(rows) >= _SOURCES_PER_PIECE:
            yield pa.Table.from_pylist(rows, schema=SOURCES.arrow)
            rows = []
    if rows:
        yield pa.Table.from_pylist(rows, schema=SOURCES.arrow)


def _source_rows(source: PlannedSource, receipt: Receipt | None) -> list[dict[str, Any]]:
    """One row per source; one per rank of a file that fuses several."""
    common: dict[str, Any] = dict.fromkeys(SOURCES.arrow.names)
    planned = (
        "kind",
        "rank",
        "rank_source",
        "world",
        "window",
        "host",
        "world_size",
        "backend",
        "status",
        "reason",
    )
    common |= {name: getattr(source, name) for name in planned}
    common |= {"path": encodable(source.label), "bytes": source.size}
    if receipt is None:
        return [common]
    common |= {
        name: receipt[name] for name in ("n_events", "base_ns", "start_ns", "end_ns", "scanner", "metadata")
    }
    if source.is_read:
        common |= {"status": receipt["status"], "reason": receipt["reason"]}
    return [common | {k: own[k] for k in _PER_RANK} for own in receipt["ranks"]] or [common]


_PER_RANK = ("rank", "n_events", "n_activities", "start_ns", "end_ns", "pre_ns")


def _facts(plan: Plan, used: Used, options: IngestOptions) -> dict[str, Any]:
    """The run's facts for the manifest: no clock, no absolute path, nothing that depends on the machine."""
    worlds = [asdict(w) for w in plan.worlds]
    versions: dict[str, set[str]] = {}
    devices: set[str] = set()
    for _, receipt in used:
        devices.update(receipt["devices"])
        for name, value in receipt["versions"].items():
            versions.setdefault(name, set()).add(value)
    return {
        "ingester_version": ingester_version(),
        "options": options.content(),
        "facts": plan.facts.stated(),
        "worlds": worlds,
        "default_world": plan.default_world,
        "devices": sorted(devices),
        "versions": {name: sorted(values) for name, values in versions.items()},
        "derived_codes": sorted({code for _, r in used for code in r["derived_codes"]}),
        "issued_comm": [
            issued(source.world, source.window, own)
            for source, r in used
            for own in r["ranks"]
            if own["n_issued_comm"]
        ],
    }


def issued(world: str | None, window: int | None, own: dict[str, Any]) -> dict[str, Any]:
    """A rank and window in which communication was issued: how often, and whether any was recorded."""
    counted = {"n_issued": own["n_issued_comm"], "is_recorded": own["is_comm_recorded"]}
    return {"world": world, "rank": own["rank"], "window": window, **counted}
