"""Files behind a path, glob or URL: the part of `discover` that touches file systems.

Local folders are walked with the operating system's calls (links, sockets and unreadable entries need care),
everything else through fsspec.
"""

# Paths are compared as text after normalising `..` without following links, which pathlib cannot do.
# ruff: noqa: PTH100, PTH110, PTH115, PTH111, PTH112, PTH113, PTH114, PTH116, PTH118, PTH207, PTH208

from __future__ import annotations

import difflib
import glob
import json
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rankscope.store.errors import UnreadableFile, UsageError
from rankscope.store.layout import MANIFEST, RECEIPTS
from rankscope.store.manifest import FORMAT

STORE_ENDING = ".rankscope"
MAX_MANIFEST_BYTES = 64 << 20
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Entry:
    """One file as a file system shows it.

    `path` opens it; `inner` is the path within its protocol; `root` the folder the user named or the fixed
    part of a pattern (None for a file named by itself).
    """

    path: str
    protocol: str = "file"
    inner: str = ""
    root: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    etag: str | None = None
    skipped: str | None = None
    is_named: bool = False


def natural_key(text: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Sort key in which numbers count as numbers: rank2 before rank10. Ties by the text itself."""
    parts = re.split(r"(\d+)", text)
    return tuple((1, int(p), "") if p.isdecimal() and p.isascii() else (0, 0, p) for p in parts if p), text


def entries_of(text: str, storage_options: dict[str, Any] | None = None) -> list[Entry]:
    """Every regular file behind an argument, unsorted.

    Raises:
        UsageError: it does not exist, or the pattern matches nothing.
        UnreadableFile: the file system cannot be reached.
    """
    if "://" in text and not os.path.lexists(text):
        return _remote(text, storage_options)
    return _local(text)


def is_store(path: str, *, storage_options: dict[str, Any] | None = None) -> bool:
    """Whether a directory is a run store of ours, of any version: it holds a manifest that says so.

    Args:
        path: local path or URL.
        storage_options: for fsspec.
    """
    import fsspec

    if "://" not in path and not os.path.isfile(os.path.join(path, MANIFEST)):
        return False
    try:
        filesystem, inner = fsspec.url_to_fs(f"{path.rstrip('/')}/{MANIFEST}", **(storage_options or {}))
        with filesystem.open(inner, "rb") as file:
            manifest = json.loads(file.read(MAX_MANIFEST_BYTES))
    except (OSError, ValueError, ImportError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


# --- local ---------------------------------------------------------------------------------------------------


def _local(text: str) -> list[Entry]:
    path = os.path.expanduser(text)
    if os.path.isdir(path):
        return unique(_walk(path, root=_posix(os.path.abspath(path))))
    if os.path.exists(path):
        entry = _local_entry(path, root=None, is_named=True)
        return [entry] if entry is not None else _not_regular(text)
    if _GLOB.search(text):
        return _local_glob(path, text)
    if os.path.islink(path):
        raise UsageError("is a link to nothing", path=text, hint=f"It points to {os.readlink(path)}")
    raise UsageError("does not exist", path=text, hint=_nearest(path))


def _not_regular(text: str) -> list[Entry]:
    raise UsageError(
        "is neither a file nor a directory", path=text, hint="Spool it to a file, or pipe it to `-`."
    )


def _local_glob(path: str, text: str) -> list[Entry]:
    matches = sorted(glob.glob(path, recursive=True))
    if not matches:
        raise UsageError("matches no file", path=text, hint=_nearest(_fixed_part(path)))
    root = _posix(os.path.abspath(_fixed_part(path) or "."))
    found: list[Entry] = []
    for match in matches:
        if os.path.isdir(match):
            found.extend(_walk(match, root=root))
        elif (entry := _local_entry(match, root=root)) is not None:
            found.append(entry)
    return unique(found)


def _fixed_part(pattern: str) -> str:
    """Folder in front of the first wild card."""
    match = _GLOB.search(pattern)
    return pattern[: pattern.rfind("/", 0, match.start()) + 1] if match else pattern


def _walk(top: str, *, root: str) -> Iterator[Entry]:
    """Files below a folder; each folder once, however many links lead to it, and under its own name."""
    seen: set[tuple[int, int]] = set()
    pending, linked = [top], list[str]()
    while pending or linked:
        folder = pending.pop() if pending else linked.pop(0)
        try:
            info = os.stat(folder)
            children = sorted(os.listdir(folder))
        except OSError as error:
            inner = _posix(os.path.abspath(folder))
            reason = f"the folder cannot be listed ({error.strerror or error})"
            yield Entry(folder, inner=inner, root=root, skipped=reason)
            continue
        if (info.st_dev, info.st_ino) in seen:
            continue
        seen.add((info.st_dev, info.st_ino))
        for child in children:
            path = os.path.join(folder, child)
            if child.startswith(".") or child == "__pycache__":
                continue
            if not os.path.isdir(path):
                entry = _local_entry(path, root=root)
                yield from [entry] if entry is not None else []
            elif not _is_ours(path):
                (linked if os.path.islink(path) else pending).append(path)


def _is_ours(folder: str) -> bool:
    """A run store, whole or unfinished."""
    is_unfinished = os.path.isdir(os.path.join(folder, RECEIPTS))
    return folder.endswith(STORE_ENDING) or is_unfinished or is_store(folder)


def _local_entry(path: str, *, root: str | None, is_named: bool = False) -> Entry | None:
    """The file's record; None for sockets, pipes, devices and dead links."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    return Entry(
        path=path,
        inner=_posix(os.path.abspath(path)),
        root=root,
        size=info.st_size,
        mtime_ns=info.st_mtime_ns,
        is_named=is_named,
    )


