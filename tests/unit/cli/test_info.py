"""What `info` shows, and which questions a capture can answer."""

from __future__ import annotations

import builders_cli as build

from rankscope.cli import info
from rankscope.cli.answers import Facts, answers
from rankscope.cli.identity import groups_of, identity, layout, ranks_text, versions_text
from rankscope.cli.table import render_blocks


def _answers(**facts: object) -> dict[str, str]:
    return {a.question: a.answer for a in answers(Facts(**facts))}  # type: ignore[arg-type]


def test_one_rank_of_many_gives_bounds_for_what_takes_several() -> None:
    found = _answers(
        n_ranks=1, world_size=8, n_device=1, n_comm=9, n_linked=9, n_activities=9, unsplit_ns=5, n_p2p=2
    )
    assert found["Where does GPU time go?"] == "yes"
    assert found["Is communication hidden?"] == "yes"
    assert found["Which rank is slow?"] == "bound"
    assert found["How much exposed comm is waiting?"] == "bound"
    assert found["How large is the pipeline bubble?"] == "bound"


def test_what_was_not_recorded_cannot_be_answered_and_says_what_to_collect() -> None:
    found = {a.question: a for a in answers(Facts(n_ranks=1, n_device=1, n_activities=5))}
    assert found["Why is the GPU idle?"].answer == "no"
    assert "ProfilerActivity.CPU" in found["Why is the GPU idle?"].collect
    assert found["How many FLOP/s (MFU)?"].collect == "record_shapes=True"
    assert found["How long is a step?"].answer == "no"
    for answer in found.values():
        assert answer.because
        if answer.answer == "no":
            assert answer.collect


def test_steps_that_were_inferred_are_a_bound() -> None:
    assert _answers(step_sources={"sequence": 4})["How long is a step?"] == "bound"
    assert _answers(step_sources={"profiler_step": 4})["How long is a step?"] == "yes"
    assert _answers(step_sources={"none": 1})["How long is a step?"] == "no"


def test_a_run_on_the_cpu_has_no_gpu_time() -> None:
    assert _answers(n_ranks=4, n_host=4, world_size=4)["Where does GPU time go?"] == "no"
    assert _answers(n_ranks=4, n_host=1, n_device=3)["Where does GPU time go?"] == "bound"


def test_communication_issued_but_not_recorded_is_not_answered() -> None:
    assert _answers(n_comm=0, n_comm_missing=3)["Is communication hidden?"] == "no"
    assert _answers(n_comm=5, n_comm_missing=3)["Is communication hidden?"] == "bound"


def test_the_layout_is_read_off_the_coordinates() -> None:
    assert layout(["tp1.pp0.dp3", "tp0.pp1.dp0", None]) == "tp2 pp2 dp4"
    assert layout([None]) == ""


def test_missing_ranks_are_counted() -> None:
    who = identity([build.source_row(0, world_size=64)], [build.window(0)])
    assert ranks_text(who) == "rank 0 of 64 (63 missing)"
    assert ranks_text(identity([build.source_row(0, world_size=None)], [build.window(0)])) == "rank 0"


def test_packed_versions_are_unpacked_and_several_are_all_named() -> None:
    sources = [
        build.source_row(
            0, metadata='{"cuda_runtime_version": 12040, "distributedInfo": {"nccl_version": "2.21.5"}}'
        ),
        build.source_row(1, metadata='{"cuda_runtime_version": 12010, "hip_runtime_version": 70253211}'),
        build.source_row(2, metadata="not json"),
    ]
    assert versions_text(identity(sources, [])) == "nccl 2.21.5, cuda 12.1/12.4, hip 7.2"


def test_declared_groups_are_listed_once() -> None:
    text = '{"distributedInfo": {"pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 5]}, "odd"]}}'
    sources = [build.source_row(r, metadata=text) for r in (0, 1)]
    assert groups_of(sources) == ["0: default_pg, ranks 0-2,5"]


def test_equal_quality_rows_of_several_ranks_share_a_line_and_the_worst_come_first() -> None:
    quality = build.quality_table(
        ("rank_assumed", "info", 1), ("rank_assumed", "info", 0), ("rank_missing", "warning", None)
    )
    (block,) = info.quality_blocks(quality.to_pylist())
    assert [row[:4] for row in block.rows] == [
        ["warning", "rank_missing", "-", "1"],
        ["info", "rank_assumed", "0-1", "2"],
    ]


def test_steps_are_listed_by_what_gave_them_and_by_world_where_there_are_several() -> None:
    step = {"world": "a", "timeline": "device", "source": "profiler_step", "phase": None, "window": 0}
    steps = [step | {"rank": r, "step": s} for r in (0, 1) for s in (3, 4, 5)]
    (block,) = info.steps_blocks(steps, "steps 4")
    assert block.rows == [["device", "profiler_step", "-", "2", "3", "3-5"]]
    assert block.notes == ["Used: steps 4"]
    (block,) = info.steps_blocks([*steps, step | {"world": "b", "rank": 0, "step": None}], "")
    assert block.rows[1] == ["b", "device", "profiler_step", "-", "1", "1", "-"]


def test_the_whole_screen_fits_80_columns_and_ends_with_the_answers() -> None:
    run = build.FakeRun(quality=build.quality_table(("a_code", "error", 0)))
    run.sources = [
        build.source_row(r, path="p" * 200 + f"{r}.json", status="truncated", reason="x" * 300)
        for r in range(50)
    ]
    blocks = info.screen(run)  # type: ignore[arg-type]
    text = render_blocks(blocks, columns=80)
    assert max(map(len, text.splitlines())) <= 80
    assert blocks[-1].title == "What this capture can answer"
    assert "18 more files" in text
