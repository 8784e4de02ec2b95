"""Selections are checked once, and wrong ones say what was meant."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from builders_store import small_store

from rankscope._frames import frame, plain
from rankscope._overview import dataset_of
from rankscope.queries import Query
from rankscope.store.errors import UsageError
from rankscope.store.reader import RunStore
from rankscope.store.schema import STORED


def test_numbers_are_taken_alone_or_in_lists_in_any_order() -> None:
    chosen = Query().but({"ranks": 3, "window": [2, 0, 2], "steps": (5, 4)})
    assert (chosen.ranks, chosen.windows, chosen.steps) == ((3,), (0, 2), (4, 5))
    assert Query().but({"windows": 1}) == Query().but({"window": 1})
    assert Query().but({"ranks": None}).ranks is None
    assert chosen.but({"steps": "none"}).ranks == (3,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": "some"},
        {"steps": [1.5]},
        {"ranks": "0-3"},
        {"ranks": [True]},
        {"kernel_gap_ns": -1},
        {"kernel_gap_ns": [1, 2]},
        {"window": 1, "windows": 2},
    ],
)
def test_values_of_the_wrong_kind_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Query().but(wrong)  # type: ignore[arg-type]


def test_an_unknown_argument_names_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'ranks'"):
        Query().but({"rank": 1})  # type: ignore[typeddict-unknown-key]


def test_integers_stay_exact_in_a_frame_with_and_without_nulls() -> None:
    import pandas as pd

    big = 1_700_000_000_123_456_789
    table = pa.table(
        {
            "a": pa.array([big, None]),
            "b": pa.array([1, 2]),
            "c": pa.array([0.5, None]),
            "d": pa.array(["x", None]).dictionary_encode(),
            "e": pa.array([True, None]),
        }
    )
    made = frame(table)
    assert [str(made[c].dtype) for c in "abce"] == ["Int64", "Int64", "Float64", "boolean"]
    assert made["a"].iloc[0] == big and made["a"].isna().tolist() == [False, True]
    assert made["d"].iloc[0] == "x" and made["d"].iloc[1] is pd.NA
    assert frame(table.slice(0, 0))["a"].dtype == made["a"].dtype
    assert plain(table).column("d").type == pa.string()


@pytest.mark.parametrize("where", ["rank=9/run", "run"])
def test_a_scan_sees_the_files_of_the_manifest_only(tmp_path: Path, where: str) -> None:
    small_store(str(tmp_path / where), ranks=3)
    store = RunStore(tmp_path / where)
    stray = tmp_path / where / "events" / "rank=7"
    stray.mkdir()
    (stray / "ffffffffffff.parquet").write_bytes(
        (tmp_path / where / store.parts("events")[0].path).read_bytes()
    )
    found = dataset_of(store, "events")
    assert set(found.schema.names) == set(STORED["events"].arrow.names)
    table = found.to_table(columns=["rank", "start_ns"])
    assert table.num_rows == 12 and sorted(set(table.column("rank").to_pylist())) == [0, 1, 2]
    assert dataset_of(store, "quality").to_table().num_rows == 0
    with pytest.raises(UsageError, match="no table"):
        dataset_of(store, "nope")


def test_a_scan_of_a_remote_store_works(tmp_path: Path) -> None:
    small_store("memory://scan/run", ranks=2)
    assert dataset_of(RunStore("memory://scan/run"), "events").count_rows() == 8
