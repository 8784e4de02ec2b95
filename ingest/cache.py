"""The user's cache of ingested runs: where it is, how entries are named, and how it is kept small.

An entry is a run store in a folder named after everything that decides its content: the identity of every
source (path, size, modification time, etag), the options and the ingester's version. An entry is therefore
never changed, only added or evicted; two processes that build the same entry write the same bytes, each file
by an atomic rename, so the race has no loser.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .options import digest_of

CACHE_VARIABLE = "RANKSCOPE_CACHE"
LIMIT_VARIABLE = "RANKSCOPE_CACHE_LIMIT"
DEFAULT_LIMIT = "20G"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d{1,12})\s*([KMGT]?)B?", re.IGNORECASE)

USED = "_used"
"""Empty file whose modification time says when the entry was last opened."""

IN_USE_S = 3600.0
"""Entries opened within this time may be in use by another process and are not evicted."""

_ENTRY = re.compile(r"[0-9a-f]{32}")


def cache_root() -> Path:
    """The folder of the cache: `RANKSCOPE_CACHE`, else the user's cache directory; need not exist."""
    stated = os.environ.get(CACHE_VARIABLE)
    if stated:
        return Path(stated).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("rankscope", appauthor=False)) / "runs"


def cache_key(identities: Iterable[Any], content: Any, version: str) -> str:
    """Name of the entry for these sources, options and ingester, whatever the order of the sources.

    Args:
        identities: JSON-able identity of each source (path, size, modification time, etag).
        content: JSON-able options.
        version: the ingester's version.
    """
    return digest_of([sorted(digest_of(i) for i in identities), content, version])


def entry(key: str) -> Path | None:
    """The folder of an entry, made if need be and marked as used now; None when the cache cannot be written."""
    folder = cache_root() / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{uuid.uuid4().hex}.tmp"
        probe.touch()
        probe.unlink()
    except OSError:
        return None
    mark_used(folder)
    return folder


def existing(key: str) -> Path | None:
    """The folder of an entry that is there (it may hold an unfinished ingest), marked as used; else None."""
    folder = cache_root() / key
    if not folder.is_dir():
        return None
    mark_used(folder)
    return folder


def mark_used(folder: Path) -> None:
    """Note that the entry is used now; a cache that cannot be written is left as it is."""
    with suppress(OSError):
        (folder / USED).touch()


def limit_bytes() -> int:
    """How large the cache may grow: `RANKSCOPE_CACHE_LIMIT` (`500M`, `20G`; 0 keeps only the newest entry)."""
    match = _SIZE.fullmatch(os.environ.get(LIMIT_VARIABLE, DEFAULT_LIMIT).strip())
    match = match or _SIZE.fullmatch(DEFAULT_LIMIT)
    return int(match.group(1)) * _UNITS[match.group(2).upper()] if match else 0


def evict(keep: Path, *, limit: int | None = None, now: float | None = None) -> list[str]:
    """Remove the least recently used entries until the cache is within its limit.

    Args:
        keep: the entry just written; it stays whatever its size.
        limit: bytes; `limit_bytes()` when None.
        now: seconds since the epoch; the clock when None.

    Returns:
        Names of the entries removed, oldest first. Entries used within the last hour stay: another process
        may be reading or building them.
    """
    allowed = limit_bytes() if limit is None else limit
    moment = time.time() if now is None else now
    found = [(_last_use(f), f.name, _size(f), f) for f in _entries(keep.parent)]
    total = sum(size for _, _, size, _ in found)
    removed = []
    for used, name, size, folder in sorted(found, key=lambda e: e[:2]):
        if total <= allowed:
            break
        if folder == keep or moment - used < IN_USE_S:
            continue
        if _remove(folder):
            total -= size
            removed.append(name)
    return removed


def temporary_store() -> Path:
    """A folder for a store that is not cached, removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rankscope-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _entries(root: Path) -> list[Path]:
    with suppress(OSError):
        return [f for f in root.iterdir() if _ENTRY.fullmatch(f.name) and f.is_dir()]
    return []


def _last_use(folder: Path) -> float:
    for path in (folder / USED, folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def _remove(folder: Path) -> bool:
    """Take the entry away in one step, so that nobody opens half of it, then delete it."""
    doomed = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.evicted")
    try:
        folder.rename(doomed)
    except OSError:
        return False
    shutil.rmtree(doomed, ignore_errors=True)
    return True
