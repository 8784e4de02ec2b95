"""Results as JSON, CSV, Markdown and Parquet, to the screen and to files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from rankscope.cli import render
from rankscope.cli.options import Format, Output
from rankscope.cli.table import Block, Col
from rankscope.store.errors import UsageError

BIG = 2**60 + 1


@pytest.fixture
def table() -> pa.Table:
    return pa.table(
        {
            "name": pa.array(['a,"b"\n', None]).dictionary_encode(),
            "start_ns": pa.array([BIG, None], pa.int64()),
            "ratio": pa.array([float("nan"), 0.5]),
            "is_bound": pa.array([True, None]),
            "ranks": pa.array([[0, 1], None], pa.list_(pa.int64())),
        }
    )


def test_json_is_one_array_with_exact_integers_and_null_for_unknown(table: pa.Table) -> None:
    text = "".join(render.json_chunks(table))
    assert "NaN" not in text
    first, second = json.loads(text)
    assert first == {"name": 'a,"b"\n', "start_ns": BIG, "ratio": None, "is_bound": True, "ranks": [0, 1]}
    assert second == {"name": None, "start_ns": None, "ratio": 0.5, "is_bound": None, "ranks": None}


def test_a_table_without_rows_is_an_empty_array(table: pa.Table) -> None:
    assert json.loads("".join(render.json_chunks(table.slice(0, 0)))) == []


def test_csv_has_a_header_and_empty_cells_for_unknown(table: pa.Table) -> None:
    rows = list(csv.reader(io.StringIO("".join(render.csv_chunks(table)))))
    assert rows == [
        ["name", "start_ns", "ratio", "is_bound", "ranks"],
        ['a,"b"\n', str(BIG), "", "true", "[0, 1]"],
        ["", "", "0.5", "", ""],
    ]


def test_infinity_inside_a_list_is_null() -> None:
    table = pa.table({"x": pa.array([[float("inf"), 1.0]])})
    assert json.loads("".join(render.json_chunks(table))) == [{"x": [None, 1.0]}]


def test_the_suffix_of_the_file_names_the_format_unless_one_is_given() -> None:
    assert render.chosen_format(Output(out="x.parquet")) is Format.PARQUET
    assert render.chosen_format(Output(out="x.json", format=Format.CSV)) is Format.CSV
    assert render.chosen_format(Output(out="x.txt")) is Format.TABLE
    assert render.chosen_format(Output()) is Format.TABLE


def test_parquet_without_a_file_is_a_usage_error() -> None:
    with pytest.raises(typer.BadParameter):
        render.chosen_format(Output(format=Format.PARQUET))


def test_parquet_keeps_the_columns_and_their_types(table: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    render.emit(table, list, Output(out=str(path)))
    assert pq.ParquetFile(path).read().column("start_ns").to_pylist() == [BIG, None]


def test_a_result_written_to_a_file_leaves_the_screen_alone(
    table: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    render.emit(table, list, Output(out=str(path)))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"wrote {path}\n"
    assert json.loads(path.read_text())[0]["start_ns"] == BIG


def test_a_place_that_cannot_be_written_is_a_usage_error(table: pa.Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        render.emit(table, list, Output(out=str(tmp_path / "no" / "x.json")))


def test_the_screen_is_made_only_when_it_is_shown(
    table: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    def never() -> list[Block]:
        raise AssertionError

    render.emit(table, never, Output(format=Format.JSON))
    render.emit(table, lambda: [Block("T", [Col("n")], [["1"]])], Output())
    assert capsys.readouterr().out.endswith("T\nn\n1\n")


def test_a_line_is_drawn_over_only_on_a_terminal_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    assert render.can_redraw(Terminal())
    assert not render.can_redraw(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not render.can_redraw(Terminal())
