"""Which windows are used, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest
from builders_analysis import act, activities, host_activities, shuffled, window, windows

from rankscope.analysis.windows import as_recorded, select_windows
from rankscope.store.errors import UsageError

NO_ACTS = activities()


def steps(*numbers: int, **given: Any) -> list[dict[str, Any]]:
    return [window(10 * n, 10 * n + 10, n, **given) for n in numbers]


def chosen(table: Any, which: Any = "steady") -> list[tuple[Any, ...]]:
    rows = select_windows(table, NO_ACTS, which=which).windows.to_pylist()
    return [(r["window"], r["rank"], r["step"]) for r in rows]


def test_with_four_steps_the_first_and_last_are_left_out() -> None:
    found = select_windows(windows(*steps(3, 4, 5, 6)), NO_ACTS)
    assert found.windows.column("step").to_pylist() == [4, 5]
    assert found.tiling.num_rows == 4
    assert found.n_left_out == 2
    assert found.note == "steps 4-5 of 3-6 (profiler step), first and last left out"


def test_with_three_steps_all_are_used() -> None:
    found = select_windows(windows(*steps(3, 4, 5)), NO_ACTS)
    assert (found.windows.num_rows, found.n_left_out, found.note) == (3, 0, "steps 3-5 (profiler step)")


def test_only_steps_that_every_rank_has_are_used() -> None:
    table = windows(*steps(1, 2, 3, 4, 5, 6), *steps(2, 3, 4, 5, rank=1))
    assert chosen(shuffled(table, 1)) == [(0, 0, 3), (0, 0, 4), (0, 1, 3), (0, 1, 4)]
    assert "rank 1 lack some" in select_windows(table, NO_ACTS).note


def test_a_rank_without_common_steps_does_not_empty_the_selection() -> None:
    found = select_windows(windows(*steps(1, 2), *steps(7, rank=1)), NO_ACTS)
    assert found.windows.num_rows == 3
    assert "no step is common to all ranks" in found.note


def test_each_capture_world_and_timeline_is_trimmed_by_itself() -> None:
    table = windows(
        *steps(1, 2, 3, 4), *steps(11, 12, 13, 14, 15, window=1), *steps(1, 2, 3, 4, world="b"),
        *steps(1, 2, rank=1, device=None, timeline="host"),
    )  # fmt: skip
    rows = select_windows(table, NO_ACTS).windows.to_pylist()
    got = [(r["world"], r["window"], r["timeline"], r["step"]) for r in rows]
    assert got == [
        ("0", 0, "device", 2), ("0", 0, "device", 3), ("0", 1, "device", 12), ("0", 1, "device", 13),
        ("0", 1, "device", 14), ("0", 0, "host", 1), ("0", 0, "host", 2), ("b", 0, "device", 2), ("b", 0, "device", 3),
    ]  # fmt: skip


def test_all_steps_and_listed_steps() -> None:
    table = windows(*steps(1, 2, 3, 4, 5))
    assert [s for *_, s in chosen(table, "all")] == [1, 2, 3, 4, 5]
    assert [s for *_, s in chosen(table, [4, 2])] == [2, 4]
    assert select_windows(table, NO_ACTS, which=[2, 9]).note == "step 2 of 1-5 (profiler step), no step 9"


def test_steps_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match="no step 9") as caught:
        select_windows(windows(*steps(1, 2, 3)), NO_ACTS, which=[9])
    assert "steps: 1-3" in str(caught.value)


def test_none_is_first_start_to_last_end_of_every_device_and_capture() -> None:
    acts = activities(
        act("compute", 10, 20, gpu="GPU-A", host="a"),
        act("compute", 30, 30),
        act("compute", 5, 5),
        act("compute", 0, 90, valid=False),
        act("comm", 12, 18, device=1),
        act("comm", 112, 118, window=1),
    )
    hosts = host_activities(("compute", 1, 9))
    found = select_windows(windows(*steps(1, 2)), acts, hosts, which="none")
    rows = [
        (r["window"], r["device"], r["timeline"], r["start_ns"], r["end_ns"])
        for r in found.windows.to_pylist()
    ]
    assert rows == [
        (0, 0, "device", 5, 30),
        (0, 1, "device", 12, 18),
        (0, None, "host", 1, 9),
        (1, 0, "device", 112, 118),
    ]
    first = found.windows.to_pylist()[0]
    assert (first["step"], first["gpu"], first["host"]) == (None, "GPU-A", "a")
    assert found.tiling == found.windows


def test_ends_as_recorded() -> None:
    acts = activities(
        act("compute", 0, 10, recorded_end_ns=90),
        act("compute", 0, 20, recorded_end_ns=None),
        act("compute", 0, 30, recorded_end_ns=-5, valid=False),
    )
    assert as_recorded(acts).column("end_ns").to_pylist() == [90, 20, 30]


def test_no_steps_at_all() -> None:
    found = select_windows(windows(), NO_ACTS)
    assert (found.windows.num_rows, found.note) == (0, "no steps")
    assert select_windows(windows(), NO_ACTS, which="none").windows.num_rows == 0
