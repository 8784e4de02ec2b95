"""From paths to a run store: discover, probe, plan, ingest every source, finish."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rankscope.store import layout
from rankscope.store.errors import StoreVersion, TraceError, UsageError
from rankscope.store.manifest import encode, is_store, is_unfinished
from rankscope.store.place import Place, Unwritable, is_url
from rankscope.store.reader import RunStore
from rankscope.store.writer import read_receipt

from . import cache as caches
from .classify import Rules
from .discover import STDIN, Source, discover, facts_file, spool_stdin
from .facts import RunFacts, load_facts
from .finish import finish
from .ingest_one import ingest_one, lost, receipt_key
from .options import IngestOptions, ingester_version
from .plan import identify
from .planned import Plan, PlannedSource
from .rederive import rederived
from .workers import WORTH_A_POOL, ExecutorLike, default_jobs, estimated_bytes, mapped

LOG = logging.getLogger("rankscope")

Progress = Callable[[int, int, str], None]
"""Called with (sources done, sources in all, the one just done)."""

UNCACHEABLE = "memory://"
"""URLs that live in this process: other processes do not see them, and names are reused for other content."""


@dataclass(frozen=True)
class How:
    """How an ingest runs; nothing here changes what is stored."""

    executor: ExecutorLike | None = None
    jobs: int | None = None
    progress: Progress | None = None


@dataclass(frozen=True)
class _Input:
    """A run before it is read."""

    sources: list[Source]
    facts: RunFacts
    key: str


def ingest_run(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    options: IngestOptions | None = None,
    executor: ExecutorLike | None = None,
    jobs: int | None = None,
    cache: bool = True,
    progress: Progress | None = None,
) -> RunStore:
    """Make a run store of traces, or give the one that is there.

    An interrupted ingest leaves no store and is resumed by the next one with the same destination: sources
    that were finished are not read again. The same traces give the same bytes, whatever the order of
    `paths`, the number of jobs or the executor.

    Args:
        paths: file, folder, glob or URL, several of these, or `-`; or one existing store.
        out: folder or URL of the store; None: an entry of the user's cache.
        options: how to read; defaults when None.
        executor: anything with `submit` as in `concurrent.futures` (Dask's `client.get_executor()`); default
            is a pool of processes of our own, when there is enough to read.
        jobs: size of that pool; one per core when None.
        cache: with `out` None: False keeps nothing beyond this process.
        progress: called with (sources done, sources in all, name of the one just done).

    Raises:
        UsageError: a path does not exist, `out` holds files of somebody else, an option is wrong.
        EmptyRun, UnreadableFile, UnknownFormat, DamagedFile: nothing can be analysed.
        StoreVersion: `paths` is a store of another version.
    """
    chosen = options or IngestOptions()
    how = How(executor, jobs, progress)
    _check(chosen)
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    asked = [os.path.expanduser(os.fspath(p)) for p in several]  # noqa: PTH111 - a URL is no Path
    if len(asked) == 1 and _is_store(asked[0], chosen):
        store = RunStore(asked[0], storage_options=chosen.storage_options)
        return rederived(store, chosen, out=None if out is None else os.fspath(out), cache=cache)
    if STDIN not in asked:
        return _stored(_input(asked, chosen), out, chosen, how, cache=cache)
    with tempfile.TemporaryDirectory(prefix="rankscope-stdin-") as folder:
        spooled = spool_stdin(folder)
        return _stored(_input(asked, chosen, stdin=spooled), out, chosen, how, cache=False)


def _is_store(path: str, options: IngestOptions) -> bool:
    """Whether the path is a run store, finished or not (which `RunStore` then says)."""
    if path == STDIN:
        return False
    place = Place(path, options.storage_options)
    return is_store(place) or is_unfinished(place)


def _check(options: IngestOptions) -> None:
    """Refuse wrong options before a file is opened: in a worker they would look like the files' fault."""
    Rules.load(options.rules)
    try:
        re.compile(options.step_regex or "")
    except re.error as error:
        raise UsageError(f"step_regex {options.step_regex!r} is no pattern: {error}") from error


def _input(asked: list[str], options: IngestOptions, *, stdin: str | None = None) -> _Input:
    """Sources and stated facts, and the key of the cache entry they make."""
    sources = discover(asked, storage_options=options.storage_options, stdin=stdin)
    stated = facts_file(asked, sources, storage_options=options.storage_options)
    facts = load_facts(stated, options.sets, storage_options=options.storage_options)
    content = [options.content(), facts.stated()]
    return _Input(sources, facts, caches.cache_key(map(identity, sources), content, ingester_version()))


def identity(source: Source) -> dict[str, Any]:
    """What tells one content of a file from another without reading it."""
    where = source.path if is_url(source.path) else os.path.realpath(source.path)
    return {**asdict(source), "path": where}


def _stored(
    run: _Input, out: str | os.PathLike[str] | None, options: IngestOptions, how: How, *, cache: bool
) -> RunStore:
    """The store of the run at `out`, in the cache, or in a folder that ends with the process."""
    if out is not None:
        return _at(Place(os.fspath(out), options.storage_options), run, options, how)
    if cache and not any(s.path.startswith(UNCACHEABLE) for s in run.sources):
        found = _cached(run, options, how)
        if found is not None:
            return found
        LOG.warning("the cache %s cannot be written: the traces are read anew each time", caches.cache_root())
    return _made(Place(caches.temporary_store()), run, options, how)


def _cached(run: _Input, options: IngestOptions, how: How) -> RunStore | None:
    """The run's cache entry, made unless it is there; None when the cache cannot be written.

    Nothing in an entry is ever taken away or overwritten with other content, since its name covers all that
    decides it: another process may be reading it, or making the same entry at the same time.
    """
    folder = caches.existing(run.key)
    if folder is not None:
        with suppress(StoreVersion, UsageError):
            store = RunStore(folder)
            if store.is_complete():
                return store
    folder = caches.entry(run.key)
    if folder is None:
        return None
    store = _made(Place(folder), run, options, how)
    caches.evict(folder)
    return store


def _at(place: Place, run: _Input, options: IngestOptions, how: How) -> RunStore:
    """The store where the user wants it, made unless it is there already."""
    if _is_current(place, run.key):
        return RunStore(place.root, storage_options=options.storage_options)
    is_new = _claimed(place)
    try:
        store = _made(place, run, options, how)
    except Unwritable:
        raise  # what was read so far is kept: the next ingest resumes
    except TraceError:
        if is_new:
            place.remove_all()
        raise
    place.write(layout.RUN_RECEIPT, encode({"key": run.key, "manifest": _manifest_digest(place)}))
    return store


def _made(place: Place, run: _Input, options: IngestOptions, how: How) -> RunStore:
    """Ingest the run into the place."""
    planned = identify(run.sources, run.facts, storage_options=options.storage_options)
    finish(place, planned, _all_ingested(place, planned, options, how), options)
    return RunStore(place.root, storage_options=options.storage_options)


def _is_current(place: Place, key: str) -> bool:
    """Whether the place holds a finished store made from exactly these sources and options."""
    try:
        receipt = json.loads(place.read(layout.RUN_RECEIPT))
        return bool(receipt == {"key": key, "manifest": _manifest_digest(place)})
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return False


def _manifest_digest(place: Place) -> str:
    return hashlib.sha256(place.read(layout.MANIFEST)).hexdigest()


def _claimed(place: Place) -> bool:
    """Make sure the place is a store of ours or free, and that it is no valid store while it changes.

    Returns:
        Whether the place is new, so that it may be removed again when nothing comes of it.
    """
    if place.is_local and Path(place.path()).is_file():
        raise UsageError("is a file, not a folder for a run store", path=place.root)
    entries = {e for e in place.entries() if not e.endswith(".tmp")}
    foreign = sorted(entries - layout.own_entries())
    if foreign:
        raise UsageError(
            f"the folder holds other files ({', '.join(foreign[:3])})",
            path=place.root,
            hint="give an empty or new folder for the run store",
        )
    place.remove(layout.MANIFEST)
    place.remove(layout.RUN_RECEIPT)
    return not entries


def _all_ingested(place: Place, planned: Plan, options: IngestOptions, how: How) -> dict[str, dict[str, Any]]:
    """The receipt of every source that is to be read; those of an earlier attempt are used again."""
    receipts: dict[str, dict[str, Any]] = {}
    todo: list[PlannedSource] = []
    is_resumed = layout.RECEIPTS in place.entries()
    for source in planned.to_read():
        receipt = _reusable(place, source, options) if is_resumed else None
        if receipt is None:
            todo.append(source)
        else:
            receipts[source.source_id] = receipt
    n_all = len(receipts) + len(todo)
    call = partial(ingest_one, destination=place.root, options=options)
    jobs = _jobs(todo, place, how.jobs)
    lost_one = partial(lost, options=options)
    for source, receipt in mapped(call, todo, executor=how.executor, jobs=jobs, lost=lost_one):
        receipts[source.source_id] = receipt
        if how.progress is not None:
            how.progress(len(receipts), n_all, source.label)
    return receipts


def _reusable(place: Place, source: PlannedSource, options: IngestOptions) -> dict[str, Any] | None:
    """The receipt of an earlier attempt, when it is for the same file, place in the run and options."""
    receipt = read_receipt(place, source.source_id)
    if receipt is None or receipt.get("key") != receipt_key(source, options):
        return None
    return receipt if all(place.exists(p["path"]) for p in receipt["parts"]) else None


def _jobs(todo: Sequence[PlannedSource], place: Place, asked: int | None) -> int:
    """Worker processes: as asked, else one per core when there is enough to read; never where memory is shared."""
    in_memory = place.root.startswith(UNCACHEABLE) or any(s.path.startswith(UNCACHEABLE) for s in todo)
    if in_memory or len(todo) < 2:
        return 1
    if asked is not None:
        return max(1, asked)
    total = sum(estimated_bytes(s.path, s.size) for s in todo)
    return default_jobs() if total >= WORTH_A_POOL else 1
