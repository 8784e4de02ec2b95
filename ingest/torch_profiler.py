"""A PyTorch profiler trace read whole: its events with absolute times, pairs closed and impossible times marked.

Reading has two halves. While the bytes are scanned, batches go to a spool on disk and a survey gathers what
depends on the whole file (its base time may stand last, an end event belongs to a begin far before it). On the
way out of the spool each batch is finished with that knowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rankscope.store.schema import EVENTS, IDENTITY, PLACE, Quality, Severity
from rankscope.store.units import fits_int64

from .bytesource import open_bytes
from .finishing import Finisher
from .fused import ranks_of_pids
from .scan import ScanResult, scan
from .spool import Spool
from .survey import Survey, words_mask

_NOT_READ = {c.name for c in (*IDENTITY, *PLACE)} - {"device"}
COLUMNS = tuple(c.name for c in EVENTS.columns if c.name not in _NOT_READ)
"""Columns of `TraceFile.batches`: those of `EVENTS` without identity and place."""

_NEEDED = ("ph", "start_ns", "dur_ns")
"""Columns without which no batch can be finished."""


class TraceFile:
    """One trace, read; a context manager that owns its spool.

    Attributes:
        header: top-level keys, and `_process_names` {pid: name}, `_process_labels` {pid: labels},
            `_thread_names` {"pid/tid": name} from the metadata events.
        status: `whole`, `truncated` or `empty`.
        reason: why it is not whole.
        scanner: which scanner read it.
        base_ns: `baseTimeNanoseconds`, 0 when absent.
        n_events: events recovered (an end event that closes a begin counts, though it has no row of its own).
        start_ns, end_ns: first start and last end over valid events that are not metadata.
        quality: findings; rank and path are the caller's to fill.
        ranks: the ranks of a fused file, else empty.
        rank_of_pid: rank of every process of a fused file.
    """

    def __init__(self, spool: Spool, survey: Survey, result: ScanResult, *, problem: str | None) -> None:
        self._spool = spool
        self.header: dict[str, Any] = result.header | survey.names
        self.scanner = result.scanner
        self.n_events = result.n_events
        self.reason = "; ".join(r for r in (problem, result.truncated) if r) or None
        self.status = "truncated" if self.reason else "whole" if self.n_events else "empty"
        if self.status == "empty":
            self.reason = "no content" if result.shape == "empty" else "no events"
        base, base_quality = _base_ns(self.header.get("baseTimeNanoseconds"))
        self.base_ns = base
        self._finisher = Finisher(survey, base_ns=base)
        found = self._finisher.examine(spool.read((*_NEEDED, "name")))
        self.start_ns, self.end_ns = found.start_ns, found.end_ns
        self.ranks, self.rank_of_pid, fused_quality = ranks_of_pids(_labels(self.header), survey.pids)
        self.quality = [
            *_scan_quality(result, problem),
            *base_quality,
            *found.quality,
            *fused_quality,
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the spool; idempotent."""
        self._spool.close()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The events, in file order, batch by batch; may be called any number of times.

        Args:
            columns: some of `COLUMNS`; default all. Fewer columns read less.
        """
        wanted = [c for c in COLUMNS if columns is None or c in columns]
        for batch in self._finisher.finished(self._spool.read((*_NEEDED, *wanted))):
            yield batch.select(wanted)

    def table(
        self,
        columns: Sequence[str] | None = None,
        *,
        cats: Collection[str] | None = None,
        exclude_cats: Collection[str] = (),
        names: Callable[[str], bool] | None = None,
    ) -> pa.Table:
        """The events as one table, filtered while it is read.

        Args:
            columns: as for `batches`.
            cats: keep these categories only (an event without category is none of them).
            exclude_cats: leave these out; `python_function` is up to 91 % of a trace with stacks.
            names: keep events whose name this accepts; asked once per distinct name and batch.
        """
        wanted = [c for c in COLUMNS if columns is None or c in columns]
        helpers = {"cat"} if cats is not None or exclude_cats else set()
        helpers |= {"name"} if names is not None else set()
        schema = pa.schema([f for f in _SCHEMA if f.name in wanted])
        kept = []
        for batch in self.batches([*wanted, *helpers]):
            rows = _chosen(batch, cats, exclude_cats, names)
            batch = batch.select(wanted)
            kept.append(batch if rows is None else _compact(batch.filter(pa.array(rows))))
        return pa.Table.from_batches(kept, schema=schema).unify_dictionaries()


_SCHEMA = pa.schema([c.field for c in EVENTS.columns if c.name in COLUMNS])


def read_trace(
    path: str, *, member: str | None = None, spool: Path, storage_options: dict[str, Any] | None = None
) -> TraceFile:
    """Read one trace file into a spool and finish it.

    Args:
        path: local path or fsspec URL; any compression `open_bytes` knows.
        member: which file of a zip.
        spool: folder for the temporary file, which the result owns.
        storage_options: for fsspec.

    Raises:
        UsageError: the path does not exist.
        UnreadableFile: the bytes cannot be had.
        UnknownFormat: they are no trace.
        DamagedFile: they are one, but no event could be recovered.
    """
    store = Spool(Path(spool))
    survey = Survey()

    def take(batch: pa.RecordBatch) -> None:
        store.write(batch)
        survey.add(batch)

    try:
        with open_bytes(path, member=member, storage_options=storage_options) as source:
            result = scan(source.chunks(), take, path=path)
            problem = source.problem
        store.finish()
        return TraceFile(store, survey, result, problem=problem)
    except BaseException:
        store.close()
        raise


def _base_ns(value: Any) -> tuple[int, list[Quality]]:
    """The file's base time; a value that is no integer is left out and said."""
    if value is None:
        return 0, []
    try:
        base = int(value)
    except (TypeError, ValueError, OverflowError):
        base = None
    if base is None or not fits_int64(base) or isinstance(value, bool):
        effect = "times stay relative to an unknown base and do not line up with other files"
        return 0, [Quality("base_time_invalid", Severity.WARNING, None, 1, str(value)[:80], effect)]
    return base, []


def _scan_quality(result: ScanResult, problem: str | None) -> list[Quality]:
    if problem is None:
        return result.quality
    rest = [q for q in result.quality if q.code != "file_truncated"]
    example = f"{problem}; {result.truncated}" if result.truncated else problem
    effect = "everything before this point is used; what followed is lost"
    return [*rest, Quality("file_truncated", Severity.WARNING, None, 1, example, effect)]


def _labels(header: dict[str, Any]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for key in ("_process_names", "_process_labels"):
        for pid, text in header.get(key, {}).items():
            out.setdefault(pid, []).append(str(text))
    return out


def _chosen(
    batch: pa.RecordBatch,
    cats: Collection[str] | None,
    exclude_cats: Collection[str],
    names: Callable[[str], bool] | None,
) -> Any:
    """Mask of the rows to keep, None for all."""
    if cats is None and not exclude_cats and names is None:
        return None
    rows = np.ones(batch.num_rows, np.bool_)
    if cats is not None:
        rows &= words_mask(batch.column("cat"), tuple(cats))
    if exclude_cats:
        rows &= ~words_mask(batch.column("cat"), tuple(exclude_cats))
    if names is not None:
        column = batch.column("name")
        rows &= words_mask(column, tuple(w for w in column.dictionary.to_pylist() if names(w)))
    return rows


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without dictionary words that no row uses any more (the names of all Python frames, say)."""
    columns = [
        c.dictionary_decode().dictionary_encode() if pa.types.is_dictionary(c.type) else c
        for c in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
