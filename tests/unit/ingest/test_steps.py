from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from builders_events import annotation, events, kernel, launch, linked, op

from rankscope.ingest.derive import Derived, DeriveOptions, derive
from rankscope.ingest.step_sources import HostSteps
from rankscope.ingest.steps import boundaries
from rankscope.store.errors import UsageError


def _derive(rows: list[tuple], step_regex: str | None = None) -> Derived:  # type: ignore[type-arg]
    return derive(events(rows), {}, DeriveOptions(step_regex=step_regex))


def _windows(derived: Derived, device: int | None = 0) -> list[tuple[int, int, int]]:
    rows = [r for r in derived.steps.to_pylist() if r["device"] == device]
    return [(r["step"], r["start_ns"], r["end_ns"]) for r in rows]


def _steps_of(derived: Derived) -> dict[str, int | None]:
    return {r["name"]: r["step"] for r in derived.activities.to_pylist()}


def test_the_worked_example_of_the_method() -> None:
    rows = [
        annotation("ProfilerStep#0", 0, 100),
        annotation("ProfilerStep#1", 100, 100),
        annotation("ProfilerStep#2", 200, 70),
        *linked("a", 10, 30, 30, corr=1),
        *linked("b", 90, 95, 35, corr=2),
        *linked("c", 110, 130, 40, corr=3),
        *linked("d", 210, 230, 30, corr=4),
    ]
    derived = _derive(rows)
    assert _windows(derived) == [(0, 0, 130), (1, 130, 200), (2, 200, 270)]
    assert _steps_of(derived) == {"a": 0, "b": 0, "c": 1, "d": 2}
    first = derived.steps.to_pylist()[0]
    assert (first["source"], first["timeline"], first["host_start_ns"]) == ("profiler_step", "device", 0)


def test_a_kernel_belongs_to_the_step_that_launched_it_on_any_thread() -> None:
    rows = [
        annotation("ProfilerStep#7", 1000, 400),
        annotation("ProfilerStep#8", 1400, 400),
        ("gpu_user_annotation", "ProfilerStep#7", 1100, 60, {"pid": "0", "tid": "7"}),
        launch(1010, corr=1),
        launch(1200, corr=2, tid="2"),
        launch(1410, corr=3),
        kernel("fwd", 1100, 60, corr=1),
        kernel("bwd", 1300, 250, corr=2),
        kernel("next", 1560, 60, corr=3),
    ]
    derived = _derive(rows)
    assert _steps_of(derived) == {"fwd": 7, "bwd": 7, "next": 8}
    assert _windows(derived) == [(7, 1000, 1550), (8, 1550, 1800)]


def test_unlinked_and_early_and_late_launches_never_move_a_boundary() -> None:
    rows = [
        annotation("ProfilerStep#1", 100, 100),
        annotation("ProfilerStep#2", 200, 100),
        kernel("unlinked", 20, 300),
        *linked("early", 50, 60, 200, corr=1),
        *linked("one", 110, 120, 60, corr=2),
        *linked("two", 210, 220, 60, corr=3),
        *linked("late", 310, 500, 60, corr=4),
    ]
    derived = _derive(rows)
    assert _windows(derived) == [(1, 100, 200), (2, 200, 560)]
    assert _steps_of(derived) == {"unlinked": None, "early": None, "one": 1, "two": 2, "late": None}
    assert derived.pre_ns == 80


def test_a_step_without_activity_begins_where_the_work_before_it_ended() -> None:
    host = HostSteps("x", np.arange(3), (None,) * 3, np.array([0, 100, 200]), np.array([100, 200, 300]))
    start, end, index = np.array([10, 250]), np.array([150, 260]), np.array([0, 2])
    assert boundaries(host, start, end, index).tolist() == [0, 150, 200, 300]


def test_boundaries_are_monotone_when_a_later_steps_kernel_starts_first() -> None:
    host = HostSteps("x", np.arange(3), (None,) * 3, np.array([0, 100, 200]), np.array([100, 200, 300]))
    start, end, index = np.array([10, 320, 210]), np.array([310, 330, 400]), np.array([0, 1, 2])
    assert boundaries(host, start, end, index).tolist() == [0, 310, 310, 400]


