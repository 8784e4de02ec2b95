"""Sums and means of breakdown rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from builders_analysis import act, activities, host_activities, shuffled, window, windows

from rankscope.analysis.aggregate import aggregate
from rankscope.analysis.breakdown import breakdown
from rankscope.store.errors import UsageError


def rows(unrecorded: pa.Table | None = None) -> pa.Table:
    """Two ranks, two steps: walls 100 and 60; rank 1 computes longer and has its own host name."""
    acts = activities(
        act("compute", 0, 40), act("comm", 30, 50), act("compute", 110, 140),
        act("compute", 0, 60, rank=1), act("comm", 50, 80, rank=1, group_size=1), act("compute", 110, 150, rank=1),
    )  # fmt: skip
    tiles = windows(
        *(
            window(a, b, s, rank=r, host=h, coords=f"dp{r}", gpu="GPU-A", phase=p)
            for r, h in ((0, "a"), (1, "b"))
            for a, b, s, p in ((0, 100, 4, "prefill"), (100, 160, 5, "decode"))
        )
    )
    return breakdown(acts, tiles, unrecorded=unrecorded)


def test_the_default_is_a_row_of_exact_sums_per_rank_and_device() -> None:
    first, second = aggregate(rows()).to_pylist()
    assert (first["rank"], first["n"], first["wall_ns"], first["wall_min_ns"], first["wall_max_ns"]) == (
        0,
        2,
        160,
        60,
        100,
    )
    assert (first["compute_ns"], first["communication_ns"], first["overlap_ns"]) == (70, 20, 10)
    assert first["overlap_ratio"] == 10 / 20
    assert (second["compute_ns"], second["transfer_ns"], second["bubble_ns"]) == (100, 20, second["idle_ns"])
    assert second["overlap_ratio"] == 10 / 30
    assert (first["bubble_ns"], first["bubble_max_ns"] - first["bubble_min_ns"]) == (None, 10)


def test_what_all_rows_share_is_kept_and_what_differs_is_null() -> None:
    first = aggregate(rows()).to_pylist()[0]
    assert (first["host"], first["coords"], first["gpu"], first["world"], first["window"]) == (
        "a",
        "dp0",
        "GPU-A",
        "0",
        0,
    )
    assert (first["step"], first["phase"]) == (None, None)
    (everything,) = aggregate(rows(), ["run"]).to_pylist()
    assert (everything["rank"], everything["host"], everything["gpu"], everything["n"]) == (
        None,
        None,
        "GPU-A",
        4,
    )


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        (["step"], [(4,), (5,)]),
        (["phase"], [("decode",), ("prefill",)]),
        (["host"], [("a",), ("b",)]),
        (["coords", "step"], [("dp0", 4), ("dp0", 5), ("dp1", 4), ("dp1", 5)]),
        (["window", "world"], [(0, "0")]),
        (["step", "rank"], [(4, 0), (4, 1), (5, 0), (5, 1)]),
    ],
)
def test_rows_come_sorted_by_their_keys(by: list[str], keys: list[tuple[Any, ...]]) -> None:
    got = aggregate(shuffled(rows(), 3), by).to_pylist()
    assert [tuple(r[k] for k in by) for r in got] == keys
    assert sum(r["n"] for r in got) == 4


def test_means_are_floats_per_window_in_ms() -> None:
    table = aggregate(rows(), ["rank"], mean=True)
    assert not [c for c in table.column_names if c.endswith("_ns")]
    first = table.to_pylist()[0]
    assert first["wall_ms"] == 80 / 1e6
    assert (first["wall_min_ms"], first["wall_max_ms"]) == (60 / 1e6, 100 / 1e6)
    assert (first["compute_ms"], first["bubble_ms"], first["n"]) == (35 / 1e6, None, 2)
    assert table.schema.field("wall_ms").type == pa.float64()


def test_a_sum_over_an_unknown_is_unknown() -> None:
    # The host issued communication in capture 0 of rank 1 that is nowhere recorded.
    acts = activities(act("compute", 0, 40), act("comm", 30, 50), act("compute", 0, 40, rank=1))
    tiles = windows(window(0, 100), window(0, 100, rank=1))
    missing = pa.table({"world": ["0"], "rank": [1], "window": [0]})
    (row,) = aggregate(breakdown(acts, tiles, unrecorded=missing), ["run"]).to_pylist()
    assert (row["communication_ns"], row["overlap_ratio"], row["is_comm_recorded"]) == (None, None, False)
    assert (row["overlap_ns"], row["exposed_comm_ns"]) == (10, 10)


def test_device_and_host_rows_never_mix() -> None:
    tiles = windows(window(0, 10), window(0, 30, rank=1, device=None, timeline="host"))
    table = breakdown(activities(act("compute", 0, 5)), tiles, host_activities=host_activities())
    got = aggregate(table, ["run"]).to_pylist()
    assert [(r["timeline"], r["wall_ns"], r["n"]) for r in got] == [("device", 10, 1), ("host", 30, 1)]


def test_unknown_devices_come_last() -> None:
    tiles = windows(window(0, 10, device=None), window(0, 10, device=3))
    got = aggregate(breakdown(activities(), tiles), ["device"]).to_pylist()
    assert [r["device"] for r in got] == [3, None]


def test_causes_shown_apart_are_summed_too() -> None:
    tiles = windows(window(0, 10), window(10, 20))
    table = aggregate(breakdown(activities(), tiles, causes="full"), ["rank"])
    assert table.column("allocator_ns").to_pylist() == [0]


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="cannot sum by colour") as caught:
        aggregate(rows(), ["rank", "colour"])
    assert "rank, device, step" in str(caught.value)
    assert caught.value.exit_code == 2


def test_no_rows_aggregate_to_no_rows() -> None:
    table = aggregate(breakdown(activities(), windows()))
    assert table.num_rows == 0
    assert {"wall_ns", "n", "wall_min_ns"} <= set(table.column_names)
    assert aggregate(breakdown(activities(), windows()), mean=True).num_rows == 0
