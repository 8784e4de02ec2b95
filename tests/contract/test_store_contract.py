"""A store is plain Parquet: other tools read it without us."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders_store import small_store

from rankscope.store import layout
from rankscope.store.reader import RunStore
from rankscope.store.schema import STORED


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contract") / "run"
    small_store(str(path), ranks=3, n=5)
    return path


@pytest.mark.parametrize("name", layout.PARTITIONED)
def test_pyarrow_dataset_reads_every_table(root: Path, name: str) -> None:
    from pyarrow import dataset

    found = dataset.dataset(root / name, partitioning="hive", format="parquet")
    table = found.to_table()
    assert set(table.column_names) == set(STORED[name].arrow.names)
    assert table.num_rows == (15 if name == "events" else 0)
    if name == "events":
        assert found.to_table(filter=dataset.field("rank") == 2).num_rows == 5


@pytest.mark.parametrize("name", layout.PARTITIONED)
def test_pandas_reads_every_table(root: Path, name: str) -> None:
    import pandas as pd

    frame = pd.read_parquet(root / name)
    assert set(frame.columns) == set(STORED[name].arrow.names)
    assert len(frame) == (15 if name == "events" else 0)
    if name == "events":
        assert sorted(frame["rank"].astype(int).unique()) == [0, 1, 2]
        assert frame["start_ns"].dtype == "int64"


@pytest.mark.parametrize("name", layout.PARTITIONED)
def test_duckdb_reads_every_table(root: Path, name: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    pattern = f"{root}/{name}/*/*.parquet"
    query = "SELECT * FROM read_parquet(?, hive_partitioning=true)"
    with duckdb.connect() as connection:
        answer = connection.execute(query, [pattern])
        names = [d[0] for d in answer.description]
        rows = answer.fetchall()
    assert set(names) == set(STORED[name].arrow.names)
    assert len(rows) == (15 if name == "events" else 0)


@pytest.mark.parametrize("name", layout.SINGLE)
def test_the_tables_of_the_run_are_single_files(root: Path, name: str) -> None:
    import pyarrow.parquet as pq

    assert pq.ParquetFile(root / layout.single_path(name)).schema_arrow.equals(STORED[name].arrow)


def test_our_reader_and_a_plain_one_agree(root: Path) -> None:
    from pyarrow import dataset

    ours = RunStore(root).table("events").sort_by([("rank", "ascending"), ("start_ns", "ascending")])
    plain = dataset.dataset(root / "events", partitioning="hive").to_table(columns=ours.column_names)
    plain = plain.sort_by([("rank", "ascending"), ("start_ns", "ascending")])
    assert ours.to_pylist() == plain.to_pylist()
