"""One source into the store: read it, derive its tables, write its parts and a receipt.

The function is pure (the receipt depends on its arguments and the file), picklable, and never raises for a
source's own fault: a hopeless file becomes a receipt that says so, and the other files go on.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rankscope.store.errors import DamagedFile, EmptyRun, TraceError, UnknownFormat, UnreadableFile
from rankscope.store.manifest import Part
from rankscope.store.place import Place, Unwritable
from rankscope.store.schema import Quality, Severity
from rankscope.store.writer import PartWriter, write_receipt, write_table

from .derive import Derived, DeriveOptions, derive
from .header_facts import encodable, gpus, metadata_json, only_gpu, versions
from .lean import NOT_DERIVED_FROM, lean, with_shared_nulls
from .options import IngestOptions, digest_of, ingester_version
from .planned import PlannedSource
from .torch_profiler import COLUMNS, TraceFile, read_trace

DERIVED = ("activities", "host_activities", "launches", "steps")
"""Tables that `derive` makes of the events."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Faults of this machine, not of the file: they stop the run."""

_REFUSALS: tuple[tuple[type[TraceError], str, str, str], ...] = (
    (UnknownFormat, "not_a_trace", "skipped", Severity.WARNING),
    (EmptyRun, "file_empty", "empty", Severity.WARNING),
    (UnreadableFile, "file_unreadable", "refused", Severity.ERROR),
    (DamagedFile, "file_damaged", "refused", Severity.ERROR),
    (TraceError, "file_refused", "refused", Severity.ERROR),
)
"""Kind of error, quality code, status of the source, severity; the first that fits."""


@dataclass(frozen=True)
class Target:
    """Where one rank's share of a file goes.

    Attributes:
        rank: the rank; None for a front end, or for processes of a fused file that belong to no rank.
        constants: identity and place, the same in every row.
        pids: processes of that rank in a fused file; None when the whole file is its.
        is_rest: `pids` are those of the other ranks, and every other event is this rank's.
    """

    rank: int | None
    constants: dict[str, Any]
    pids: frozenset[str] | None = None
    is_rest: bool = False

    def share(self, rows: Any) -> Any:
        """The rank's rows of a batch or table of events."""
        if self.pids is None:
            return rows
        wanted = pa.array(sorted(self.pids), pa.string())
        named = pc.fill_null(pc.is_in(rows.column("pid").cast(pa.string()), value_set=wanted), False)
        return rows.filter(pc.invert(named) if self.is_rest else named)


def ingest_one(source: PlannedSource, destination: str, options: IngestOptions) -> dict[str, Any]:
    """Read one source and write its parts of the store; gives its receipt.

    Args:
        source: what the plan decided about the file.
        destination: folder or URL of the store.
        options: how to read it.

    Returns:
        The receipt, as written to `_receipts/`: `key` (what it is valid for), `status` (`whole`, `truncated`,
        `empty`, `skipped`, `refused`), the file's facts, what each rank got, quality rows and parts.

    Raises:
        Unwritable: the destination, or the disk for temporary files, cannot be written; no fault of the file.
    """
    place = Place(destination, options.storage_options)
    try:
        receipt = _ingested(source, place, options)
    except Unwritable:
        raise
    except TraceError as error:
        receipt = refused(source, options, error)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise Unwritable(
                f"no room for temporary files: {error.strerror}", path=tempfile.gettempdir()
            ) from error
        receipt = refused(source, options, _as_trace_error(source, error))
    except Exception as error:  # noqa: BLE001 - the boundary of one file: it must not stop the others
        receipt = refused(source, options, _as_trace_error(source, error))
    write_receipt(place, receipt["source_id"], receipt)
    pa.default_memory_pool().release_unused()  # the process may live on for the next file
    return receipt


def receipt_key(source: PlannedSource, options: IngestOptions) -> str:
    """Digest of everything that decides the parts: the file's identity, its place in the run, how it is read."""
    return digest_of([asdict(source), options.derivation(), ingester_version()])


def lost(source: PlannedSource, options: IngestOptions) -> dict[str, Any]:
    """The receipt of a source whose worker process died: killed for its memory, most likely."""
    error = UnreadableFile("the process reading it was killed (out of memory?)", path=source.label)
    return refused(source, options, error)


