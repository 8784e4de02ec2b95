"""Parts appear whole or not at all, encoded as measured, the same bytes however the rows arrive."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders_store import SOURCE_ID, events, rows

from rankscope.store import layout
from rankscope.store.errors import MissingColumn, UnreadableFile
from rankscope.store.place import Place
from rankscope.store.writer import (
    ROW_GROUP,
    PartWriter,
    compacted,
    file_schema,
    read_receipt,
    write_receipt,
    write_single,
    write_table,
)

SOURCE = SOURCE_ID
WHERE = {"source_id": SOURCE, "rank": 0, "constants": {"host": "n0", "world": "0", "window": 0}}


def _write(root: Path, batches: list[pa.Table]) -> bytes:
    with PartWriter(Place(str(root)), "events", **WHERE) as writer:  # type: ignore[arg-type]
        for batch in batches:
            writer.write(batch)
    return (root / writer.part.path).read_bytes()


def test_the_file_has_every_column_but_the_rank_with_constants_filled_in(tmp_path: Path) -> None:
    part = write_table(Place(str(tmp_path)), "events", events(3), **WHERE)  # type: ignore[arg-type]
    assert (part.rows, part.rank, part.world, part.window) == (3, 0, "0", 0)
    table = pq.ParquetFile(tmp_path / part.path).read()
    assert table.schema.equals(file_schema("events"))
    assert "rank" not in table.column_names
    assert table.column("host").to_pylist() == ["n0"] * 3
    assert table.column("window").to_pylist() == [0] * 3
    assert table.column("local_rank").null_count == 3
    assert table.column("start_ns").to_pylist() == [0, 1, 2]


def test_a_part_without_rows_still_has_its_schema(tmp_path: Path) -> None:
    part = write_table(Place(str(tmp_path)), "steps", rows("steps"), **WHERE)  # type: ignore[arg-type]
    assert part.rows == 0
    assert pq.ParquetFile(tmp_path / part.path).schema_arrow.equals(file_schema("steps"))


def test_the_bytes_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    whole = events(1000)
    pieces = [whole.slice(0, 1), whole.slice(1, 499), whole.slice(500)]
    assert _write(tmp_path / "a", [whole]) == _write(tmp_path / "b", pieces)
    records = [b for t in pieces for b in t.to_batches(max_chunksize=7)]
    assert _write(tmp_path / "c", records) == _write(tmp_path / "a", [whole])


def test_row_groups_are_of_bounded_size_and_encoded_as_measured(tmp_path: Path) -> None:
    _write(tmp_path, [events(ROW_GROUP - 10), events(ROW_GROUP + 30)])
    (path,) = tmp_path.rglob("*.parquet")
    meta = pq.ParquetFile(path).metadata
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [ROW_GROUP, ROW_GROUP, 20]
    columns = {
        meta.row_group(0).column(i).path_in_schema: meta.row_group(0).column(i)
        for i in range(meta.num_columns)
    }
    assert columns["start_ns"].compression == "ZSTD"
    assert "DELTA_BINARY_PACKED" in columns["start_ns"].encodings
    assert columns["start_ns"].is_stats_set and columns["cat"].is_stats_set
    assert columns["name"].has_dictionary_page and not columns["name"].is_stats_set
    assert not columns["correlation"].is_stats_set


def test_a_dictionary_keeps_only_the_values_in_use_in_order_of_first_use() -> None:
    codes = pa.array([4, 2, None, 4], pa.int32())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(list("abcde")))
    out = compacted(pa.table({"x": column})).column("x")
    assert out.to_pylist() == ["e", "c", None, "e"]
    assert out.chunk(0).dictionary.to_pylist() == ["e", "c"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="killed"),
        PartWriter(Place(str(tmp_path)), "events", **WHERE) as writer,  # type: ignore[arg-type]
    ):
        writer.write(events(3))
        raise RuntimeError("killed")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_failed_write_of_a_remote_file_leaves_nothing() -> None:
    place = Place("memory://writer-fails")
    with pytest.raises(RuntimeError), place.writing("a/b.bin") as stream:
        stream.write(b"half")
        raise RuntimeError
    assert not place.exists("a/b.bin")


def test_a_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("a file where a folder must be")
    with pytest.raises(UnreadableFile, match="cannot be written"):
        write_table(Place(str(tmp_path)), "events", events(1), **WHERE)  # type: ignore[arg-type]


def test_text_that_is_not_dictionary_coded_is_accepted(tmp_path: Path) -> None:
    plain = pa.table({"name": pa.array(["a", None]), "start_ns": pa.array([1, 2])})
    part = write_table(Place(str(tmp_path)), "events", plain, **WHERE)  # type: ignore[arg-type]
    assert pq.ParquetFile(tmp_path / part.path).read().column("name").to_pylist() == ["a", None]


def test_single_tables_need_every_column(tmp_path: Path) -> None:
    with pytest.raises(MissingColumn, match="severity"):
        write_single(Place(str(tmp_path)), "quality", pa.table({"code": ["x"]}))


def test_receipts_are_read_back_and_broken_ones_are_none(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    assert read_receipt(place, SOURCE) is None
    write_receipt(place, SOURCE, {"status": "whole"})
    assert read_receipt(place, SOURCE) == {"status": "whole"}
    place.write(layout.receipt_path(SOURCE), b'{"status": ')
    assert read_receipt(place, SOURCE) is None
