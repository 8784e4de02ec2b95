"""Which files make up a run: one file, several, a directory, a glob, a URL, a zip, standard input.

Names decide only what is worth a look; what a file is, is judged from its content later. Results hold paths
relative to the common root of the run, so that a moved run gives the same answers.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from rankscope.store.errors import TraceError, UsageError

from .bytesource import zip_members
from .facts import FACTS_FILE
from .walk import Entry, entries_of, is_store, natural_key, unique

__all__ = ["Source", "discover", "facts_file", "is_store", "natural_key", "spool_stdin"]

STDIN = "-"
STDIN_NAME = "stdin"

_TRACE_ENDING = re.compile(r"\.(?:json|jsonl|gz|gzip|zst|zstd|zip|trace)(?:[._-]?\d{1,3})?$", re.IGNORECASE)
_DUMP_NAME = re.compile(r"(?:nccl|comm_lib|inspector|rccl)", re.IGNORECASE)
_TELLING_NAME = re.compile(r"(?:rank[_-]?\d|trace|nccl|profil)", re.IGNORECASE)
_PICKLE = re.compile(r"\.(?:pickle|pkl)(?:\.gz)?$", re.IGNORECASE)
_IGNORED_ENDING = re.compile(
    r"\.(?:py|pyc|md|rst|sh|toml|ya?ml|ini|cfg|lock|png|svg|jpe?g|pdf|html?|csv|tsv|xlsx?|pt|pth|ckpt|safetensors"
    r"|bin|npz?|parquet|arrow|feather|so|c|h|cpp|cu)$",
    re.IGNORECASE,
)
_UNREAD = re.compile(
    r"\.(?:tar|tar\.gz|tgz|csv\.gz|txt\.gz|html\.gz|nsys-rep|qdrep|sqlite|perfetto-trace|pftrace|xplane\.pb)$",
    re.IGNORECASE,
)
"""Recordings of other tools and packed folders: named when they look like part of the run, never opened."""
OWN_OUTPUTS = frozenset({"truth.json", "manifest.json"})
"""Files this program writes beside traces and stores."""


@dataclass(frozen=True)
class Source:
    """One candidate file. Picklable and JSON-able.

    Attributes:
        path: where to open it: a local path or URL.
        rel: relative to the run's common root, with forward slashes; the only form results show.
        member: file inside a zip, None outside one.
        size: bytes on disk; mtime_ns: modification time; etag: of an object store. None where unknown.
        skipped: why it will not be read, None when it will be.
        is_named: the user named this very file (not found in a folder or by a pattern).
    """

    path: str
    rel: str
    member: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    etag: str | None = None
    skipped: str | None = None
    is_named: bool = False

    @property
    def label(self) -> str:
        """Name shown to people and stored as `sources.path`: the relative path, and the member after a `!`."""
        return self.rel if self.member is None else f"{self.rel}!{self.member}"


def discover(
    run: str | Sequence[str],
    *,
    storage_options: dict[str, Any] | None = None,
    stdin: str | None = None,
) -> list[Source]:
    """The files of a run, in natural order of their relative paths.

    An existing path is a path even when it looks like a glob. Directories are walked to the bottom without
    hidden entries, run stores and this program's own outputs; links are followed once. A zip gives one
    source per file in it.

    Args:
        run: one or several of: file, directory, glob, fsspec URL (of any of these), `-`.
        storage_options: for fsspec.
        stdin: where standard input was spooled to (`spool_stdin`); needed for `-`.

    Returns:
        Sources; those with `skipped` are named for the record only.

    Raises:
        UsageError: a path does not exist, a pattern matches nothing, or a directory holds no candidate.
    """
    asked = [run] if isinstance(run, str) else list(dict.fromkeys(run))
    if not asked:
        raise UsageError("no trace was named", hint="Give a trace file, a directory of them, or a run store.")
    wanted = (_stdin_entry(stdin) if text == STDIN else _wanted(text, storage_options) for text in asked)
    found = unique(entry for entries in wanted for entry in entries)
    roots = _roots(found)
    sources: list[Source] = []
    for entry in found:
        sources.extend(_sources(entry, _relative(entry, roots), storage_options))
    return sorted(sources, key=lambda source: natural_key(source.label))


def _stdin_entry(spooled: str | None) -> list[Entry]:
    if spooled is None:
        raise UsageError("standard input can only be read by a command", path=STDIN)
    return [Entry(spooled, protocol=STDIN_NAME, is_named=True, size=None)]


def _wanted(text: str, storage_options: dict[str, Any] | None) -> list[Entry]:
    """Entries behind one argument that may be traces."""
    entries = entries_of(text, storage_options)
    kept = [judged for entry in entries if (judged := _judged(entry)) is not None]
    if not any(entry.skipped is None for entry in kept):
        what = "holds no trace file" if entries else "is an empty directory"
        raise UsageError(
            what, path=text, hint="Rankscope looks for .json, .json.gz, .json.zst and .zip files."
        )
    return kept


def _judged(entry: Entry) -> Entry | None:
    """The entry, the entry with the reason why it is skipped, or None when it is nobody's business."""
    name = posixpath.basename(entry.path)
    if entry.is_named or entry.skipped is not None:
        return entry
    if name in OWN_OUTPUTS or name == FACTS_FILE or _IGNORED_ENDING.search(name):
        return None
    if (match := _UNREAD.search(name)) is not None:
        skipped = replace(entry, skipped=f"{match.group()} files are not read")
        return skipped if _TELLING_NAME.search(name) else None
    if _PICKLE.search(name):
        return entry if _TELLING_NAME.search(name) else None  # a flight recorder dump; known by content
    if _TRACE_ENDING.search(name) or _DUMP_NAME.search(name):
        return entry
    return entry if "." not in name and _TELLING_NAME.search(name) else None