def test_every_device_has_its_own_windows() -> None:
    rows = [
        annotation("ProfilerStep#0", 0, 100),
        annotation("ProfilerStep#1", 100, 100),
        *linked("a", 10, 20, 30, corr=1, device=0),
        *linked("b", 20, 30, 120, corr=2, device=1),
        *linked("c", 110, 150, 10, corr=3, device=1),
    ]
    derived = _derive(rows)
    assert _windows(derived, 0) == [(0, 0, 100), (1, 100, 200)]
    assert _windows(derived, 1) == [(0, 0, 150), (1, 150, 200)]


def test_zero_length_activities_reach_to_the_ends_of_the_one_step() -> None:
    rows = [kernel("thin", 5, 0), kernel("k", 10, 20), kernel("last", 40, 0)]
    derived = _derive(rows)
    assert _windows(derived) == [(0, 5, 40)]
    (step,) = derived.steps.to_pylist()
    assert (step["source"], step["host_start_ns"]) == ("none", None)
    assert derived.pre_ns == 0


def test_without_steps_launched_activities_belong_to_step_0() -> None:
    derived = _derive([op("aten::mm", 0, 90), *linked("a", 5, 10, 5, corr=1), kernel("b", 20, 5)])
    assert _steps_of(derived) == {"a": 0, "b": None}


def test_of_several_threads_the_one_that_launches_most_names_the_steps() -> None:
    rows = [
        annotation("ProfilerStep#1", 0, 50, tid="1"),
        annotation("ProfilerStep#2", 50, 50, tid="1"),
        annotation("ProfilerStep#1", 5, 50, tid="2"),
        annotation("ProfilerStep#2", 55, 50, tid="2"),
        launch(10, corr=1, tid="1"),
        launch(20, corr=2, tid="2"),
        launch(60, corr=3, tid="2"),
        kernel("a", 30, 5, corr=2),
        kernel("b", 70, 5, corr=3),
    ]
    assert [(s, a) for s, a, _ in _windows(_derive(rows))] == [(1, 5), (2, 55)]


def test_nested_step_ranges_count_once() -> None:
    rows = [
        annotation("ProfilerStep#5", 0, 100),
        annotation("ProfilerStep#5", 10, 80),
        annotation("ProfilerStep#6", 100, 100),
        annotation("ProfilerStep#6", 110, 80),
        *linked("a", 20, 30, 5, corr=1),
        *linked("b", 120, 130, 5, corr=2),
    ]
    assert _windows(_derive(rows)) == [(5, 0, 100), (6, 100, 200)]


def test_one_range_around_several_steps_gives_way_to_them() -> None:
    rows = [
        annotation("ProfilerStep#0", 0, 300),
        annotation("ProfilerStep#3", 10, 100),
        annotation("ProfilerStep#4", 110, 100),
        *linked("a", 20, 30, 5, corr=1),
        *linked("b", 120, 130, 5, corr=2),
    ]
    assert [s for s, _, _ in _windows(_derive(rows))] == [3, 4]


def test_repeated_numbers_become_ordinals_and_are_reported() -> None:
    rows = [
        annotation("ProfilerStep#3", 0, 100),
        annotation("ProfilerStep#3", 200, 100),
        *linked("a", 20, 30, 5, corr=1),
    ]
    derived = _derive(rows)
    assert [s for s, _, _ in _windows(derived)] == [0, 1]
    assert [q.code for q in derived.quality] == ["step_renumbered"]


@pytest.mark.parametrize("cat", ["user_annotation", "cpu_op"])
def test_a_pattern_names_steps_in_annotations_and_operators(cat: str) -> None:
    rows = [
        (cat, "train iteration 40", 0, 100),
        (cat, "train iteration 41", 100, 100),
        annotation("ProfilerStep#1", 0, 200),
        *linked("a", 20, 30, 5, corr=1),
    ]
    derived = _derive(rows, r"iteration (\d+)")
    assert _windows(derived) == [(40, 0, 100), (41, 100, 200)]
    assert derived.steps.to_pylist()[0]["source"] == "regex"
    assert [s for s, _, _ in _windows(_derive(rows, "iteration"))] == [0, 1]
    assert [s for s, _, _ in _windows(_derive(rows, "(train)"))] == [0, 1]


def test_a_pattern_that_matches_nothing_is_reported_and_the_next_source_used() -> None:
    rows = [annotation("ProfilerStep#1", 0, 200), *linked("a", 20, 30, 5, corr=1)]
    derived = _derive(rows, "nothing like it")
    assert derived.steps.to_pylist()[0]["source"] == "profiler_step"
    assert [(q.code, q.example) for q in derived.quality] == [("step_regex_unmatched", "nothing like it")]


