"""Kernels by name."""

from __future__ import annotations

from typing import Any

import pytest
from builders_analysis import act, activities, host_activities, shuffled, window, windows

from rankscope.analysis.kernels import kernels


def gemm(start: int, end: int, **given: Any) -> dict[str, Any]:
    return act("compute", start, end, name="gemm", **given)


def rows(*acts: dict[str, Any], tiles: Any = None) -> list[dict[str, Any]]:
    return kernels(shuffled(activities(*acts), 7), tiles).to_pylist()


def test_counts_times_and_shares_costliest_first() -> None:
    got = rows(gemm(0, 10), gemm(20, 50), act("comm", 0, 60, name="nccl"), gemm(5, 5))
    assert [(r["name"], r["count"], r["total_ns"]) for r in got] == [("nccl", 1, 60), ("gemm", 3, 40)]
    assert (got[1]["mean_ns"], got[1]["min_ns"], got[1]["max_ns"]) == (40 / 3, 0, 30)
    assert [r["share_ratio"] for r in got] == [0.6, 0.4]


def test_equal_totals_are_ordered_by_name() -> None:
    got = rows(act("compute", 0, 5, name="b"), act("compute", 0, 5, name="a"))
    assert [r["name"] for r in got] == ["a", "b"]


def test_percentiles_are_recorded_durations() -> None:
    # 1..200 ns: nearest rank p50 is the 100th, p99 the 198th
    (row,) = rows(*(gemm(0, d) for d in range(1, 201)))
    assert (row["p50_ns"], row["p99_ns"]) == (100, 198)
    (row,) = rows(gemm(0, 7))
    assert (row["p50_ns"], row["p99_ns"]) == (7, 7)


def test_one_name_of_two_classes_or_rules_is_two_rows() -> None:
    got = rows(
        gemm(0, 5), act("comm", 0, 4, name="gemm"), gemm(0, 3, rule="other"), gemm(0, 2, copy_kind="h2d")
    )
    assert [(r["class"], r["rule"], r["copy_kind"]) for r in got] == [
        ("compute", "test", None),
        ("comm", "test", None),
        ("compute", "other", None),
        ("compute", "test", "h2d"),
    ]


def test_invalid_activities_are_left_out() -> None:
    assert [r["count"] for r in rows(gemm(0, 5), gemm(0, 900, valid=False))] == [1]


def test_the_spread_over_ranks_compares_means() -> None:
    # rank 0: mean 10; rank 1: mean 15
    (row,) = rows(gemm(0, 10), gemm(20, 30), gemm(0, 15, rank=1))
    assert (row["n_ranks"], row["rank_spread_ratio"]) == (2, 0.5)
    assert rows(gemm(0, 10), gemm(0, 20))[0]["rank_spread_ratio"] is None
    assert rows(gemm(0, 0), gemm(0, 20, rank=1))[0]["rank_spread_ratio"] is None


def test_slowdown_is_the_mean_under_communication_over_the_mean_without() -> None:
    nccl = act("comm", 100, 200, name="nccl", stream=20)
    got = {r["name"]: r for r in rows(nccl, gemm(0, 10), gemm(20, 30), gemm(100, 115))}
    assert got["gemm"]["slowdown_under_comm_ratio"] == pytest.approx(1.5)
    assert got["nccl"]["slowdown_under_comm_ratio"] is None
    # half of a 20 ns kernel under communication: weights 1/2 on both sides; with = 20, without = (10 + 20/2) / 1.5
    got = {r["name"]: r for r in rows(nccl, gemm(0, 10), gemm(90, 110))}
    assert got["gemm"]["slowdown_under_comm_ratio"] == pytest.approx(20 / (20 / 1.5))
    assert rows(gemm(0, 10))[0]["slowdown_under_comm_ratio"] is None
    other_device = act("comm", 0, 200, name="nccl", device=1)
    assert rows(gemm(0, 10), gemm(20, 30), other_device)[1]["slowdown_under_comm_ratio"] is None


def test_an_activity_counts_in_the_window_in_which_it_starts() -> None:
    tiles = windows(window(0, 10), window(20, 30))
    acts = [
        gemm(0, 5),
        gemm(9, 25),
        gemm(10, 12),
        gemm(20, 21),
        gemm(30, 30),
        gemm(30, 31),
        gemm(20, 21, rank=1),
    ]
    (row,) = rows(*acts, tiles=tiles)
    assert (row["count"], row["total_ns"]) == (4, 5 + 16 + 1)


def test_host_ranges_can_be_counted_too() -> None:
    got = kernels(host_activities(("compute", 0, 5), ("comm", 0, 9))).to_pylist()
    assert [(r["name"], r["total_ns"], r["copy_kind"]) for r in got] == [
        ("comm", 9, None),
        ("compute", 5, None),
    ]


def test_no_activities_give_no_rows_and_all_columns() -> None:
    empty, full = kernels(activities()), kernels(activities(gemm(0, 1)))
    assert empty.schema == full.schema
    assert empty.num_rows == 0