def refused(source: PlannedSource, options: IngestOptions, error: TraceError) -> dict[str, Any]:
    """The receipt of a source of which nothing is used, with the quality row that says so."""
    code, status, severity = next(row[1:] for row in _REFUSALS if isinstance(error, row[0]))
    label = encodable(source.label)
    where = f" at byte {error.offset}" if error.offset is not None else ""
    effect = "the file is left out of every number"
    quality = Quality(code, severity, source.rank, 1, f"{error.message}{where}", effect, label)
    failure = {
        "type": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "offset": error.offset,
    }
    return {
        **_header(source, options),
        "status": status,
        "reason": f"{error.message}{where}",
        "error": failure,
        "quality": [asdict(quality)],
    }


def _as_trace_error(source: PlannedSource, error: BaseException) -> TraceError:
    what = " ".join(str(error).split())[:200]
    if isinstance(error, OSError):
        return UnreadableFile(f"cannot be read: {error.strerror or what}", path=source.label)
    if isinstance(error, MemoryError):
        return UnreadableFile("not enough memory to read it", path=source.label)
    return DamagedFile(f"cannot be read ({type(error).__name__}: {what})", path=source.label)


def _header(source: PlannedSource, options: IngestOptions) -> dict[str, Any]:
    """A receipt's fields, with nothing found yet."""
    return {
        "source_id": source.source_id,
        "path": encodable(source.label),
        "key": receipt_key(source, options),
        "status": "empty",
        "reason": None,
        "error": None,
        "scanner": None,
        "base_ns": None,
        "n_events": 0,
        "start_ns": None,
        "end_ns": None,
        "metadata": None,
        "devices": [],
        "versions": {},
        "step_source": None,
        "ranks": [],
        "quality": [],
        "derived_codes": [],
        "parts": [],
    }


def _ingested(source: PlannedSource, place: Place, options: IngestOptions) -> dict[str, Any]:
    receipt = _header(source, options)
    with tempfile.TemporaryDirectory(prefix="rankscope-spool-") as spool:
        opened = read_trace(
            source.path, member=source.member, spool=Path(spool), storage_options=options.storage_options
        )
        with opened as trace:
            receipt |= _facts(trace)
            found: list[Quality] = list(trace.quality)
            if trace.n_events:
                targets = _targets(source, trace)
                parts = _write_events(place, trace, targets, receipt["source_id"])
                for target in targets:
                    own, quality, written = _derive_rank(place, trace, target, receipt["source_id"], options)
                    receipt["ranks"].append(own | {"n_events": _n_events(trace, target, parts)})
                    parts_of_rank = [parts[target.rank], *written]
                    receipt["parts"] += [asdict(p) for p in parts_of_rank]
                    found += quality
                    receipt["derived_codes"] += [q.code for q in quality]
                steps = {own["step_source"] for own in receipt["ranks"]}
                receipt["step_source"] = steps.pop() if len(steps) == 1 else None
    receipt["quality"] = [asdict(q) for q in _placed(found, source)]
    return receipt


def _facts(trace: TraceFile) -> dict[str, Any]:
    return {
        "status": trace.status,
        "reason": trace.reason,
        "scanner": trace.scanner,
        "base_ns": trace.base_ns,
        "n_events": trace.n_events,
        "start_ns": trace.start_ns,
        "end_ns": trace.end_ns,
        "metadata": metadata_json(trace.header),
        "devices": sorted(gpus(trace.header)),
        "versions": versions(trace.header),
    }


def _placed(found: Iterable[Quality], source: PlannedSource) -> Iterator[Quality]:
    """Quality rows with the file they are about and, in a file of one rank, the rank."""
    for row in found:
        rank = row.rank if row.rank is not None else source.rank
        path = encodable(row.path or source.label)
        yield replace(row, rank=rank, path=path, example=encodable(row.example))