def test_a_wrong_pattern_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="step-regex"):
        _derive([kernel("k", 0, 5)], "(")


def test_inference_iterations_are_steps_with_a_phase() -> None:
    rows = [
        annotation("execute_context_2(14721)_generation_0(0)", 0, 100),
        annotation("execute_context_0(0)_generation_8(8)", 120, 50),
        annotation("execute_context_1(512)_generation_8(8)", 180, 50),
        *linked("a", 10, 20, 5, corr=1),
        *linked("sample", 110, 112, 5, corr=2),
        *linked("b", 130, 140, 5, corr=3),
    ]
    derived = _derive(rows)
    got = [
        (r["step"], r["phase"], r["source"], r["start_ns"], r["end_ns"]) for r in derived.steps.to_pylist()
    ]
    assert got == [
        (0, "prefill", "inference", 0, 120),
        (1, "decode", "inference", 120, 180),
        (2, "mixed", "inference", 180, 230),
    ]
    assert _steps_of(derived) == {"a": 0, "sample": 0, "b": 1}


def test_an_iteration_inside_another_annotation_of_it_counts_once() -> None:
    rows = []
    for start in (0, 200):
        rows += [annotation("execute_32_context_0(sq0sk0)_generation_32(sq32sk9)", start, 100)]
        rows += [annotation("step[DECODE bs=32]", start + 10, 80)]
        rows += linked(f"k{start}", start + 20, start + 30, 5, corr=start + 1)
    derived = _derive(rows)
    assert _windows(derived) == [(0, 0, 200), (1, 200, 300)]
    assert [r["phase"] for r in derived.steps.to_pylist()] == ["decode", "decode"]


def _training(n: int, *, optimizers: int = 1, trailing: int = 0) -> list[tuple]:  # type: ignore[type-arg]
    rows: list[tuple] = []  # type: ignore[type-arg]
    for i in range(n):
        t = 1000 * i
        rows += [op("aten::mm", t + 10, 50), *linked(f"f{i}", t + 20, t + 30, 20, corr=10 * i + 1)]
        rows += [op("autograd::engine::evaluate_function: MmBackward0", t + 100, 50, tid="2")]
        rows += [launch(t + 110, 2, corr=10 * i + 2, tid="2"), kernel(f"b{i}", t + 120, 20, corr=10 * i + 2)]
        for k in range(optimizers):
            start = t + 300 + 100 * k
            rows += [annotation(f"Optimizer.step#Opt{k}.step", start, 50)]
            rows += linked(f"o{i}.{k}", start + 10, start + 20, 10, corr=10 * i + 3 + k)
    for k in range(trailing):
        rows += linked(f"t{k}", 1000 * n + 10 * k, 1000 * n + 10 * k + 2, 5, corr=9000 + k)
    return rows


def test_a_step_ends_with_its_optimizer_range_and_the_first_begins_with_the_first_host_event() -> None:
    derived = _derive(_training(3))
    assert _windows(derived) == [(0, 10, 350), (1, 350, 1350), (2, 1350, 2350)]
    assert {r["source"] for r in derived.steps.to_pylist()} == {"optimizer"}
    steps = _steps_of(derived)
    assert (steps["f1"], steps["b1"], steps["o1.0"], steps["f2"]) == (1, 1, 1, 2)


def test_several_optimizers_after_one_backward_end_one_step() -> None:
    derived = _derive(_training(3, optimizers=2))
    assert _windows(derived) == [(0, 10, 450), (1, 450, 1450), (2, 1450, 2450)]


def test_work_after_the_last_optimizer_is_a_step_of_its_own_when_there_is_enough_of_it() -> None:
    assert len(_windows(_derive(_training(4, trailing=2)))) == 5
    derived = _derive(_training(40, trailing=0))
    assert len(_windows(derived)) == 40


def test_the_order_of_rows_changes_nothing() -> None:
    table = events(_training(4, optimizers=2, trailing=3))
    mixed = table.take(pa.array(np.random.default_rng(5).permutation(table.num_rows)))
    a, b = (derive(t, {}, DeriveOptions()) for t in (table, mixed))
    assert a.steps.to_pylist() == b.steps.to_pylist()
    assert a.activities.to_pylist() == b.activities.to_pylist()
    assert a.launches.to_pylist() == b.launches.to_pylist()