def _sources(entry: Entry, rel: str, storage_options: dict[str, Any] | None) -> list[Source]:
    one = Source(
        path=entry.path,
        rel=rel,
        size=entry.size,
        mtime_ns=entry.mtime_ns,
        etag=entry.etag,
        skipped=entry.skipped,
        is_named=entry.is_named,
    )
    if entry.skipped is not None or not entry.path.lower().endswith(".zip"):
        return [one]
    try:
        members = zip_members(entry.path, storage_options=storage_options)
    except TraceError as error:
        return [replace(one, skipped=error.message)]
    if len(members) < 2:
        return [one]
    traces = [m for m in members if _TRACE_ENDING.search(m) and not _is_hidden(m)]
    return [replace(one, member=m, is_named=False) for m in dict.fromkeys(traces)] or [
        replace(one, skipped="the zip holds no trace file")
    ]


def _is_hidden(member: str) -> bool:
    """Hidden parts, and the resource forks macOS puts into a zip."""
    parts = [part for part in member.split("/") if part not in (".", "..")]
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)


def _roots(entries: Iterable[Entry]) -> dict[str, str]:
    """Common parent folder of each protocol's entries."""
    folders: dict[str, list[str]] = {}
    for entry in entries:
        folder = entry.root if entry.root is not None else posixpath.dirname(entry.inner)
        folders.setdefault(entry.protocol, []).append(folder)
    return {protocol: posixpath.commonpath(paths) for protocol, paths in folders.items()}


def _relative(entry: Entry, roots: dict[str, str]) -> str:
    """Path below the root as text that any encoding holds: bytes of a name that are no UTF-8 become escapes."""
    if entry.protocol == STDIN_NAME:
        return STDIN_NAME
    rel = posixpath.relpath(entry.inner, roots[entry.protocol] or ".")
    rel = rel.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return rel if len(roots.keys() - {STDIN_NAME}) == 1 else f"{entry.protocol}/{rel}"


def spool_stdin(folder: str, stream: IO[bytes] | None = None) -> str:
    """Copy standard input into a file of a folder and give its path, for `discover(..., stdin=path)`.

    Args:
        folder: an existing folder for temporary files; the caller removes it.
        stream: instead of standard input.

    Raises:
        UsageError: nothing arrives.
    """
    path = posixpath.join(folder, STDIN_NAME)
    with open(path, "wb") as file:
        shutil.copyfileobj(stream if stream is not None else sys.stdin.buffer, file, 4 << 20)
        if file.tell() == 0:
            raise UsageError("standard input is empty", path=STDIN, hint="Pipe a trace into the command.")
    return path


def facts_file(
    run: str | Sequence[str], sources: Iterable[Source], *, storage_options: dict[str, Any] | None = None
) -> str | None:
    """The `run.toml` beside the traces: in a directory that was named, or in a folder that holds traces.

    Of several the one nearest to the root counts.

    Raises:
        UsageError: two of them are equally near; which one is meant is not guessed.
    """
    import fsspec

    asked = [run] if isinstance(run, str) else list(run)
    folders = {posixpath.dirname(s.path) for s in sources if s.rel != STDIN_NAME}
    folders |= {text.rstrip("/") for text in asked if text != STDIN}
    found = []
    for folder in sorted(folders):
        path = f"{folder}/{FACTS_FILE}" if folder else FACTS_FILE
        filesystem, inner = fsspec.url_to_fs(path, **(storage_options or {}))
        if _is_file(filesystem, inner):
            found.append((inner.count("/"), path))
    nearest = [path for depth, path in found if depth == min(found)[0]]
    if len(nearest) > 1:
        raise UsageError(
            f"two facts files: {nearest[0]} and {nearest[1]}",
            hint="Name one directory, or keep one run.toml above both.",
        )
    return nearest[0] if nearest else None


def _is_file(filesystem: Any, inner: str) -> bool:
    try:
        return bool(filesystem.isfile(inner))
    except (OSError, ValueError):
        return False
