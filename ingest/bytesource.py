"""Where the bytes of a trace come from: plain, gzip, zstd or zip, local or behind any fsspec URL.

The kind of compression is read from the first bytes, never from the file's name: profilers, browsers and
object stores rename freely. Everything streams; a file that unpacks to terabytes costs time, not memory.
A damaged stream delivers every byte that can still be unpacked and then says what was wrong, because a crash
that cuts a trace short is exactly when the trace is wanted.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rankscope.store.errors import UnreadableFile, UsageError

from .unpack import Reopen, Report, compression_of, files_of, first_file, gunzip, unzip_first, unzstd


class _Counted:
    """A raw binary file that counts what is read and reports failures of the medium as `UnreadableFile`."""

    def __init__(self, raw: IO[bytes], owner: ByteSource) -> None:
        self._raw = raw
        self._owner = owner
        self.closed = False

    def read(self, n: int = -1) -> bytes:
        try:
            data = self._raw.read(n)
        except OSError as error:
            raise _unreadable(self._owner.path, error) from error
        self._owner.n_compressed += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def seekable(self) -> bool:
        return self._raw.seekable()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing to flush; zip and Arrow readers ask."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._raw.close()


class _Unpacked:
    """Unpacked pieces as a file that can be read once from front to back."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self.closed = False

    def read(self, n: int = -1) -> bytes:
        """Up to `n` bytes, at least one unless the end is reached."""
        data = self._rest or next(self._pieces, b"")
        n = len(data) if n < 0 else n
        self._rest = data[n:]
        return data[:n]

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


_UNPACK: dict[str, Callable[[Reopen, int, Report], Iterator[bytes]]] = {"gzip": gunzip, "zstd": unzstd}


