"""Findings and the parts of the mean step."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from builders_analysis import act, activities, event, events, host_activities, window, windows

from rankscope.analysis.breakdown import breakdown
from rankscope.analysis.findings import COLUMNS, IDLE_GROUPS, findings
from rankscope.analysis.idle import idle_segments
from rankscope.store.schema import CAUSES


def account(
    acts: list[dict[str, Any]], host: list[dict[str, Any]], tiles: pa.Table, **given: Any
) -> pa.Table:
    table, hosts = activities(*acts), events(*host)
    idle = idle_segments(table, hosts, windows=tiles, kernel_gap_ns=3, sync_slack_ns=2)
    return breakdown(table, tiles, idle=idle, **given)


def test_the_costliest_comes_first_with_exact_mean_costs() -> None:
    # Two steps of 1000: idle 400 under an operator in the first, exposed communication of 300 in each.
    acts = [
        act("compute", 0, 300, launch=0, correlation=1),
        act("comm", 700, 1000, launch=700, correlation=2),
        act("compute", 1000, 1700, launch=1, correlation=3),
        act("comm", 1700, 2000, launch=2, correlation=4),
    ]
    tiles = windows(window(0, 1000, 1), window(1000, 2000, 2))
    got = findings(account(acts, [event("cpu_op", "aten::mm", 300, 640)], tiles)).to_pylist()
    assert [(f["code"], f["cost_ns"], f["cost_ratio"]) for f in got] == [
        ("exposed_comm", 300, 0.3),
        ("host_bound", 200, 0.2),
    ]
    assert got[1]["cause"] == "host_dispatch"
    assert got[1]["evidence"] == "85 % of it is host dispatch"
    assert "waiting is unknown" in got[0]["evidence"]
    assert {f["ceiling_ns"] for f in got} == {None}
    assert all(f["next_command"].startswith("rankscope ") for f in got)


def test_what_costs_less_than_a_percent_says_nothing() -> None:
    acts = [act("compute", 0, 991), act("memcpy", 991, 1000)]
    assert findings(account(acts, [], windows(window(0, 1000)))).num_rows == 0


def test_uneven_compute_names_the_slow_rank_and_is_a_bound() -> None:
    acts = [act("compute", 0, 600), act("compute", 0, 1000, rank=1)]
    tiles = windows(window(0, 1000), window(0, 1000, rank=1))
    got = {f["code"]: f for f in findings(account(acts, [], tiles)).to_pylist()}
    assert got["imbalance"]["cost_ns"] == 200
    assert (got["imbalance"]["ranks"], got["imbalance"]["status"]) == ("1", "bound")


def test_ranks_above_the_mean_are_named() -> None:
    acts = [act("compute", 0, 600), act("memcpy", 600, 1000), act("compute", 0, 1000, rank=1)]
    tiles = windows(window(0, 1000), window(0, 1000, rank=1))
    got = {f["code"]: f for f in findings(account(acts, [], tiles)).to_pylist()}
    assert (got["memcpy_exposed"]["cost_ns"], got["memcpy_exposed"]["ranks"]) == (200, "0")


def test_host_timelines_make_no_statement_about_a_gpu() -> None:
    tiles = windows(window(0, 1000, device=None, timeline="host"))
    hosts = host_activities(("compute", 0, 200), ("comm", 200, 500))
    (only,) = findings(account([], [], tiles, host_activities=hosts)).to_pylist()
    assert only["code"] == "exposed_comm"
    assert "host times" in only["title"]


def test_no_rows_no_findings() -> None:
    table = findings(breakdown(activities(), windows()))
    assert (table.num_rows, tuple(table.column_names)) == (0, COLUMNS)


def test_every_cause_is_in_one_group() -> None:
    assert sorted(c for g in IDLE_GROUPS.values() for c in g) == sorted(CAUSES)
