"""Bytes out of any packing, and out of damaged ones."""

from __future__ import annotations

import gzip
import io
import random
import sys
import zipfile
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from rankscope.ingest import unpack
from rankscope.ingest.bytesource import open_bytes, zip_members
from rankscope.store.errors import UnreadableFile, UsageError

CONTENT = "".join(f'{{"a": {random.Random(i).random()}}},' for i in range(40_000)).encode()


def packed(kind: str) -> bytes:
    if kind == "gzip":
        return gzip.compress(CONTENT)
    if kind == "zstd":
        return bytes(pa.compress(CONTENT, "zstd", asbytes=True))
    if kind == "zip":
        return zipped({"a.json": CONTENT})
    return CONTENT


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def read(path: Path, content: bytes, **options: str) -> tuple[bytes, str | None, str]:
    path.write_bytes(content)
    with open_bytes(str(path), **options) as source:
        data = b"".join(source.chunks(1 << 16))
        assert source.n_bytes == len(data)
        return data, source.problem, source.compression


@pytest.mark.parametrize("kind", ["none", "gzip", "zstd", "zip"])
def test_every_packing_is_told_by_its_bytes_not_by_its_name(tmp_path: Path, kind: str) -> None:
    assert read(tmp_path / "trace.json", packed(kind)) == (CONTENT, None, kind)


def test_all_members_of_a_gzip_and_zeros_behind_them_are_one_stream(tmp_path: Path) -> None:
    content = gzip.compress(CONTENT) + gzip.compress(b"") + gzip.compress(b"tail") + b"\0" * 512
    assert read(tmp_path / "a.gz", content) == (CONTENT + b"tail", None, "gzip")


def test_two_zstd_frames_are_one_stream(tmp_path: Path) -> None:
    assert read(tmp_path / "a", packed("zstd") * 2)[0] == CONTENT * 2


@pytest.mark.parametrize("kind", ["gzip", "zstd", "zip"])
def test_a_stream_cut_short_gives_all_it_had_and_says_so(tmp_path: Path, kind: str) -> None:
    whole = packed(kind)
    data, problem, _ = read(tmp_path / "a", whole[: len(whole) * 2 // 3])
    assert CONTENT.startswith(data)
    assert len(data) > len(CONTENT) // 2
    assert problem is not None


def test_a_gzip_without_its_trailer_is_complete_but_reported(tmp_path: Path) -> None:
    data, problem, _ = read(tmp_path / "a", packed("gzip")[:-8])
    assert data == CONTENT
    assert problem == "gzip stream ends early"


def test_a_gzip_with_a_wrong_checksum_gives_its_content_and_a_problem(tmp_path: Path) -> None:
    data, problem, _ = read(tmp_path / "a", packed("gzip")[:-8] + b"\0" * 8)
    assert data == CONTENT
    assert problem is not None
    assert "damaged" in problem


def test_damage_inside_a_gzip_loses_nothing_in_front_of_it(tmp_path: Path) -> None:
    # Given a stored block, whose length field is destroyed half way.
    first, second = CONTENT[:60_000], CONTENT[60_000:]
    packer = gzip.zlib.compressobj(0, gzip.zlib.DEFLATED, 31)
    head = packer.compress(first) + packer.flush(gzip.zlib.Z_FULL_FLUSH)
    content = head + b"\xff" * 40 + second
    data, problem, _ = read(tmp_path / "a", content)
    assert data == first
    assert problem is not None


def test_the_standard_librarys_gunzip_gives_the_same_when_isal_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    assert unpack._inflater()[0] is unpack._StdlibInflate
    two = gzip.compress(CONTENT) + gzip.compress(b"tail")
    assert read(tmp_path / "a", two) == (CONTENT + b"tail", None, "gzip")
    assert read(tmp_path / "b", two[:-12])[1] == "gzip stream ends early"


def test_a_gzip_bomb_streams_in_small_pieces(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=9) as out:
        for _ in range(64):
            out.write(bytes(1 << 20))
    with open_bytes(str(path)) as source:
        sizes = [len(piece) for piece in source.chunks(1 << 20)]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= 2 << 20


def test_members_of_a_zip_are_named_and_chosen(tmp_path: Path) -> None:
    content = zipped({"d/": b"", "d/b.json": b"bb", "__MACOSX/d/._b.json": b"x", "a.json.gz": packed("gzip")})
    path = tmp_path / "runs.zip"
    assert read(path, content)[0] == b"bb"
    assert zip_members(str(path)) == ["d/b.json", "a.json.gz"]
    assert read(path, content, member="a.json.gz")[0] == CONTENT  # packed twice
    with pytest.raises(UsageError), open_bytes(str(path), member="nope") as source:
        list(source.chunks())


def test_a_zip_without_directory_still_names_its_first_file(tmp_path: Path) -> None:
    whole = zipped({"d/": b"", "d/b.json": CONTENT})
    path = tmp_path / "cut.zip"
    data, problem, _ = read(path, whole[: len(whole) // 2])
    assert CONTENT.startswith(data)
    assert data
    assert problem is not None
    assert zip_members(str(path)) == ["d/b.json"]


def test_what_is_no_zip_has_no_members(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"{}")
    assert zip_members(str(path)) == []


@pytest.mark.parametrize(
    "content", [b"", b"\x1f\x8b", b"\x1f\x8b\x08junkjunkjunk", b"\x28\xb5\x2f\xfdjunk", b"PK\x03\x04"]
)
def test_a_stub_of_a_file_is_empty_and_never_raises(tmp_path: Path, content: bytes) -> None:
    data, _, _ = read(tmp_path / "a", content)
    assert data == b""


def test_a_url_is_read_through_fsspec() -> None:
    with fsspec.open("memory://bytesource/t.json.gz", "wb") as out:
        out.write(packed("gzip"))
    with open_bytes("memory://bytesource/t.json.gz") as source:
        assert b"".join(source.chunks()) == CONTENT
        assert source.n_compressed == len(packed("gzip"))


def test_what_does_not_exist_or_may_not_be_read_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_bytes(str(tmp_path / "missing.json"))
    with pytest.raises(UsageError):
        open_bytes("memory://bytesource/missing.json")
    with pytest.raises(UnreadableFile):
        open_bytes(str(tmp_path))
    with pytest.raises(UnreadableFile):
        open_bytes("nosuchprotocol://x/y")


def test_chunks_start_over_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(packed("gzip"))
    with open_bytes(str(path)) as source:
        next(source.chunks(1000))
        assert b"".join(source.chunks()) == CONTENT
