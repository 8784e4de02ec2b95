"""The breakdown's screen: means, spread, ranges, host rows apart."""

from __future__ import annotations

from typing import Any

import builders_cli as build

from rankscope.cli import breakdown
from rankscope.cli.table import render_blocks

MS = build.MS


def _screen(rows: list[dict[str, Any]], by: list[str], **kw: Any) -> str:
    return render_blocks(breakdown.screen(build.breakdown_table(rows), by, **kw), columns=80)


def _summed(rank: int, n: int) -> dict[str, Any]:
    one = build.window(rank)
    return {k: v * n if k.endswith("_ns") and isinstance(v, int) else v for k, v in one.items()} | {
        "n": n,
        "step": None,
    }


def test_sums_are_shown_as_means_with_n_and_the_spread_of_the_step_time() -> None:
    text = _screen([_summed(0, 2) | {"wall_min_ns": 90 * MS, "wall_max_ns": 110 * MS}], ["rank", "device"])
    assert "   0   100.0  50.0 50.0%  10.0 10.0%  15.0 15.0%  5.0 5.0%  20.0 20.0%" in text
    assert "90.0-110.0" in text
    assert "   0  2  " in text


def test_the_bubble_is_a_range_while_waiting_is_unknown_and_never_stands_alone() -> None:
    text = _screen([build.window()], ["rank"])
    assert "20.0 to 35.0" in text
    assert "wait\n" in text
    assert "unknown" in text
    split = build.window(
        unsplit_comm_ns=0,
        transfer_ns=9 * MS,
        straggler_wait_ns=6 * MS,
        bubble_min_ns=26 * MS,
        bubble_max_ns=26 * MS,
    )
    text = _screen([split], ["rank"])
    assert " to " not in text
    assert "unknown" not in text
    assert "stragglers" in text
    assert "transfer" in text


def test_host_rows_stand_in_a_block_of_their_own_that_says_so() -> None:
    host = build.window(1, timeline="host", device=None)
    text = _screen([build.window(0), host], ["rank", "device"])
    device, host_part = text.split("Host times")
    assert "no GPU times" in host_part
    assert "   0   100.0" in device
    assert "   1   100.0" not in device
    assert "   1   100.0" in host_part


def test_the_device_is_a_column_only_where_a_rank_has_several() -> None:
    assert " dev " not in _screen([build.window(0)], ["rank", "device"])
    assert " dev " in _screen([build.window(0), build.window(0, device=1)], ["rank", "device"])


def test_communication_that_was_not_recorded_is_said() -> None:
    text = _screen(
        [build.window(communication_ns=None, overlap_ratio=None, is_comm_recorded=False)], ["rank"]
    )
    assert "none was recorded on the" in text


def test_full_causes_name_each_cause_that_is_not_zero() -> None:
    text = _screen([build.window()], ["rank"], full=True)
    assert "Idle time by cause" in text
    assert "dispatch" in text
    assert "checkpoint" not in text


def test_no_line_is_wider_than_the_screen() -> None:
    rows = [
        build.window(r, s, coords="tp1.pp0.dp3.cp1", host="h" * 60, wall_ns=86_400_000 * MS)
        for r in (0, 1023)
        for s in (1, 2)
    ]
    for by in (["rank"], ["rank", "step"], ["rank", "device", "step", "window", "world", "host", "coords"]):
        assert max(map(len, _screen(rows, by).splitlines())) <= 80


def test_nothing_selected_is_said() -> None:
    assert "No windows" in _screen([], ["rank"])
