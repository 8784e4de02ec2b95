"""Rules of steps and phases, end to end, with numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders_rules import US, call, causes, five, note, op, opened, opened_ranks, quality, steps, whole
from builders_trace import NCCL, host, kernel, launch

GEMM, OPT = "gemm", "Optimizer.step#AdamW.step"


def work(at: float, corr: int, *, delay: float = 5, dur: float = 10, tid: int = 100) -> list[dict[str, Any]]:
    """A launch at `at` and its kernel."""
    return [launch(at, corr, tid=tid), kernel(GEMM, at + delay, dur, corr=corr)]


def test_windows_tile_from_host_entry_to_the_later_of_device_and_host_end(tmp_path: Path) -> None:
    events = [note("ProfilerStep#5", 0, 100), note("ProfilerStep#6", 100, 100), *work(10, 1), *work(110, 2)]
    assert steps(opened(tmp_path, events)) == [(5, 0, 100), (6, 100, 200)]
    late = [*events, *work(190, 3, delay=30, dur=50)]
    assert steps(opened(tmp_path / "late", late)) == [(5, 0, 100), (6, 100, 270)]


def test_a_device_behind_the_host_moves_the_boundary(tmp_path: Path) -> None:
    # Step 1's kernel runs until 150, step 2's first begins at 150 and not at the host's 100.
    events = [note("ProfilerStep#1", 0, 100), note("ProfilerStep#2", 100, 100)]
    events += [launch(10, 1), kernel(GEMM, 20, 130, corr=1), launch(105, 2), kernel(GEMM, 160, 20, corr=2)]
    # b = min(F=160, max(H=100, E=150)) = 150
    assert steps(opened(tmp_path, events)) == [(1, 0, 150), (2, 150, 200)]


def test_an_asynchronous_tail_is_clipped_into_the_window_where_it_runs(tmp_path: Path) -> None:
    events = [note("ProfilerStep#1", 0, 100), note("ProfilerStep#2", 100, 100), *work(10, 1), *work(110, 2)]
    events += [launch(50, 3), kernel(NCCL, 80, 60, stream=20, corr=3)]
    # F_2 = 115, E_1 = 140: the boundary is 115
    run = opened(tmp_path, events)
    assert steps(run) == [(1, 0, 115), (2, 115, 200)]
    rows = run.breakdown_table(by="step", steps="all").to_pylist()
    assert [five(r) for r in rows] == [(10, 0, 35, 0, 70), (0, 10, 15, 0, 60)]
    by_name = {r["name"]: r["step"] for r in run.table("activities").to_pylist() if r["name"] == NCCL}
    assert by_name == {NCCL: 1}


def test_kernels_launched_before_the_first_or_after_the_last_step_or_nowhere_set_no_boundary(
    tmp_path: Path,
) -> None:
    events = [
        note("ProfilerStep#1", 100, 100),
        note("ProfilerStep#2", 200, 100),
        *work(110, 1),
        *work(210, 2),
    ]
    events += [launch(50, 3), kernel(GEMM, 90, 105, stream=2, corr=3)]  # launched before, ends at 195
    events += [kernel(GEMM, 150, 80, stream=3)]  # no launch, ends at 230
    events += [launch(310, 4), kernel(GEMM, 320, 30, corr=4)]  # launched after
    run = opened(tmp_path, events)
    assert steps(run) == [(1, 100, 200), (2, 200, 350)]
    rows = run.breakdown_table(by="step", steps="all").to_pylist()
    # step 1: [100,195) and [150,200) -> all 100; step 2: [200,230), [320,350)
    assert [five(r) for r in rows] == [(100, 0, 0, 0, 0), (60, 0, 0, 0, 90)]
    got = sorted((r["start_ns"] // US, r["step"]) for r in run.table("activities").to_pylist())
    assert got == [(90, None), (115, 1), (150, None), (215, 2), (320, None)]
    assert run.table("sources").column("pre_ns").to_pylist() == [10 * US]


def test_a_launch_at_the_very_start_of_a_step_belongs_to_it(tmp_path: Path) -> None:
    events = [
        note("ProfilerStep#1", 0, 100),
        note("ProfilerStep#2", 100, 100),
        *work(99.999, 1),
        *work(100, 2),
    ]
    got = [r["step"] for r in opened(tmp_path, events).table("activities").sort_by("start_ns").to_pylist()]
    assert got == [1, 2]


def test_an_empty_step_is_idle_and_keeps_its_window(tmp_path: Path) -> None:
    events = [note(f"ProfilerStep#{i}", 100 * i, 100) for i in range(3)] + work(10, 1) + work(210, 2)
    run = opened(tmp_path, events)
    assert steps(run) == [(0, 0, 100), (1, 100, 200), (2, 200, 300)]
    rows = run.breakdown_table(by="step", steps="all").to_pylist()
    assert [five(r) for r in rows] == [(10, 0, 0, 0, 90), (0, 0, 0, 0, 100), (10, 0, 0, 0, 90)]


def test_a_backward_thread_launches_into_the_step_of_the_main_thread(tmp_path: Path) -> None:
    events = [note("ProfilerStep#7", 0, 100), note("ProfilerStep#8", 100, 100)]
    events += [*work(10, 1), *work(95, 2, delay=30, tid=200), *work(120, 3, delay=20)]
    run = opened(tmp_path, events)
    got = [r["step"] for r in run.table("activities").sort_by("start_ns").to_pylist()]
    assert got == [7, 7, 8]
    # E_7 = 135, F_8 = 140
    assert steps(run) == [(7, 0, 135), (8, 135, 200)]


def test_steps_of_several_threads_are_those_of_the_one_that_launches_most(tmp_path: Path) -> None:
    events = [note("ProfilerStep#1", 0, 100, tid=1), note("ProfilerStep#9", 0, 50, tid=2)]
    events += [*work(10, 1, tid=1), *work(30, 2, tid=1), *work(20, 3, tid=2)]
    assert [s[0] for s in steps(opened(tmp_path, events))] == [1]


def test_gradient_accumulation_is_one_step(tmp_path: Path) -> None:
    events = [note("ProfilerStep#1", 0, 200), note("ProfilerStep#2", 200, 200)]
    for i, at in enumerate((10, 60, 110, 210, 260, 310)):
        events += [op("autograd::engine::evaluate_function: MmBackward0", at, 30), *work(at + 5, i + 1)]
    events += [note(OPT, 150, 20), note(OPT, 350, 20)]
    rows = opened(tmp_path, events).breakdown_table(by="step", steps="all").to_pylist()
    assert [(r["step"], five(r)) for r in rows] == [(1, (30, 0, 0, 0, 170)), (2, (30, 0, 0, 0, 170))]


def test_every_device_has_windows_of_its_own(tmp_path: Path) -> None:
    events = [note("ProfilerStep#1", 0, 100), note("ProfilerStep#2", 100, 100), *work(10, 1), *work(110, 2)]
    events += [launch(60, 3), kernel(GEMM, 70, 60, device=1, corr=3)]
    events += [launch(115, 4), kernel(GEMM, 140, 10, device=1, corr=4)]
    rows = opened(tmp_path, events).breakdown_table(by=["device", "step"], steps="all").to_pylist()
    got = [(r["device"], r["step"], r["wall_ns"] // US, five(r)) for r in rows]
    # device 1: b_2 = min(F=140, max(100, E=130)) = 130
    assert got == [
        (0, 1, 100, (10, 0, 0, 0, 90)),
        (0, 2, 100, (10, 0, 0, 0, 90)),
        (1, 1, 130, (60, 0, 0, 0, 70)),
        (1, 2, 70, (10, 0, 0, 0, 60)),
    ]


# -- sources -----------------------------------------------------------------------------------------------


ALL_SOURCES = [
    note("ProfilerStep#3", 0, 100),
    note("ProfilerStep#4", 100, 100),
    op("iter 30", 0, 50),
    op("iter 31", 50, 150),
    note("execute_context_1(8)_generation_0(0)", 5, 60),
    note(OPT, 80, 10),
    *work(10, 1),
    *work(120, 2),
]


def test_a_step_regex_goes_first_and_its_integer_group_is_the_number(tmp_path: Path) -> None:
    run = opened(tmp_path, ALL_SOURCES, step_regex=r"iter (\d+)")
    assert steps(run) == [(30, 0, 50), (31, 50, 200)]
    assert {r["source"] for r in run.table("steps").to_pylist()} == {"regex"}
    named = opened(tmp_path / "a", ALL_SOURCES, step_regex=r"it(er) ")
    assert [s[0] for s in steps(named)] == [0, 1]


@pytest.mark.parametrize(
    ("dropped", "source"),
    [
        ((), "profiler_step"),
        (("Prof",), "inference"),
        (("Prof", "execute"), "optimizer"),
        (("Prof", "execute", "Opt"), "none"),
    ],
)
def test_the_sources_follow_one_another(tmp_path: Path, dropped: tuple[str, ...], source: str) -> None:
    events = [e for e in ALL_SOURCES if not e["name"].startswith(dropped)] if dropped else ALL_SOURCES
    assert {r["source"] for r in opened(tmp_path, events).table("steps").to_pylist()} == {source}


def test_gpu_annotations_are_never_steps(tmp_path: Path) -> None:
    ghost = {**kernel("ProfilerStep#1", 0, 60), "cat": "gpu_user_annotation"}
    run = opened(tmp_path, [ghost, op("aten::mm", 0, 5), *work(10, 1)])
    assert [r["source"] for r in run.table("steps").to_pylist()] == ["none"]


def test_optimizer_ranges_end_steps(tmp_path: Path) -> None:
    # The host begins at 0; ranges end at 90 and 190; the work after them is nothing.
    events = [op("aten::mm", 0, 20), *work(10, 1), note(OPT, 80, 10), *work(110, 2), note(OPT, 180, 10)]
    assert steps(opened(tmp_path, events)) == [(0, 0, 90), (1, 90, 190)]


def test_a_capture_without_steps_is_one_window_over_valid_activities(tmp_path: Path) -> None:
    events = [op("aten::mm", 0, 500), *work(10, 1), *work(30, 2)]
    assert steps(opened(tmp_path, events)) == [(0, 15, 45)]


def test_a_device_only_capture_is_cut_at_its_repeating_sequence(tmp_path: Path) -> None:
    events = []
    for i in range(5):
        at = 100 * i
        events += [kernel("embed", at, 5), kernel(GEMM, at + 6, 30), kernel("norm", at + 37, 8)]
        events += [kernel(NCCL, at + 46, 20), kernel("adam", at + 67, 10)]
    run = opened(tmp_path, events)
    assert steps(run) == [(i, 100 * i, 100 * (i + 1) if i < 4 else 477) for i in range(5)]
    assert quality(run)["steps_inferred"] == 5


# -- phases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_context_2(14721)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_64(64)", "decode"),
        ("execute_context_1(512)_generation_63(63)", "mixed"),
        ("execute_1_context_1(sq7sk7sqsq49sqsk49)_generation_0(sq0sk0sqsq0sqsk0)", "prefill"),
        ("step[EXTEND bs=2 toks=14721]", "prefill"),
        ("step[DECODE bs=64]", "decode"),
        ("step[MIXED bs=4 toks=100]", "mixed"),
        ("prefill[bs=3 toks=900]", "prefill"),
        ("decode[bs=117/128 toks=117]", "decode"),
        ("mixed[bs=4]", "mixed"),
    ],
)
def test_each_spelling_of_an_iteration_tells_its_phase(tmp_path: Path, name: str, phase: str) -> None:
    events = [note(name, 0, 100), note(name, 120, 60), *work(10, 1), *work(130, 2)]
    run = opened(tmp_path, events)
    assert steps(run) == [(0, 0, 120), (1, 120, 180)]
    (row,) = run.breakdown_table(by="phase", steps="all").to_pylist()
    assert (row["phase"], row["n"], row["wall_ns"], row["compute_ns"]) == (phase, 2, 180 * US, 20 * US)


def test_phases_are_summed_apart(tmp_path: Path) -> None:
    names = ["step[EXTEND bs=2 toks=9]", "step[DECODE bs=2]", "step[DECODE bs=2]", "step[DECODE bs=1]"]
    events = []
    for i, name in enumerate(names):
        events += [note(name, 100 * i, 90), *work(100 * i + 10, i + 1, dur=20 + i)]
    run = opened(tmp_path, events)
    rows = run.breakdown_table(by="phase", steps="all").to_pylist()
    assert [(r["phase"], r["n"], r["wall_ns"] // US, r["compute_ns"] // US) for r in rows] == [
        ("decode", 3, 290, 66),
        ("prefill", 1, 100, 20),
    ]


def test_phases_are_the_default_axis_of_inference(tmp_path: Path) -> None:
    events = []
    for i, name in enumerate(["step[EXTEND bs=2 toks=9]", "step[DECODE bs=2]"]):
        events += [note(name, 100 * i, 100), *work(100 * i + 10, i + 1)]
    rows = opened(tmp_path, events).breakdown_table().to_pylist()
    assert [(r["rank"], r["device"], r["phase"], r["n"]) for r in rows] == [
        (0, 0, "decode", 1),
        (0, 0, "prefill", 1),
    ]


# -- selection ---------------------------------------------------------------------------------------------


def rank_steps(numbers: list[int], start: float = 0) -> list[dict[str, Any]]:
    """Steps of 100 us, each with 10 + number us of compute."""
    events = []
    for i, n in enumerate(numbers):
        at = start + 100 * i
        events += [note(f"ProfilerStep#{n}", at, 100), *work(at + 5, n + 1, dur=10 + n)]
    return events


@pytest.mark.parametrize(
    ("numbers", "used"), [([1, 2, 3], {1, 2, 3}), ([1, 2, 3, 4], {2, 3}), ([9, 3, 5, 7], {3, 5})]
)
def test_with_four_or_more_steps_the_first_and_last_are_left_out(
    tmp_path: Path, numbers: list[int], used: set[int]
) -> None:
    rows = opened(tmp_path, rank_steps(numbers)).breakdown_table(by="step").to_pylist()
    assert {r["step"] for r in rows} == used


def test_steady_steps_are_those_of_every_rank(tmp_path: Path) -> None:
    run = opened_ranks(tmp_path, [rank_steps([1, 2, 3, 4, 5]), rank_steps([2, 3, 4, 5], 100)])
    rows = run.breakdown_table(by=["rank", "step"]).to_pylist()
    # common are 2, 3, 4, 5: the first and last of those go
    assert [(r["rank"], r["step"]) for r in rows] == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert "rank 1" in run.steps_note()


def test_three_common_steps_of_many_are_all_used(tmp_path: Path) -> None:
    run = opened_ranks(tmp_path, [rank_steps([1, 2, 3, 4, 5]), rank_steps([3, 4, 5], 200)])
    assert {r["step"] for r in run.breakdown_table(by="step").to_pylist()} == {3, 4, 5}


def test_lists_all_and_none(tmp_path: Path) -> None:
    run = opened(tmp_path, rank_steps([1, 2, 3, 4]))
    (row,) = run.breakdown_table(steps=[1, 4]).to_pylist()
    assert (row["n"], row["wall_ns"], row["compute_ns"]) == (2, 200 * US, 25 * US)
    (row,) = run.breakdown_table(steps="all").to_pylist()
    assert (row["n"], row["wall_ns"], row["compute_ns"]) == (4, 400 * US, 50 * US)
    (row,) = run.breakdown_table(steps="none").to_pylist()
    # first activity [10,21), last [310,324)
    assert (row["n"], row["step"], row["wall_ns"]) == (1, None, 314 * US)


# -- host timelines ----------------------------------------------------------------------------------------


CPU = {"top": {"deviceProperties": [], "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2}}}


def test_gloo_ranges_on_any_thread_are_the_communication_of_a_host_timeline(tmp_path: Path) -> None:
    events = [
        note("ProfilerStep#1", 0, 100),
        op("aten::linear", 0, 40),
        op("aten::addmm", 10, 20),
        op("c10d::allreduce_", 40, 5),
        note("gloo:all_reduce", 30, 50, tid=200),
        op("autograd::engine::evaluate_function: MmBackward0", 60, 30, tid=300),
        op("MmBackward0", 70, 15, tid=300),
        op("record_param_comms", 90, 8, **{"Collective name": "allreduce"}),
    ]
    run = opened(tmp_path, events, **CPU)
    (row,) = run.breakdown_table(steps="all").to_pylist()
    # compute [0,40) and [70,85); communication [30,80): overlap 10 + 10, exposed 30, compute alone 35
    assert (row["timeline"], row["device"]) == ("host", None)
    assert five(row) == (35, 20, 30, 0, 15)
    assert causes(row) == {"unattributed": 15}


def test_without_backend_ranges_the_record_counts_and_without_it_the_operator(tmp_path: Path) -> None:
    base = [op("aten::mm", 0, 20), op("c10d::allreduce_", 20, 30), op("aten::mm", 60, 20)]
    record = op("record_param_comms", 25, 10, **{"Collective name": "allreduce"})
    waits = op("record_param_comms", 50, 5, **{"Collective name": "wait"})
    assert whole(opened(tmp_path / "a", [*base, record, waits], **CPU)) == (40, 0, 10, 0, 30)
    assert whole(opened(tmp_path / "b", base, **CPU)) == (40, 0, 30, 0, 10)


def test_nested_operators_count_once_and_functional_collectives_do_not(tmp_path: Path) -> None:
    events = [op("aten::linear", 0, 30), op("aten::mm", 5, 10), op("_c10d_functional::all_reduce", 30, 20)]
    events += [op("aten::add", 35, 5), op("c10d::_allgather_base_", 60, 10)]
    # aten::add runs inside an operator that does not count, so it is outermost among those that do
    assert whole(opened(tmp_path, events, **CPU)) == (35, 0, 10, 0, 25)


def test_a_gpu_in_the_file_without_activity_is_said(tmp_path: Path) -> None:
    run = opened(tmp_path, [op("aten::mm", 0, 10), call("cudaLaunchKernel", 2, 2)])
    rows = [r for r in run.table("quality").to_pylist() if r["code"] == "no_device_activity"]
    assert [r["severity"] for r in rows] == ["warning"]
    quiet = opened(tmp_path / "cpu", [op("aten::mm", 0, 10)], **CPU)
    assert [
        r["severity"] for r in quiet.table("quality").to_pylist() if r["code"] == "no_device_activity"
    ] != ["warning"]


def test_host_windows_are_the_steps_of_the_host(tmp_path: Path) -> None:
    events = [note("ProfilerStep#1", 0, 90), note("ProfilerStep#2", 100, 100), op("aten::mm", 10, 20)]
    events += [op("aten::mm", 95, 20), host("user_annotation", "gloo:all_reduce", 110, 40, tid=9)]
    rows = opened(tmp_path, events, **CPU).breakdown_table(by="step", steps="all").to_pylist()
    # [0,100): [10,30), [95,100); [100,200): compute [100,115), comm [110,150)
    assert [five(r) for r in rows] == [(25, 0, 0, 0, 75), (10, 5, 35, 0, 50)]


def test_marks_filed_under_the_operators_are_no_compute(tmp_path: Path) -> None:
    # Traces of 2020 and 2021 write PyTorch's own marks as operators.
    marks = [op("ProfilerStep#1", 0, 100), op("enumerate(DataLoader)#_Iter.__next__", 0, 30), op(OPT, 60, 40)]
    events = [*marks, op("aten::stack", 10, 10), op("aten::mm", 40, 20), op("aten::add_", 70, 10)]
    run = opened(tmp_path, events, **CPU)
    (row,) = run.breakdown_table(steps="all").to_pylist()
    assert (row["step"], five(row)) == (1, (40, 0, 0, 0, 60))
