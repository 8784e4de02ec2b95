"""The summary's screen: one screen, parts that add up, the worst rank, the next command."""

from __future__ import annotations

import re
from typing import Any

import builders_cli as build
import pytest

from rankscope.cli import summary
from rankscope.cli.stepview import blocks_of

MS = build.MS
PART = re.compile(r"^  (?!= step)(\S.*?)\s{2,}\S*\s+([\d.]+)\s+([\d.]+)%")


def _parts(lines: list[str]) -> dict[str, tuple[float, float]]:
    found = {}
    for line in lines:
        match = PART.match(line)
        if match:
            found[match[1]] = (float(match[2]), float(match[3]))
    return found


def _rows(n_ranks: int = 2, **given: Any) -> list[dict[str, Any]]:
    return [build.window(r, s, **given) for r in range(n_ranks) for s in (1, 2, 3)]


def test_the_parts_visibly_sum_to_the_step() -> None:
    rows = _rows(compute_only_ns=50_033_333, wall_ns=100_033_333)
    lines = blocks_of(rows, room=20, bars=False)
    parts = _parts(lines)
    whole = next(line for line in lines if line.startswith("  = step"))
    assert round(sum(ms for ms, _ in parts.values()), 1) == float(whole.split()[2]) == 100.0
    assert round(sum(share for _, share in parts.values()), 1) == 100.0


def test_the_rank_with_the_largest_mean_stands_beside_each_part() -> None:
    rows = [
        *_rows(2),
        *(build.window(2, s, idle_ns=40 * MS, host_sync_ns=28 * MS, wall_ns=120 * MS) for s in (1, 2, 3)),
    ]
    lines = blocks_of(rows, room=20, bars=False)
    assert next(line for line in lines if "host sync" in line).split()[-2:] == ["r2", "28.0"]
    assert next(line for line in lines if "= step" in line).split()[-2:] == ["r2", "120.0"]


def test_one_rank_alone_is_not_the_worst_of_anything() -> None:
    lines = blocks_of([build.window(5)], room=20, bars=False)
    assert "worst" not in lines[0]
    assert not any("r5" in line for line in lines)


def test_several_devices_of_a_rank_are_told_apart() -> None:
    rows = [
        build.window(0, device=0),
        build.window(0, device=1, idle_ns=30 * MS, host_sync_ns=18 * MS, wall_ns=110 * MS),
    ]
    assert any("r0.d1" in line for line in blocks_of(rows, room=20, bars=False))


def test_inference_has_a_block_per_phase_and_host_rows_one_of_their_own() -> None:
    rows = [
        build.window(0, 1, phase="prefill"),
        build.window(0, 2, phase="decode"),
        build.window(1, 1, timeline="host", device=None),
    ]
    titles = [line for line in blocks_of(rows, room=40, bars=False) if line.startswith("Mean")]
    assert [t.split(" (")[0] for t in titles] == ["Mean decode step", "Mean prefill step", "Mean step"]
    assert "(host times)" in titles[-1]


@pytest.mark.parametrize("room", [8, 12, 30])
def test_the_parts_are_merged_until_they_fit(room: int) -> None:
    rows = [
        build.window(0, s, phase=p, transfer_ns=1, data_loading_ns=1, graph_gap_ns=1)
        for s in (1, 2)
        for p in ("prefill", "decode")
    ]
    lines = blocks_of(rows, room=room, bars=True)
    assert len(lines) <= max(room, 11)
    for line in lines:
        assert len(line) <= 80


def test_times_too_short_for_one_decimal_get_three() -> None:
    (row,) = [
        {k: v // 1000 if k.endswith("_ns") and isinstance(v, int) else v for k, v in build.window().items()}
    ]
    assert any("0.100  100.0%" in line for line in blocks_of([row], room=20, bars=False))


def _screen(run: build.FakeRun) -> list[str]:
    return summary.screen(run, "traces/", again="traces/").splitlines()  # type: ignore[arg-type]


def test_the_screen_is_at_most_30_lines_of_80_columns_whatever_the_run() -> None:
    run = build.FakeRun()
    everything = dict.fromkeys(
        (
            "transfer_ns",
            "pipeline_wait_ns",
            "straggler_wait_ns",
            "gc_ns",
            "data_loading_ns",
            "graph_gap_ns",
            "tail_ns",
        ),
        MS,
    )
    run.rows = [
        build.window(r, s, phase=p, coords="tp1.pp0", gpu="G" * 90, **everything)
        for r in (0, 1000)
        for s in (1, 2)
        for p in ("prefill", "decode", "mixed", None)
    ]
    run.findings = [
        build.finding(
            title="t" * 200, next_command="rankscope gaps " + "x" * 200, status="inferred", ceiling_ns=3 * MS
        )
    ] * 9
    run.quality = build.quality_table(*((f"code_{i}_with_a_long_name", "warning", 0) for i in range(40)))
    lines = _screen(run)
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80


def test_the_screen_names_the_run_the_findings_the_data_and_the_next_command() -> None:
    run = build.FakeRun(
        quality=build.quality_table(("rank_missing", "warning", None), ("rank_assumed", "info", 0))
    )
    text = "\n".join(_screen(run))
    assert "2 x NVIDIA H100" in text
    assert "cuda 12.4" in text
    assert "ranks 0-1 of 2" in text
    assert "steps 1-2 of 0-3" in text
    assert "12.0 ms  12.0%  GPU idle: the host launches too slowly" in text
    assert "Data quality: 1 warning (rank_missing), 1 note" in text
    assert text.endswith("Next: rankscope gaps traces/")


def test_a_long_path_continues_below_the_next_command() -> None:
    path = "/work/" + "x" * 60
    assert summary.next_lines([], path) == ["Next: rankscope breakdown \\", f"  {path}"]


def test_good_data_have_nothing_to_report_and_notes_alone_are_no_warnings() -> None:
    assert summary.quality_lines([]) == ["Data quality: nothing to report"]
    notes = [{"code": "rank_from_name", "severity": "info"}] * 2
    assert summary.quality_lines(notes) == ["Data quality: no warnings, 2 notes"]
    bad = [{"code": "rank_missing", "severity": "warning"}]
    assert summary.quality_lines(bad) == ["Data quality: 1 warning (rank_missing)"]


def test_a_name_from_a_trace_cannot_send_control_characters() -> None:
    run = build.FakeRun()
    run.rows = [build.window(gpu="\x1b[2Jevil")]
    run.findings = [build.finding(title="\x1b]0;x\x07")]
    assert "\x1b" not in "\n".join(_screen(run))


def test_nothing_that_stands_out_and_nothing_selected_are_said() -> None:
    run = build.FakeRun(rows=[])
    run.findings = []
    text = "\n".join(_screen(run))
    assert "nothing stands out" in text
    assert "nothing matches the selection" in text
    assert "Next: rankscope breakdown traces/" in text