def _targets(source: PlannedSource, trace: TraceFile) -> list[Target]:
    """Where the file's events go; in a fused file those of no known process go to the lowest rank."""
    constants = _constants(source, only_gpu(trace.header))
    if len(trace.ranks) < 2:
        return [Target(source.rank, constants)]
    pids: dict[int, set[str]] = {rank: set() for rank in sorted(trace.ranks)}
    for pid, rank in trace.rank_of_pid.items():
        pids[rank].add(pid)
    lowest, *rest = pids
    others = frozenset(pid for rank in rest for pid in pids[rank])
    targets = [Target(rank, constants, frozenset(pids[rank])) for rank in rest]
    return [Target(lowest, constants, others, is_rest=True), *targets]


def _constants(source: PlannedSource, gpu: str | None) -> dict[str, Any]:
    return {
        "world": source.world,
        "window": source.window,
        "gpu": gpu,
        "host": source.host,
        "local_rank": source.local_rank,
        "coords": source.coords,
    }


def _write_events(
    place: Place, trace: TraceFile, targets: list[Target], source_id: str
) -> dict[int | None, Part]:
    """Stream every event into the part of its rank."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                PartWriter(place, "events", source_id=source_id, rank=t.rank, constants=t.constants)
            )
            for t in targets
        ]
        for batch in trace.batches():
            for target, writer in zip(targets, writers, strict=True):
                writer.write(target.share(batch))
    return {t.rank: w.part for t, w in zip(targets, writers, strict=True)}


def _derive_rank(
    place: Place, trace: TraceFile, target: Target, source_id: str, options: IngestOptions
) -> tuple[dict[str, Any], list[Quality], list[Part]]:
    """Derived tables of one rank: what it got, quality rows, parts."""
    events = _derive_input(trace, target)
    derived = derive(events, trace.header, DeriveOptions(rules=options.rules, step_regex=options.step_regex))
    span = _span(events, trace, target)
    del events
    parts = write_derived(place, derived, target, source_id)
    quality = [replace(q, rank=target.rank) for q in derived.quality]
    return own_facts(derived, target.rank) | span, quality, parts


def _derive_input(trace: TraceFile, target: Target) -> pa.Table:
    """The rank's events as `derive` wants them, in little memory: it is the largest table of an ingest."""
    wanted = [c for c in COLUMNS if c not in NOT_DERIVED_FROM]
    nothing: dict[pa.DataType, pa.Array] = {}
    pieces = [
        with_shared_nulls(lean(target.share(pa.Table.from_batches([b]))), nothing)
        for b in trace.batches(wanted)
    ]
    table = pa.concat_tables(pieces).unify_dictionaries()
    pa.default_memory_pool().release_unused()
    return table


def _span(events: pa.Table, trace: TraceFile, target: Target) -> dict[str, int | None]:
    """First start and last end of a rank: the file's, or in a fused file those of its own events."""
    if target.pids is None:
        return {"start_ns": trace.start_ns, "end_ns": trace.end_ns}
    timed = events.filter(
        pc.and_(events.column("valid"), pc.not_equal(events.column("ph").cast(pa.string()), "M"))
    )
    start = timed.column("start_ns")
    end = pc.add(start, pc.fill_null(timed.column("dur_ns"), 0))
    return {"start_ns": pc.min(start).as_py(), "end_ns": pc.max(end).as_py()}


def _n_events(trace: TraceFile, target: Target, parts: dict[int | None, Part]) -> int:
    """Events recovered; in a fused file the rows of the rank."""
    return trace.n_events if target.pids is None else parts[target.rank].rows


def write_derived(place: Place, derived: Derived, target: Target, source_id: str) -> list[Part]:
    """Write the tables derived of one rank."""
    # The device, and with it the GPU, differs from row to row: `derive` has filled them in.
    constants = {k: v for k, v in target.constants.items() if k != "gpu"}
    tables = {name: getattr(derived, name) for name in DERIVED}
    return [
        write_table(place, name, rows, source_id=source_id, rank=target.rank, constants=constants)
        for name, rows in tables.items()
    ]


def own_facts(derived: Derived, rank: int | None) -> dict[str, Any]:
    """What a receipt says about one rank."""
    sources = pc.unique(derived.steps.column("source")).to_pylist()
    return {
        "rank": rank,
        "n_activities": derived.activities.num_rows,
        "pre_ns": derived.pre_ns,
        "is_comm_recorded": derived.is_comm_recorded,
        "n_issued_comm": derived.n_issued_comm,
        "step_source": sources[0] if len(sources) == 1 else None,
    }
