from __future__ import annotations

import numpy as np
import pytest
from builders_events import events, kernel, launch, op

from rankscope.ingest.derive import Derived, DeriveOptions, derive

LAYER = [("attention", 30), ("gemm", 40), ("norm", 5)]


def _capture(n_steps: int, *, layers: int = 6, cut: int = 0, noise: bool = False) -> list[tuple]:  # type: ignore[type-arg]
    """Steps of embedding, layers and head, 100 ns idle between steps; the first `cut` kernels are missing."""
    rows, t = [], 1000
    random = np.random.default_rng(1)
    for _ in range(n_steps):
        for name, dur in [("embed", 20), *LAYER * layers, ("head", 50)]:
            jitter = int(random.integers(0, 3)) if noise else 0
            rows.append(kernel(name, t, dur + jitter))
            t += dur + jitter + 1
        t += 100
    return rows[cut:]


def _derive(rows: list[tuple]) -> Derived:  # type: ignore[type-arg]
    return derive(events(rows), {}, DeriveOptions())


def _starts(derived: Derived) -> list[int]:
    return [r["start_ns"] for r in derived.steps.to_pylist()]


STEP_NS = 20 + 6 * 75 + 50 + 20 + 100


@pytest.mark.parametrize("noise", [False, True])
def test_a_capture_of_device_activity_alone_is_cut_where_its_sequence_repeats(noise: bool) -> None:
    rows = _capture(5, noise=noise)
    derived = _derive(rows)
    expected = [r.start for r in rows if r.name == "embed"]
    assert _starts(derived) == expected
    steps = derived.steps.to_pylist()
    assert [s["step"] for s in steps] == [0, 1, 2, 3, 4]
    assert {(s["source"], s["host_start_ns"], s["timeline"]) for s in steps} == {("sequence", None, "device")}
    assert steps[-1]["end_ns"] == max(r.start + r.dur for r in rows)
    assert [q.code for q in derived.quality if q.code == "steps_inferred"] == ["steps_inferred"]


def test_the_work_before_the_first_whole_repeat_is_no_step() -> None:
    rows = _capture(5, cut=9)
    derived = _derive(rows)
    embeds = [r.start for r in rows if r.name == "embed"]
    assert _starts(derived) == embeds
    assert len(embeds) == 4
    assert derived.pre_ns == embeds[0] - rows[0].start
    step = {r["start_ns"]: r["step"] for r in derived.activities.to_pylist()}
    assert step[rows[0].start] is None
    assert step[embeds[2]] == 2


def test_a_cut_last_repeat_is_a_step() -> None:
    derived = _derive(_capture(5)[:-7])
    assert len(_starts(derived)) == 5


def test_two_repeats_are_no_evidence() -> None:
    derived = _derive(_capture(2, layers=1))
    assert [r["source"] for r in derived.steps.to_pylist()] == ["none"]


def test_kernels_without_any_order_give_one_step() -> None:
    random = np.random.default_rng(2)
    names = random.integers(0, 9, 400)
    rows = [kernel(f"k{n}", 100 * i, 50) for i, n in enumerate(names)]
    assert [r["source"] for r in _derive(rows).steps.to_pylist()] == ["none"]


def test_a_lost_kernel_does_not_derail_the_steps_after_it() -> None:
    rows = _capture(8)
    del rows[25]
    derived = _derive(rows)
    assert _starts(derived) == [r.start for r in rows if r.name == "embed"]


def test_host_operators_rule_the_inference_out_and_runtime_calls_do_not() -> None:
    rows = _capture(5)
    assert _derive([*rows, op("aten::mm", 0, 10)]).steps.num_rows == 1
    calls = [launch(r.start - 500, 2, corr=i) for i, r in enumerate(rows)]
    kernels = [kernel(r.name, r.start, r.dur, corr=i) for i, r in enumerate(rows)]
    derived = _derive([*calls, *kernels])
    assert _starts(derived) == [r.start for r in rows if r.name == "embed"]


def test_a_single_kernel_over_and_over_is_no_sequence_of_steps() -> None:
    rows = [kernel("gemv", 100 * i, 50) for i in range(30)]
    assert [r["source"] for r in _derive(rows).steps.to_pylist()] == ["none"]


def test_a_step_never_begins_inside_a_graph_launch() -> None:
    rows = [kernel(name, 100 * i, 50, corr=i // 8) for i, name in enumerate(["gemm", "attention"] * 20)]
    assert _starts(_derive(rows)) == [100 * i for i in range(0, 40, 8)]
    two = [kernel(name, 100 * i, 50, corr=i // 20) for i, name in enumerate(["gemm", "attention"] * 20)]
    assert [r["source"] for r in _derive(two).steps.to_pylist()] == ["none"]