class ByteSource:
    """The unpacked content of one file; a context manager.

    Attributes:
        path: as given.
        compression: `none`, `gzip`, `zstd` or `zip`.
        problem: after reading: why the stream ended early or what was damaged, else None.
        n_compressed: bytes read from the medium so far.
        n_bytes: unpacked bytes delivered so far.
    """

    def __init__(
        self, path: str, *, member: str | None = None, storage_options: dict[str, Any] | None = None
    ) -> None:
        self.path = path
        self.member = member
        self.problem: str | None = None
        self.n_compressed = 0
        self.n_bytes = 0
        self._options = dict(storage_options or {})
        self._open: list[Any] = []
        self.compression = compression_of(self.raw().read(4))
        self.close()
        self.n_compressed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close whatever is open; idempotent."""
        while self._open:
            self._open.pop().close()

    def raw(self) -> IO[bytes]:
        """The packed bytes, opened anew; closed with the source."""
        self.n_compressed = 0
        counted: Any = _Counted(_open_path(self.path, self._options), self)
        self._open.append(counted)
        return counted  # type: ignore[no-any-return]  # _Counted offers the part of IO[bytes] that is used

    def chunks(self, size: int = 4 << 20) -> Iterator[bytes]:
        """The content in pieces of about `size` bytes, from the start.

        Never raises for damage after the first byte: all that can be unpacked is delivered, then `problem`
        says what happened.

        Raises:
            UnreadableFile: the medium fails, or a zip member cannot be unpacked for a reason other than
                damage (encrypted, an unknown method).
            UsageError: the zip has no such member.
        """
        self.problem = None
        self.n_bytes = 0
        pieces: list[bytes] = []
        held = 0
        for piece in self._pieces(size):
            pieces.append(piece)
            held += len(piece)
            if held >= size:
                self.n_bytes += held
                yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
                pieces, held = [], 0
        if held:
            self.n_bytes += held
            yield b"".join(pieces)
        self.close()

    def _pieces(self, size: int) -> Iterator[bytes]:
        if self.compression == "zip":
            return self._zip(size)
        return self._layer(self.raw, self.compression, size)

    def _layer(self, reopen: Reopen, kind: str, size: int) -> Iterator[bytes]:
        """The content; what was packed twice (by a web server, say) is unpacked twice."""
        if kind not in _UNPACK:
            yield from _read_all(reopen(), size)
            return
        pieces = _UNPACK[kind](reopen, size, self._report)
        first = next(pieces, b"")
        inner = compression_of(first[:4])
        if inner in _UNPACK:
            again: Any = lambda: _Unpacked(_UNPACK[kind](reopen, size, self._report))  # noqa: E731
            yield from _UNPACK[inner](again, size, self._report)
            return
        if first:
            yield first
        yield from pieces

    def _report(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _zip(self, size: int) -> Iterator[bytes]:
        try:
            archive = zipfile.ZipFile(self.raw())
        except (zipfile.BadZipFile, OSError, ValueError):
            yield from unzip_first(self.raw(), self._report)
            self._report("zip file ends early: only its first member can be read")
            return
        self._open.append(archive)
        names = files_of(archive)
        name = self.member if self.member is not None else (names[0] if names else None)
        if name is None:
            return
        if name not in archive.namelist():
            raise UsageError(f"zip has no member {name!r}", path=self.path)
        # A compressed trace inside a zip is what a browser's "download all" makes.
        inner = compression_of(self._peek(archive, name))
        kind = inner if inner in ("gzip", "zstd") else "none"
        piece_size = size if kind != "none" else 64 << 10  # a failing read of zipfile loses its whole piece
        try:
            yield from self._layer(lambda: self._open_member(archive, name), kind, piece_size)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            self._report(f"zip member {name!r} is damaged ({error})")

    def _peek(self, archive: zipfile.ZipFile, name: str) -> bytes:
        try:
            with self._open_member(archive, name) as handle:
                return handle.read(4)
        except (zipfile.BadZipFile, zlib.error, EOFError):
            return b""

    def _open_member(self, archive: zipfile.ZipFile, name: str) -> IO[bytes]:
        try:
            return archive.open(name)
        except (RuntimeError, NotImplementedError) as error:  # encrypted; a method zipfile cannot unpack
            raise UnreadableFile(
                f"zip member {name!r} cannot be unpacked: {error}", path=self.path
            ) from error


def _read_all(handle: IO[bytes], size: int) -> Iterator[bytes]:
    while block := handle.read(size):
        yield block


def _unreadable(path: str, error: Exception) -> UnreadableFile:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    hint = "Check that it exists and that you may read it."
    return UnreadableFile(f"cannot be read: {reason}", path=path, hint=hint)


def _open_path(path: str, options: dict[str, Any]) -> IO[bytes]:
    try:
        if "://" not in path or Path(path).exists():
            return Path(path).open("rb")
        import fsspec

        filesystem, inner = fsspec.url_to_fs(path, **options)
        return filesystem.open(inner, "rb")  # type: ignore[no-any-return]
    except FileNotFoundError as error:
        raise UsageError("does not exist", path=path, hint="Check the spelling of the path.") from error
    except (OSError, ValueError, ImportError) as error:  # also an unknown protocol, a missing fsspec backend
        raise _unreadable(path, error) from error


def open_bytes(
    path: str, *, member: str | None = None, storage_options: dict[str, Any] | None = None
) -> ByteSource:
    """The content of a local file or fsspec URL, unpacked as it is read.

    Args:
        path: a local path or any fsspec URL (`s3://`, `gs://`, `memory://`).
        member: which file of a zip; default its first. Ignored for anything but a zip.
        storage_options: passed to fsspec for URLs.

    Raises:
        UsageError: the path does not exist.
        UnreadableFile: it cannot be opened or read.
    """
    return ByteSource(path, member=member, storage_options=storage_options)


def zip_members(path: str, *, storage_options: dict[str, Any] | None = None) -> list[str]:
    """Names of the files inside a zip, in its own order; empty for anything but a zip.

    A zip whose directory is lost (cut short) still names its first file.

    Raises:
        UsageError: the path does not exist.
        UnreadableFile: it cannot be opened or read.
    """
    with open_bytes(path, storage_options=storage_options) as source:
        if source.compression != "zip":
            return []
        try:
            with zipfile.ZipFile(source.raw()) as archive:
                return files_of(archive)
        except (zipfile.BadZipFile, OSError, ValueError):
            entry = first_file(source.raw())
            return [entry[0]] if entry else []
