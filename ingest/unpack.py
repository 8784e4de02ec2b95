"""Streaming gunzip, unzstd and unzip that give back everything in front of the damage.

Every function takes `reopen`, which opens the packed bytes anew: a failing call of an unpacker takes its good
output with it, so a damaged stream is unpacked a second time, more carefully, from where the first pass stood.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
READ_BLOCK = 256 << 10
"""Packed bytes read at a time. Deflate can unpack 1032:1, so every call also caps its output."""
CAREFUL_BLOCK = 16 << 10
"""The same while salvaging, where the output of a call is not capped."""

Reopen = Callable[[], IO[bytes]]
Report = Callable[[str], None]


class _Inflate(Protocol):
    """What a streaming inflater offers: isal's, or the standard library's behind `_StdlibInflate`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _StdlibInflate:
    """The standard library's gzip inflater with isal's interface."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(31)
        self._is_capped = False

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        # A capped call may hold finished output back although all its input is used up.
        return not self._inflate.unconsumed_tail and not self._is_capped and not self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """At most `max_length` bytes; unused input is kept for the next call."""
        piece = self._inflate.decompress(self._inflate.unconsumed_tail + data, max(max_length, 0))
        self._is_capped = 0 < max_length <= len(piece)
        return piece


def _inflater() -> tuple[Callable[[], _Inflate], tuple[type[Exception], ...]]:
    """The fastest gzip inflater at hand, and what it raises on damage."""
    try:
        from isal import igzip_lib
    except ImportError:
        return _StdlibInflate, (zlib.error, EOFError)
    make: Any = igzip_lib.IgzipDecompressor
    damaged: Any = igzip_lib.IsalError
    return lambda: make(flag=igzip_lib.DECOMP_GZIP), (damaged, EOFError, zlib.error)


def compression_of(magic: bytes) -> str:
    """`gzip`, `zstd`, `zip` or `none`, from the first four bytes."""
    if magic.startswith(GZIP_MAGIC):
        return "gzip"
    if magic.startswith(ZSTD_MAGIC):
        return "zstd"
    return "zip" if magic.startswith(ZIP_MAGICS) else "none"


def gunzip(reopen: Reopen, size: int, report: Report) -> Iterator[bytes]:
    """Pieces of at most `size` bytes of all members of a gzip stream; damage goes to `report`, after the data."""
    make, errors = _inflater()
    done = 0
    try:
        for piece in _members(reopen(), make, size, report):
            done += len(piece)
            yield piece
        return
    except errors:
        pass
    yield from _salvage_gzip(reopen(), done, report)


def _members(handle: IO[bytes], make: Callable[[], _Inflate], size: int, report: Report) -> Iterator[bytes]:
    inflate = make()
    block = b""
    while True:
        if not block and inflate.needs_input:
            block = handle.read(READ_BLOCK)
            if not block:
                report("gzip stream ends early")
                return
        piece = inflate.decompress(block, size)
        block = b""
        if piece:
            yield piece
        if inflate.eof:
            block = _next_member(inflate.unused_data, handle)
            if not block:
                return
            inflate = make()


def _salvage_gzip(handle: IO[bytes], skip: int, report: Report) -> Iterator[bytes]:
    inflate = zlib.decompressobj(31)
    block = handle.read(CAREFUL_BLOCK)
    while block:
        before = inflate.copy()
        problem = None
        try:
            piece = inflate.decompress(block)
        except zlib.error as error:
            piece = _bytewise(before, block)
            problem = f"gzip data are damaged ({error})"
        skip, piece = max(skip - len(piece), 0), piece[skip:]
        if piece:
            yield piece
        if problem:
            report(problem)
            return
        if inflate.eof:
            block = _next_member(inflate.unused_data, handle)
            inflate = zlib.decompressobj(31)
        else:
            block = handle.read(CAREFUL_BLOCK)
    report("gzip stream ends early")


def _next_member(rest: bytes, handle: IO[bytes]) -> bytes:
    """The bytes from the next gzip member on; empty when what follows is padding or foreign."""
    while not (rest := rest.lstrip(b"\0")):
        rest = handle.read(READ_BLOCK)
        if not rest:
            return b""
    if len(rest) < len(GZIP_MAGIC):
        rest += handle.read(READ_BLOCK)
    return rest if rest.startswith(GZIP_MAGIC) else b""


def _bytewise(inflate: Any, block: bytes) -> bytes:
    """What `block` unpacks to before its first damaged byte."""
    out = []
    try:
        for i in range(len(block)):
            out.append(inflate.decompress(block[i : i + 1]))
    except zlib.error:
        pass
    return b"".join(out)


def unzstd(reopen: Reopen, size: int, report: Report) -> Iterator[bytes]:
    """Pieces of at most `size` bytes of a zstd stream; damage goes to `report`, after the data."""
    import pyarrow as pa

    done = 0
    try:
        stream = pa.CompressedInputStream(pa.PythonFile(reopen(), mode="r"), "zstd")
        while piece := stream.read(size):
            done += len(piece)
            yield piece
        return
    except (OSError, pa.ArrowException) as error:
        problem = f"zstd stream ends early or is damaged ({error})"
    # A failing read returns nothing of what it had, so the last stretch is read byte by byte.
    try:
        stream = pa.CompressedInputStream(pa.PythonFile(reopen(), mode="r"), "zstd")
        while done:
            done -= len(stream.read(min(done, 1 << 20)))
        while piece := stream.read(1):
            yield piece
    except (OSError, pa.ArrowException):
        pass
    report(problem)


def unzip_first(handle: IO[bytes], report: Report) -> Iterator[bytes]:
    """The first file of a zip whose directory is lost."""
    entry = first_file(handle)
    if entry is None:
        return
    inflate = zlib.decompressobj(-15)
    while block := handle.read(CAREFUL_BLOCK):
        if entry[1] == zipfile.ZIP_STORED:
            yield block
            continue
        before = inflate.copy()
        try:
            piece = inflate.decompress(block)
        except zlib.error as error:
            yield _bytewise(before, block)
            report(f"zip data are damaged ({error})")
            return
        yield piece
        if inflate.eof:
            return


def first_file(handle: IO[bytes]) -> tuple[str, int] | None:
    """Name and method of the first file in a zip, found without its directory; `handle` then stands at its data.

    None when there is none, or it is encrypted or packed in another way than stored or deflated.
    """
    while True:
        fixed = handle.read(30)
        if len(fixed) < 30 or not fixed.startswith(ZIP_MAGICS[0]):
            return None
        flags, method = struct.unpack_from("<HH", fixed, 6)
        n_name, n_extra = struct.unpack_from("<HH", fixed, 26)
        name = handle.read(n_name).decode("utf-8", "replace")
        handle.read(n_extra)
        if name.endswith("/"):
            handle.read(struct.unpack_from("<I", fixed, 18)[0])  # some writers "pack" folders into two bytes
            continue
        is_plain = not flags & 1 and method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        return (name, method) if is_plain else None


def files_of(archive: zipfile.ZipFile) -> list[str]:
    """Members that are files, without the resource forks that macOS adds."""
    infos = archive.infolist()
    return [i.filename for i in infos if not i.is_dir() and not i.filename.startswith("__MACOSX/")]
