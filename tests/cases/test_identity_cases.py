"""Whose trace is it: ranks, windows, worlds, front ends and facts, end to end over small directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders_command as build
import pytest
from builders_command import KNOWN, codes, command, events, parts, rows, trace
from builders_trace import write

HOST_ONLY = [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 100, "dur": 50}]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path / "cache"))


def _run(tmp_path: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        write(tmp_path / "run" / name, content)
    return tmp_path / "run"


def _ranks(run: Path) -> list[int]:
    return [row["rank"] for row in rows(run)]


def _place(run: Path) -> dict[str, tuple[str, int | None, int | None]]:
    """World, rank and window by file."""
    return {p: (s["world"], s["rank"], s["window"]) for p, s in build.sources(run).items()}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("trace-rank3-of-8.json", 3),
        ("RANK_3.json", 3),
        ("node0.rank.3.json", 3),
        ("rank-3_step-10.json", 3),
        ("trace_rank[3].json", 3),
        ("rank=3.json", 3),
        ("global_rank_3_local_rank_1.json", 3),
        ("GlobalRank3.json", 3),
        ("rank03.pt.trace.json", 3),
        ("rank3.1700000000000.pt.trace.json", 3),
        ("frank7.json", 0),
        ("local_rank_3.json", 0),
        ("host_123.1700000000000.pt.trace.json", 0),
    ],
)
def test_a_number_is_a_rank_where_the_name_says_rank(tmp_path: Path, name: str, rank: int) -> None:
    run = _run(tmp_path, {name: trace(None)})
    assert parts(run / name) == [(rank, 0, KNOWN)]


@pytest.mark.parametrize("stated", [3, "3", 3.0])
def test_the_rank_may_be_written_as_a_number_a_text_or_a_float(tmp_path: Path, stated: object) -> None:
    info = {"backend": "nccl", "rank": stated, "world_size": 8}
    assert _ranks(_run(tmp_path, {"a.json": trace(None, distributedInfo=info)})) == [3]


def test_distributed_info_beats_the_name_and_missing_ranks_are_named(tmp_path: Path) -> None:
    run = _run(tmp_path, {"rank5.json": trace(2, 8)})
    assert _ranks(run) == [2]
    assert codes(run) == {"rank_missing": 7}


def test_files_of_other_kinds_are_named_and_never_stop_the_run(tmp_path: Path) -> None:
    graph = {"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "x"}]}
    dump = {"version": "2.4", "pg_config": {"0": {"name": "0"}}, "entries": [{"collective_seq_id": 1}]}
    files = {
        "rank0.json": trace(0, 1),
        "rank0.et.json": graph,
        "rank0.memory.json": [[1, 2, 3], [4, 5, 6]],
        "nccl_trace_rank_0.json": dump,
        "nccl_trace_rank_1": b"\x80\x02}q\x00(X\x07\x00\x00\x00entries",
        "config.json": {"a": 1},
        "notes.txt": "hello",
    }
    run = _run(tmp_path, files)
    assert parts(run) == [(0, 0, KNOWN)]
    kinds = {path: s["kind"] for path, s in build.sources(run).items()}
    assert kinds["rank0.et.json"] == "execution_trace"
    assert kinds["rank0.memory.json"] == "memory_timeline"
    assert kinds["nccl_trace_rank_0.json"] == kinds["nccl_trace_rank_1"] == "flight_recorder"
    assert codes(run) == {}


def test_iteration_folders_are_windows_and_a_rank_that_lacks_one_is_cut(tmp_path: Path) -> None:
    files = {
        f"iteration_{i}/rank{r}_trace.json": trace(r, 2, found=events(i * 1000))
        for i, r in ((10, 0), (10, 1), (20, 0))
    }
    run = _run(tmp_path, files)
    cells = {(r["window"], r["rank"]): r["wall_ns"] for r in rows(run, "--by", "window,rank")}
    assert cells == {(0, 0): 350_000, (0, 1): 350_000, (1, 0): 350_000}
    assert codes(run) == {"window_cut": 1}


def test_exports_that_count_steps_are_windows_of_one_rank(tmp_path: Path) -> None:
    files = {f"trace_step_{n}.json": trace(None, found=events(n * 100)) for n in (100, 200)}
    place = _place(_run(tmp_path, files))
    assert place == {"trace_step_100.json": ("0", 0, 0), "trace_step_200.json": ("0", 0, 1)}


def test_numbered_files_one_after_the_other_are_windows_and_at_one_time_ranks(tmp_path: Path) -> None:
    apart = _run(tmp_path / "a", {f"trace_{n}.json": trace(None, found=events(n * 1000)) for n in (4, 8)})
    assert [(r, w) for _, r, w in _place(apart).values()] == [(0, 0), (0, 1)]
    together = _run(tmp_path / "b", {f"trace_{n}.json": trace(None) for n in (4, 8)})
    assert [(r, w) for _, r, w in _place(together).values()] == [(0, 0), (1, 0)]
    assert codes(together) == {"rank_assumed": 2}


def test_the_same_rank_at_the_same_time_is_refused_with_both_names(tmp_path: Path) -> None:
    files = {"a.json": trace(0, 2), "b.json": trace(0, 2), "c.json": trace(1, 2)}
    run = _run(tmp_path, files)
    assert parts(run) == [(1, 0, KNOWN)]
    assert codes(run) == {"duplicate_rank": 2}
    ran = command("breakdown", run / "a.json", run / "b.json")
    assert ran.code == 3
    assert "a.json" in ran.err
    assert "b.json" in ran.err


ENGINES = "dp{dp}_pp0_tp{tp}_dcp0_ep{tp}_rank{tp}.170000000000{dp}.pt.trace.json.gz"


@pytest.mark.parametrize("gap_us", [0, 10_000])
def test_data_parallel_engines_are_worlds_whenever_they_were_captured(tmp_path: Path, gap_us: int) -> None:
    files = {
        ENGINES.format(dp=dp, tp=tp): trace(tp, 2, found=events(dp * gap_us))
        for dp in (0, 1)
        for tp in (0, 1)
    }
    place = _place(_run(tmp_path, files))
    assert {p[:3]: (world, window) for p, (world, _, window) in place.items()} == {
        "dp0": ("dp0", 0),
        "dp1": ("dp1", 0),
    }


def test_sglang_engines_of_one_index_are_worlds_too(tmp_path: Path) -> None:
    files = {f"17-TP-{t}-DP-{d}-PP-0-EP-0.trace.json.gz": trace(None) for t in (0, 1) for d in (0, 1)}
    place = _place(_run(tmp_path, files))
    assert sorted(place.values()) == [("dp0", 0, 0), ("dp0", 1, 0), ("dp1", 0, 0), ("dp1", 1, 0)]


@pytest.mark.parametrize("gap_us", [0, 10_000])
def test_trainer_and_rollout_take_turns_and_stay_two_worlds(tmp_path: Path, gap_us: int) -> None:
    files = {
        f"{job}/rank{r}.json": trace(r, 2, found=events(i * gap_us))
        for i, job in enumerate(("rollout", "trainer"))
        for r in (0, 1)
    }
    run = _run(tmp_path, files)
    assert {world for world, _, _ in _place(run).values()} == {"rollout", "trainer"}
    assert len(rows(run, "--world", "trainer")) == 2
    assert command("breakdown", run, "--world", "nope").code == 2


def test_prefill_and_decode_servers_are_two_worlds(tmp_path: Path) -> None:
    files = {f"{job}/TP-{t}.trace.json.gz": trace(None) for job in ("prefill", "decode") for t in (0, 1)}
    place = _place(_run(tmp_path, files))
    assert sorted(place.values()) == [
        ("decode", 0, 0),
        ("decode", 1, 0),
        ("prefill", 0, 0),
        ("prefill", 1, 0),
    ]


def test_a_front_end_beside_gpu_ranks_is_no_rank(tmp_path: Path) -> None:
    front = trace(None, found=HOST_ONLY, deviceProperties=[])
    files: dict[str, Any] = {"hostx_5.async_llm.1700000000000.pt.trace.json.gz": front}
    files |= {f"hostx_{r}-rank-{r}.1700000000000.pt.trace.json.gz": trace(r, 2) for r in (0, 1)}
    run = _run(tmp_path, files)
    assert _ranks(run) == [0, 1]
    assert {s["kind"] for s in build.sources(run).values()} == {"torch_profiler", "frontend"}


@pytest.mark.parametrize(
    ("pid", "label"),
    [
        ("{r}", "Rank {r}"),
        ("{r}00", "[rank {r}] python"),
        ("{r}", "python (rank={r})"),
        ("rank {r} GPU", None),
        ("Rank_{r}/GPU 0", None),
    ],
)
def test_a_file_that_fuses_ranks_is_split_by_its_processes(
    tmp_path: Path, pid: str, label: str | None
) -> None:
    found = []
    for rank in (0, 1):
        process = pid.format(r=rank)
        if label is not None:
            name = {"name": label.format(r=rank)}
            found.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": name})
        found += [event | {"pid": process} for event in events(rank * 5)]
    run = _run(tmp_path, {"fused.json": trace(None, found=found)})
    assert parts(run) == [(0, 0, KNOWN), (1, 0, KNOWN)]


def test_several_gpus_of_one_file_are_told_apart_by_device(tmp_path: Path) -> None:
    found = [e for device in (0, 1, 2) for e in events(10 * device, device=device)]
    run = _run(tmp_path, {"a.json": trace(0, 1, found=found)})
    assert parts(run) == [(0, d, KNOWN) for d in (0, 1, 2)]


def test_facts_give_coordinates_and_hosts_and_a_contradiction_is_a_row(tmp_path: Path) -> None:
    run = _run(tmp_path, {f"rank{r}.json": trace(r, 4) for r in range(4)})
    facts = ("--set", "tp=2", "--set", "pp=2", "--set", 'hosts=["n0","n1"]')
    assert [(r["coords"], r["host"]) for r in rows(run, *facts)] == [
        ("tp0.pp0", "n0"),
        ("tp1.pp0", "n0"),
        ("tp0.pp1", "n1"),
        ("tp1.pp1", "n1"),
    ]
    ran = command("breakdown", run, "--set", "tp=3", "--strict")
    assert ran.code == 4
    assert "fact_contradicted" in ran.err


@pytest.mark.parametrize("text", ["tp = [", "tq = 2", 'tp = "x"', "\0\xff"])
def test_a_wrong_facts_file_is_a_usage_error_that_names_it(tmp_path: Path, text: str) -> None:
    run = _run(tmp_path, {"rank0.json": trace(0, 1), "run.toml": text})
    ran = command("breakdown", run)
    assert ran.code == 2
    assert "run.toml" in ran.err
    assert len(ran.err.splitlines()) <= 2
