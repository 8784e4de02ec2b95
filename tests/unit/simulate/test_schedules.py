"""Orders of the schedules, and the makespans they must give."""

from __future__ import annotations

import pytest
from builders_sim import ideal, run_in_memory

from rankscope.simulate.model import Layout
from rankscope.simulate.schedules import (
    Action,
    actions,
    gpipe,
    ideal_bubble_to_ideal,
    interleaved,
    one_f_one_b,
)


def test_gpipe_runs_all_forwards_then_all_backwards() -> None:
    assert [(a.kind, a.microbatch) for a in gpipe(2)] == [("F", 0), ("F", 1), ("B", 0), ("B", 1)]


def test_1f1b_warms_up_with_one_forward_less_than_the_stages_that_follow() -> None:
    order = [f"{a.kind}{a.microbatch}" for a in one_f_one_b(4, 1, 4)]
    assert order == ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"]


def test_interleaved_goes_through_a_chunk_in_rounds_of_the_pipeline_size() -> None:
    order = [a for a in interleaved(2, 1, 2, 2) if a.kind == "F"]
    assert order == [Action("F", 0, 0), Action("F", 0, 1), Action("F", 1, 0), Action("F", 1, 1)]
    assert next(a for a in interleaved(2, 1, 2, 2) if a.kind == "B") == Action("B", 1, 0)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (4, 8, 2), (4, 4, 3)])
def test_every_action_happens_once_and_backward_follows_forward(p: int, m: int, v: int) -> None:
    for s in range(p):
        for name in ("gpipe", "1f1b", "interleaved"):
            chunks = v if name == "interleaved" else 1
            order = actions(name, p=p, s=s, m=m, v=chunks)
            assert len(set(order)) == len(order) == 2 * m * chunks
            for c in range(chunks):
                for i in range(m):
                    assert order.index(Action("F", c, i)) < order.index(Action("B", c, i))


def _makespan(layout: Layout, **fields: object) -> int:
    _, ops = run_in_memory(ideal(layout, **fields))
    compute = [op for op in ops if op.cls == "compute"]
    return max(op.end_ns for op in compute) - min(op.start_ns for op in compute)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 2), (2, 4), (4, 4), (4, 8), (8, 16)])
def test_gpipe_and_1f1b_take_m_plus_p_minus_1_times_forward_and_backward(
    schedule: str, p: int, m: int
) -> None:
    # F = 4 us, B = 8 us, nothing else costs anything
    assert _makespan(Layout(pp=p), schedule=schedule, microbatches=m) == (m + p - 1) * 12_000


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (4, 8, 2), (4, 8, 4), (4, 4, 2), (2, 4, 4)])
def test_interleaving_divides_the_bubble_by_the_chunks(p: int, m: int, v: int) -> None:
    span = _makespan(Layout(pp=p), schedule="interleaved", microbatches=m, virtual_stages=v)
    assert span == m * 12_000 + (p - 1) * 12_000 // v


def test_the_documented_examples_of_four_stages_and_eight_microbatches() -> None:
    # METHOD 3: p=4, m=8, F=4, B=8 gives 132; interleaved with two chunks 114, with four 105
    assert _makespan(Layout(pp=4), microbatches=8) == 132_000
    assert _makespan(Layout(pp=4), schedule="interleaved", microbatches=8, virtual_stages=2) == 114_000
    assert _makespan(Layout(pp=4), schedule="interleaved", microbatches=8, virtual_stages=4) == 105_000


def test_the_bubble_is_all_waiting_in_receives_and_equals_the_formula() -> None:
    sink, _ = run_in_memory(ideal(Layout(pp=4), microbatches=8))
    for _, step, end in sink.windows:
        assert step.start_ns is not None
        assert step.busy_ns == 8 * 12_000
        # the window runs to the rank's own last activity: its bubble is at most the formula's 3 x 12 us
        assert step.sums["compute_ns"] == 96_000
        assert step.sums["pipeline_wait_ns"] + step.sums["idle_ns"] == end - step.start_ns - 96_000
    assert max(s.sums["pipeline_wait_ns"] for _, s, _ in sink.windows) == 36_000


def test_the_ideal_ratio_of_bubble_to_work() -> None:
    assert ideal_bubble_to_ideal("1f1b", p=4, m=8, v=1) == 3 / 8
    assert ideal_bubble_to_ideal("interleaved", p=4, m=8, v=2) == 3 / 16
