"""Arrow columns as numpy, and rows by timeline."""

from __future__ import annotations

import pyarrow as pa
import pytest
from builders_analysis import event, events

from rankscope.analysis.tables import flags, ints, need, rows_by, text, threads
from rankscope.store.errors import MissingColumn


def test_nulls_become_masks() -> None:
    table = pa.table({"a": pa.array([1, None, 3]), "b": pa.array([True, None, False])})
    values, known = ints(table, "a")
    assert (values.tolist(), known.tolist()) == ([1, 0, 3], [True, False, True])
    assert flags(table, "b", default=True).tolist() == [True, True, False]
    assert ints(table, "absent")[1].tolist() == [False] * 3
    assert flags(table, "absent", default=False).tolist() == [False] * 3


def test_large_integers_keep_every_digit_beside_nulls() -> None:
    table = pa.table({"a": pa.array([1_700_000_000_000_000_001, None])})
    assert ints(table, "a")[0][0] == 1_700_000_000_000_000_001


def test_text_codes_are_in_order_of_the_text_whatever_the_chunks() -> None:
    chunks = [pa.array(["b", None]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()]
    found = text(pa.table({"t": pa.chunked_array(chunks)}), "t")
    assert (found.codes.tolist(), found.values) == ([1, -1, 0, 1], ("a", "b"))
    assert found.arrow().to_pylist() == ["b", None, "a", "b"]
    assert found.is_one_of("b").tolist() == [True, False, False, True]
    assert text(pa.table({"t": pa.chunked_array([], pa.string())}), "t").values == ()


def test_threads_are_named_by_process_and_thread() -> None:
    found = threads(events(event("cpu_op", "x", 0, 1), event("cpu_op", "x", 0, 1, pid=None, tid="9")))
    assert [found.values[c] for c in found.codes] == ["1/1", "?/9"]


def test_rows_by_key_are_sorted_with_nulls_last() -> None:
    table = pa.table(
        {
            "world": ["b", "a", "a", None, "a"],
            "rank": [0, 1, None, 0, 1],
            "window": [0] * 5,
            "device": [0] * 5,
        }
    )
    got = {k: v.tolist() for k, v in rows_by(table).items()}
    assert list(got) == [("a", 1, 0, 0), ("a", None, 0, 0), ("b", 0, 0, 0), (None, 0, 0, 0)]
    assert got[("a", 1, 0, 0)] == [1, 4]
    assert rows_by(table.slice(0, 0)) == {}


def test_missing_columns_are_named() -> None:
    with pytest.raises(MissingColumn, match="steps lacks b"):
        need(pa.table({"a": [1]}), ["a", "b"], "steps")
