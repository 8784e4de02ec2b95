"""A run in Python: lazy, exact, rank by rank, and never device rows beside host rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders_trace import NCCL, host, kernel, launch, steps_trace, two_ranks, write

import rankscope
from rankscope.store.errors import EmptyRun, UnreadableFile, UsageError
from rankscope.store.schema import PARTS

STEP = (30_000, 10_000, 20_000, 5_000, 35_000)
"""The five parts of a whole step of `steps_trace`, from its construction."""


def parts(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[p] for p in PARTS)


def trace(
    events: list[dict[str, Any]], rank: int = 0, world_size: int = 1, backend: str = "nccl"
) -> dict[str, Any]:
    info = {"backend": backend, "rank": rank, "world_size": world_size}
    return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}


@pytest.fixture
def run(tmp_path: Path) -> rankscope.Run:
    return rankscope.open(two_ranks(tmp_path / "traces"))


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    late = rankscope.open(tmp_path / "not" / "yet" / "there")
    assert "there" in repr(late)
    with pytest.raises(UsageError):
        _ = late.store


def test_steady_steps_leave_out_the_first_and_last(run: rankscope.Run) -> None:
    rows = run.breakdown_table(by=["rank", "step"]).to_pylist()
    assert [(r["rank"], r["step"]) for r in rows] == [(r, s) for r in (0, 1) for s in (2, 3, 4)]
    assert all(parts(r) == STEP and r["wall_ns"] == 100_000 for r in rows)
    assert "2-4" in run.steps_note()
    assert run.steps_table().num_rows == 6
    assert run.steps_table(ranks=1, steps="all").num_rows == 5


def test_a_step_that_one_rank_lacks_is_not_steady_for_the_others(tmp_path: Path) -> None:
    write(tmp_path / "rank_0.json", steps_trace(0, n_steps=6))
    write(tmp_path / "rank_1.json", steps_trace(1, n_steps=5))
    some = rankscope.open(tmp_path)
    assert some.breakdown_table(by=["step"]).column("step").to_pylist() == [2, 3, 4]
    # Looking at rank 0 alone does not change what is steady in the world.
    assert some.breakdown_table(by=["step"], ranks=0).column("step").to_pylist() == [2, 3, 4]


def test_rows_are_summed_exactly_and_means_are_per_window(run: rankscope.Run) -> None:
    (row,) = run.breakdown_table(by="run").to_pylist()
    assert parts(row) == tuple(6 * p for p in STEP) and row["n"] == 6
    (mean,) = run.breakdown_table(by="run", mean=True).to_pylist()
    assert mean["wall_ms"] == pytest.approx(0.1) and mean["compute_only_ms"] == pytest.approx(0.03)


def test_steps_none_is_one_window_per_device(run: rankscope.Run) -> None:
    rows = run.breakdown_table(steps="none").to_pylist()
    assert [r["wall_ns"] for r in rows] == [470_000, 470_000]
    assert all(parts(r) == (150_000, 50_000, 100_000, 25_000, 145_000) for r in rows)
    assert all(r["step"] is None for r in rows)


def test_frames_are_exact_and_twins_of_the_tables(run: rankscope.Run) -> None:
    frame = run.breakdown(by=["rank", "step"])
    assert frame["wall_ns"].dtype == "Int64" and frame["bubble_ns"].isna().all()
    assert frame["wall_ns"].tolist() == [100_000] * 6
    assert len(run.kernels()) == run.kernels_table().num_rows == 3
    assert len(run.gaps(top=4)) == 4
    assert run.quality()["code"].dtype == "string"
    assert run.sources()["n_events"].tolist() == [40, 40]
    assert len(run.steps()) == 6 and len(run.summary()) == run.summary_table().num_rows
    info = run.info()
    assert (info["ranks"][0], info["n_steps"][0], info["devices"][0]) == ("0-1", 5, "Test GPU")


def test_kernels_count_the_windows_in_use(run: rankscope.Run) -> None:
    rows = {r["name"]: r for r in run.kernels_table().to_pylist()}
    assert rows["gemm_a"]["count"] == 6 and rows["gemm_a"]["total_ns"] == 240_000
    assert {r["name"]: r["count"] for r in run.kernels_table(steps="all", ranks=[0]).to_pylist()}[
        "gemm_a"
    ] == 5


def test_gaps_tell_what_stood_around_them(run: rankscope.Run) -> None:
    rows = run.gaps_table(top=100).to_pylist()
    assert all(r["on_ranks"] == 2 for r in rows)
    longest = rows[0]
    assert longest["end_ns"] - longest["start_ns"] == 20_000
    assert longest["previous_kernel"].startswith("Memcpy") and longest["next_kernel"] == "gemm_a"
    assert longest["host_frame"] is not None
    whole = run.breakdown_table(by="run", causes="full").to_pylist()[0]["idle_ns"]
    assert sum(r["dur_ns"] for r in rows) == whole


def test_selections_given_when_opening_hold_until_told_otherwise(tmp_path: Path) -> None:
    one = rankscope.open(two_ranks(tmp_path / "t"), ranks=[1], steps="all")
    assert one.breakdown_table(by=["rank"]).column("n").to_pylist() == [5]
    assert one.breakdown_table(by=["rank"], ranks=None).num_rows == 2
    assert one.breakdown_table(by=["rank"], steps=[3, 4]).column("n").to_pylist() == [2]
    with pytest.raises(UsageError, match="ranks with data: 0-1"):
        one.breakdown_table(ranks=7)
    with pytest.raises(UsageError, match="no world"):
        one.breakdown_table(world="x")
    with pytest.raises(UsageError, match="no window"):
        one.breakdown_table(window=3)


def test_worlds_and_windows_are_chosen_by_name(tmp_path: Path) -> None:
    for job, size in (("train", 2), ("rollout", 3)):
        for rank in range(size):
            for w in range(2):
                made = steps_trace(rank, world_size=size, shift=100_000 * w, first=1 + 10 * w)
                write(tmp_path / job / f"iteration_{w}" / f"rank{rank}_trace.json", made)
    run = rankscope.open(tmp_path)
    assert run.breakdown_table(by=["rank"]).column("n").to_pylist() == [6, 6, 6]
    small = run.breakdown_table(
        by=["rank"], world=next(w for w in run.store.worlds() if w != run.store.default_world)
    )
    assert small.num_rows == 2
    assert run.breakdown_table(by=["window"], window=1).column("window").to_pylist() == [1]
    assert run.info().shape[0] == 2


def test_a_rank_without_device_activity_is_a_row_of_its_own_kind(tmp_path: Path) -> None:
    write(tmp_path / "rank_0.json", steps_trace(0))
    ops = [host("cpu_op", "aten::mm", 100 * i, 60) for i in range(4)]
    write(tmp_path / "rank_1.json", trace(ops, rank=1, world_size=2, backend="gloo"))
    run = rankscope.open(tmp_path)
    rows = run.breakdown_table(by="run", steps="all").to_pylist()
    assert [r["timeline"] for r in rows] == ["device", "host"]
    assert rows[1]["device"] is None and rows[1]["compute_ns"] == 240_000
    assert {r["timeline"] for r in run.kernels_table(steps="all").to_pylist()} == {"device"}
    alone = rankscope.open(tmp_path / "rank_1.json")
    assert {r["timeline"] for r in alone.kernels_table().to_pylist()} == {"host"}


def _unrecorded(n_steps: int) -> list[dict[str, Any]]:
    """Steps of 100 us with one kernel each; the second issues a collective of which no kernel was recorded."""
    events: list[dict[str, Any]] = []
    for i in range(n_steps):
        t = 100 * i
        events += [
            host("user_annotation", f"ProfilerStep#{i}", t, 100),
            launch(t + 5, i + 1),
            kernel("gemm_a", t + 10, 60, corr=i + 1),
        ]
    return [
        *events,
        host("cpu_op", "record_param_comms", 120, 10, **{"Collective name": "allreduce", "Group size": 2}),
    ]


def test_communication_issued_but_not_recorded_is_unknown_where_it_was_issued(tmp_path: Path) -> None:
    write(tmp_path / "rank_0.json", trace(_unrecorded(3), world_size=2))
    run = rankscope.open(tmp_path)
    rows = {r["step"]: r for r in run.breakdown_table(by=["step"], steps="all").to_pylist()}
    assert [rows[s]["is_comm_recorded"] for s in (0, 1, 2)] == [True, False, True]
    assert [rows[s]["communication_ns"] for s in (0, 1, 2)] == [0, None, 0]
    assert rows[1]["exposed_comm_ns"] == rows[1]["overlap_ns"] == 0 and rows[1]["overlap_ratio"] is None
    (whole,) = run.breakdown_table(steps="none").to_pylist()
    assert whole["communication_ns"] is None and whole["is_comm_recorded"] is False


def test_ranges_count_as_calls_where_records_do_not_name_theirs(tmp_path: Path) -> None:
    steps = _unrecorded(3)[:-1]
    events = [
        *steps,
        host("cpu_op", "record_param_comms", 20, 10),
        host("user_annotation", "nccl:all_reduce", 220, 10),
    ]
    write(tmp_path / "rank_0.json", trace(events, world_size=2))
    rows = rankscope.open(tmp_path).breakdown_table(by=["step"], steps="all").to_pylist()
    assert [r["communication_ns"] for r in rows] == [0, 0, None]


def test_communication_that_ran_in_a_later_step_was_recorded(tmp_path: Path) -> None:
    named = {"Collective name": "allreduce", "Group size": 2}
    events = [*_unrecorded(3)[:-1], host("cpu_op", "record_param_comms", 180, 10, **named), launch(185, 50)]
    events.append(kernel(NCCL, 230, 30, corr=50, stream=20))
    write(tmp_path / "rank_0.json", trace(events, world_size=2))
    rows = rankscope.open(tmp_path).breakdown_table(by=["step"], steps="all").to_pylist()
    assert [r["communication_ns"] is None for r in rows] == [False, False, False]
    assert sum(r["communication_ns"] for r in rows) == 30_000


def test_late_completion_stamps_are_clipped_unless_asked_for_as_recorded(tmp_path: Path) -> None:
    events = [launch(0, 1), kernel("late", 10, 200, corr=1)]
    for i in range(4):
        events += [launch(1 + i, i + 2), kernel("next", 20 + 10 * i, 5, corr=i + 2)]
    run = rankscope.open(write(tmp_path / "rank_0.json", trace(events)))
    (clipped,) = run.breakdown_table(steps="none").to_pylist()
    (recorded,) = run.breakdown_table(steps="none", as_recorded=True).to_pylist()
    # late runs [10, 210); clipped to its successor's start 20. Successors run 5 us each at 20, 30, 40, 50.
    assert clipped["compute_ns"] == 30_000 and clipped["wall_ns"] == 45_000
    assert recorded["compute_ns"] == recorded["wall_ns"] == 200_000


def test_rules_and_facts_are_taken_from_files_and_texts(tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text('[[rule]]\nid = "mine"\npattern = "^gemm_a$"\nclass = "comm"\n')
    folder = two_ranks(tmp_path / "t")
    run = rankscope.open(folder, rules=[rules], facts=["tp=2"])
    assert {r["name"]: r["class"] for r in run.kernels_table().to_pylist()}["gemm_a"] == "comm"
    assert run.table("activities", columns=["coords"]).column("coords").to_pylist()[-1] == "tp1"
    with pytest.raises(UnreadableFile):
        rankscope.open(folder, rules=[tmp_path / "absent.toml"])
    with pytest.raises(UsageError):
        _ = rankscope.open(folder, step_regex="(").store


def test_a_scan_is_a_dataset_over_the_run(run: rankscope.Run) -> None:
    assert run.scan("events").count_rows() == run.table("events").num_rows == 80


def test_a_run_without_ranks_is_one_clear_error(tmp_path: Path) -> None:
    write(tmp_path / "rank_0.json", trace([]))
    with pytest.raises(EmptyRun):
        rankscope.open(tmp_path / "rank_0.json").breakdown_table()


def test_tables_need_neither_pandas_nor_datasets(tmp_path: Path) -> None:
    two_ranks(tmp_path / "t")
    code = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name in ('pandas', 'pyarrow.dataset'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        f"import rankscope; run = rankscope.open({str(tmp_path / 't')!r})\n"
        "print(run.breakdown_table().num_rows, run.gaps_table().num_rows, run.kernels_table().num_rows)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split()[0] == "2" and out.split()[2] == "3"
