"""A folder that is read and written by relative names, on the local disk or behind an fsspec URL.

Files appear whole or not at all: a local file is written under a temporary name and renamed, an object
store shows an object only when its upload has ended.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from .errors import UnreadableFile

_LOCAL = ("file://", "local://")


def is_url(path: str) -> bool:
    """Whether the path names a place that fsspec must open (`s3://...`), not one on the local disk."""
    return "://" in path and not path.startswith(_LOCAL)


class Unwritable(UnreadableFile):
    """A file cannot be written: permissions, no room, no connection. Never the fault of an input."""


class Place:
    """One folder, local or remote.

    Args:
        root: local path, `file://` URL or any URL fsspec knows; need not exist yet.
        storage_options: passed to fsspec (credentials, endpoint).

    Raises:
        UnreadableFile: no file system is known for the URL.
    """

    def __init__(self, root: str | os.PathLike[str], storage_options: dict[str, Any] | None = None) -> None:
        self.root = os.fspath(root)
        self._fs: Any = None
        if is_url(self.root):
            self._fs, self._base = _remote(self.root, storage_options)
        else:
            local = next((self.root[len(p) :] for p in _LOCAL if self.root.startswith(p)), self.root)
            self._base = str(Path(local))

    @property
    def is_local(self) -> bool:
        """Whether the folder is on the local disk."""
        return self._fs is None

    @property
    def filesystem(self) -> Any:
        """The fsspec file system, None for the local disk."""
        return self._fs

    def path(self, name: str = "") -> str:
        """The name as a path of the folder's file system."""
        if not name:
            return self._base
        return str(Path(self._base, name)) if self._fs is None else f"{self._base.rstrip('/')}/{name}"

    def exists(self, name: str = "") -> bool:
        """Whether the file (or the folder itself) is there now, past any listing cache."""
        with self._translated(name):
            if self._fs is None:
                return Path(self.path(name)).exists()
            self._fs.invalidate_cache()
            return bool(self._fs.exists(self.path(name)))

    def entries(self) -> list[str]:
        """Names directly inside the folder, sorted; empty when the folder does not exist."""
        with self._translated(""):
            if self._fs is None:
                folder = Path(self._base)
                return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
            self._fs.invalidate_cache()
            if not self._fs.exists(self._base):
                return []
            found = self._fs.ls(self._base, detail=False)
            return sorted(str(p).rstrip("/").rsplit("/", 1)[-1] for p in found)

    def read(self, name: str) -> bytes:
        """The whole file.

        Raises:
            FileNotFoundError: there is no such file.
            UnreadableFile: it cannot be read.
        """
        with self._translated(name):
            if self._fs is None:
                return Path(self.path(name)).read_bytes()
            return cast("bytes", self._fs.cat_file(self.path(name)))

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        """The file, open for random access.

        Raises:
            FileNotFoundError: there is no such file.
            UnreadableFile: it cannot be read.
        """
        with self._translated(name):
            path = self.path(name)
            with Path(path).open("rb") if self._fs is None else self._fs.open(path, "rb") as stream:
                yield stream

    def write(self, name: str, data: bytes) -> None:
        """Write the whole file; readers see the old content or the new, never a part."""
        with self.writing(name) as stream:
            stream.write(data)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A stream whose content becomes the file when the block ends well, and vanishes when it does not.

        Raises:
            Unwritable: the place cannot be written.
        """
        with self._translated(name, "written", Unwritable):
            if self._fs is None:
                with _renamed(Path(self.path(name))) as stream:
                    yield stream
                return
            # Written here first: not every file system hides a file until it is whole, or can give one up.
            with tempfile.NamedTemporaryFile(suffix=".upload") as spool:
                yield cast("IO[bytes]", spool)
                spool.flush()
                self._fs.makedirs(self.path(name).rsplit("/", 1)[0], exist_ok=True)
                self._fs.put_file(spool.name, self.path(name))

    def remove(self, name: str) -> None:
        """Remove one file; no error when it is not there."""
        with self._translated(name, "removed", Unwritable), suppress(FileNotFoundError):
            if self._fs is None:
                Path(self.path(name)).unlink()
            else:
                self._fs.rm_file(self.path(name))

    def remove_all(self) -> None:
        """Remove the folder and everything in it."""
        if self._fs is None:
            shutil.rmtree(self._base, ignore_errors=True)
            return
        with self._translated("", "removed", Unwritable), suppress(FileNotFoundError):
            self._fs.rm(self._base, recursive=True)

    @contextmanager
    def _translated(
        self, name: str, verb: str = "read", kind: type[UnreadableFile] = UnreadableFile
    ) -> Iterator[None]:
        """Turn an operating system's or network library's complaint into one line about this file."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if isinstance(error, NotADirectoryError) and kind is not Unwritable:
                raise FileNotFoundError(error.errno, error.strerror, error.filename) from error
            raise kind(
                f"cannot be {verb}: {error.strerror or error}",
                path=f"{self.root.rstrip('/')}/{name}" if name else self.root,
                hint="check permissions, free space and the connection",
            ) from error


@contextmanager
def _renamed(target: Path) -> Iterator[IO[bytes]]:
    """Write beside the target under a name of its own, then rename; a failed write leaves nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # Hidden and not ending in .parquet: a crash may leave it behind, no reader takes it for a part.
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as stream:
            yield stream
        os.replace(temporary, target)  # noqa: PTH105 - the atomic rename is the point
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remote(url: str, storage_options: dict[str, Any] | None) -> tuple[Any, str]:
    import fsspec

    try:
        fs, base = fsspec.core.url_to_fs(url, **(storage_options or {}))
    except (ImportError, ValueError, OSError) as error:
        raise UnreadableFile(
            f"no file system for this URL: {error}",
            path=url,
            hint="install the extra that brings it, for example `pip install rankscope[s3]`",
        ) from error
    return fs, str(base)