def unique(entries: Iterable[Entry]) -> list[Entry]:
    """One entry per real file: a link such as `latest` beside its target is no second capture.

    A path that was named wins, then one without links, then the first in natural order.
    """
    best: dict[str, tuple[Any, Entry]] = {}
    for entry in entries:
        real = os.path.realpath(entry.path)
        order = (not entry.is_named, real != os.path.abspath(entry.path), natural_key(entry.path))
        if real not in best or order < best[real][0]:
            best[real] = (order, entry)
    return [entry for _, entry in best.values()]


def _posix(path: str) -> str:
    return path.replace(os.sep, "/")


def _nearest(path: str) -> str:
    """The closest existing name, for a typing error."""
    folder, name = os.path.split(os.path.abspath(path.rstrip("/")))
    while not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    try:
        others = sorted(set(os.listdir(folder)) - {name})
        near = difflib.get_close_matches(name, others, n=1)
    except OSError:
        near = []
    if near:
        return f"Did you mean {os.path.join(folder, near[0])}?"
    return f"The nearest existing folder is {folder}"


# --- behind fsspec -------------------------------------------------------------------------------------------


def _remote(text: str, storage_options: dict[str, Any] | None) -> list[Entry]:
    import fsspec

    try:
        filesystem, inner = fsspec.url_to_fs(text, **(storage_options or {}))
        return _remote_entries(filesystem, inner.rstrip("/"), text)
    except (OSError, ValueError, ImportError) as error:
        raise UnreadableFile(
            f"cannot be reached ({error})", path=text, hint="Check the URL and your credentials."
        ) from error


def _remote_entries(filesystem: Any, inner: str, text: str) -> list[Entry]:
    filesystem.invalidate_cache()  # another process may have just written there; s3fs keeps listings
    if filesystem.isfile(inner):
        return [replace(_remote_entry(filesystem, filesystem.info(inner), root=None), is_named=True)]
    if filesystem.isdir(inner):
        return _remote_tree(filesystem, inner, root=inner)
    if not _GLOB.search(inner):
        raise UsageError("does not exist", path=text, hint=_remote_nearest(filesystem, inner))
    matches = sorted(filesystem.glob(inner))
    if not matches:
        raise UsageError("matches no file", path=text, hint=_remote_nearest(filesystem, _fixed_part(inner)))
    root = _fixed_part(inner).rstrip("/")
    found: dict[str, Entry] = {}
    for match in matches:
        is_folder = filesystem.isdir(match)
        one = (
            _remote_tree(filesystem, match, root=root)
            if is_folder
            else [_remote_entry(filesystem, filesystem.info(match), root=root)]
        )
        found.update({entry.inner: entry for entry in one})
    return list(found.values())


def _remote_tree(filesystem: Any, folder: str, *, root: str) -> list[Entry]:
    listed: dict[str, dict[str, Any]] = filesystem.find(folder, detail=True)
    stores = {posixpath.dirname(path) for path in listed if posixpath.basename(path) == MANIFEST}
    stores = {store for store in stores if _is_remote_store(filesystem, store)}
    stores |= {path.split(f"/{RECEIPTS}/")[0] for path in listed if f"/{RECEIPTS}/" in path}
    found = []
    for path, info in sorted(listed.items()):
        parts = posixpath.relpath(path, folder).split("/")
        above = {posixpath.join(folder, *parts[:i]) for i in range(len(parts))}
        is_ours = not above.isdisjoint(stores) or any(p.endswith(STORE_ENDING) for p in parts[:-1])
        if not is_ours and not any(p.startswith(".") for p in parts):
            found.append(_remote_entry(filesystem, {**info, "name": path}, root=root))
    return found


def _is_remote_store(filesystem: Any, folder: str) -> bool:
    try:
        manifest = json.loads(filesystem.cat_file(f"{folder}/{MANIFEST}"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def _remote_entry(filesystem: Any, info: dict[str, Any], *, root: str | None) -> Entry:
    protocol = filesystem.protocol if isinstance(filesystem.protocol, str) else filesystem.protocol[0]
    etag = next((str(info[k]).strip('"') for k in ("ETag", "etag", "md5Hash") if info.get(k)), None)
    size = info.get("size")
    return Entry(
        path=filesystem.unstrip_protocol(info["name"]),
        protocol=protocol,
        inner=info["name"],
        root=root,
        size=size if isinstance(size, int) else None,
        mtime_ns=_mtime_ns(info),
        etag=etag,
    )


def _mtime_ns(info: dict[str, Any]) -> int | None:
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            whole = int(value.replace(microsecond=0).timestamp())
            return whole * 10**9 + value.microsecond * 1000
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value * 10**9)
    return None


def _remote_nearest(filesystem: Any, inner: str) -> str | None:
    folder, _, name = inner.rstrip("/").rpartition("/")
    try:
        names = sorted(posixpath.basename(path.rstrip("/")) for path in filesystem.ls(folder, detail=False))
    except (OSError, ValueError):
        return None
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {folder}/{near[0]}?" if near else f"{folder} exists; it holds {len(names)} entries."
