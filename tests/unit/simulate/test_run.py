"""What is written: files that say what the truth says, the same bytes each time, and every disturbance."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from builders_sim import LAYOUTS, SMALL, ns, parts_of, read

from rankscope.simulate import preset_texts, run_simulation
from rankscope.simulate.record import BASE_NS, START_NS
from rankscope.simulate.run import truth_table
from rankscope.store.errors import UsageError
from rankscope.store.schema import CAUSES

SIZES = SMALL | {"steps": 3}
MORE_LAYOUTS: dict[str, dict[str, Any]] = {
    **LAYOUTS,
    "ep": {"dp": 2, "ep": 2},
    "fsdp cp": {"dp": 2, "cp": 2, "fsdp": True},
}
DISTURBANCES: dict[str, dict[str, Any]] = {
    "jitter": {"jitter": 0.05},
    "slow rank": {"slow_rank": "1:1.5"},
    "slow link": {"slow_link": "dp:3"},
    "clock offset": {"clock_offset": "1:350us", "gpus_per_host": 4},
    "data stall": {"data_stall": "1@4:5ms"},
    "gc pause": {"gc_pause": "all@4:2ms"},
    "checkpoint": {"checkpoint": "0@5:2ms"},
    "host bound": {"host_bound": "4"},
    "lost launches": {"drop_launches": "0.05"},
    "no Seq": {"missing_seq": True},
}


def _check_against_files(out: Path) -> None:
    """Every window of every rank: parts, wall and causes close, and the file gives the same five parts."""
    clocks = {c["host"]: c["offset_ns"] for c in json.loads((out / "truth.json").read_text())["clocks"]}
    hosts = {r["rank"]: r["host"] for r in json.loads((out / "truth.json").read_text())["ranks"]}
    steps = {(r["rank"], r["step"]): r for r in truth_table(out / "truth.json", "steps")}
    traces: dict[int, list[dict[str, Any]]] = {}
    for row in truth_table(out / "truth.json", "breakdown"):
        rank = row["rank"]
        if rank not in traces:
            traces[rank] = read(next(out.glob(f"rank{rank}.json*")))["traceEvents"]
        window = steps[rank, row["step"]]
        assert row["wall_ns"] == window["end_ns"] - window["start_ns"]
        assert sum(row[c] for c in CAUSES) == row["idle_ns"]
        waits = (
            row["transfer_ns"] + row["pipeline_wait_ns"] + row["straggler_wait_ns"] + row["unsplit_comm_ns"]
        )
        assert waits == row["exposed_comm_ns"]
        parts = parts_of(traces[rank], window["start_ns"], window["end_ns"], START_NS + clocks[hosts[rank]])
        assert parts == {k: row[k] for k in parts}


@pytest.mark.parametrize("layout", sorted(MORE_LAYOUTS))
def test_the_files_of_each_layout_give_the_parts_of_the_truth(layout: str, tmp_path: Path) -> None:
    run_simulation(tmp_path / "run", compress="plain", **{**SIZES, **MORE_LAYOUTS[layout]})
    _check_against_files(tmp_path / "run")


@pytest.mark.parametrize("name", sorted(DISTURBANCES))
def test_the_files_of_each_disturbance_give_the_parts_of_the_truth(name: str, tmp_path: Path) -> None:
    options = {**SIZES, "tp": 2, "pp": 2, "dp": 2, "microbatches": 2, "detail": "layer", **DISTURBANCES[name]}
    result = run_simulation(tmp_path / "run", compress="plain", **options)
    _check_against_files(tmp_path / "run")
    codes = {f["code"] for f in result.findings}
    assert codes <= {
        "slow_rank", "slow_link", "data_stall", "gc_pause", "checkpoint", "host_bound", "clock_offset",
        "missing_seq", "launches_dropped",
    }  # fmt: skip
    assert codes or name == "jitter"


def test_the_same_options_give_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    options = {**SIZES, **LAYOUTS["3d"], "jitter": 0.1}
    first, again, other = (tmp_path / n for n in ("a", "b", "c"))
    run_simulation(first, **options)
    run_simulation(again, **options)
    run_simulation(other, **options, seed=1)
    names = sorted(p.name for p in first.iterdir())
    assert names == sorted([f"rank{r}.json.gz" for r in range(8)] + ["truth.json"])
    assert all((first / n).read_bytes() == (again / n).read_bytes() for n in names)
    assert all((first / n).read_bytes() != (other / n).read_bytes() for n in names)


def test_a_trace_looks_like_kineto(tmp_path: Path) -> None:
    run_simulation(tmp_path, **SIZES, tp=2, pp=2)
    trace = read(tmp_path / "rank1.json.gz")
    info = trace["distributedInfo"]
    assert (info["backend"], info["rank"], info["world_size"], info["pg_count"]) == ("nccl", 1, 4, 5)
    assert [g["pg_desc"] for g in info["pg_config"]] == ["default_pg", "mesh_tp", "mesh_pp"]
    assert info["pg_config"][1]["ranks"] == [0, 1]
    assert trace["baseTimeNanoseconds"] == BASE_NS and BASE_NS % 7_889_238 == 0
    cats = {e.get("cat") for e in trace["traceEvents"]}
    assert cats >= {
        "cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset", "cuda_sync",
        "gpu_user_annotation", "overhead", "ac2g", "fwdbwd", "Trace",
    }  # fmt: skip
    text = gzip.decompress((tmp_path / "rank1.json.gz").read_bytes()).decode()
    assert (
        '"ts": 2411520000000.' in text.replace("2411520000200.", "2411520000000.") or '"ts": 2411520' in text
    )
    assert all(len(t.split(".")[1]) == 3 for t in _times(text))


def _times(text: str) -> list[str]:
    return [part.split(",")[0].split("}")[0] for part in text.split('"ts": ')[1:]]


def test_launches_and_activities_are_tied_by_correlation_and_arguments_are_whole(tmp_path: Path) -> None:
    run_simulation(tmp_path, **SIZES, tp=2, pp=2)
    events = read(tmp_path / "rank0.json.gz")["traceEvents"]
    device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    for e in device:
        launch = launches[e["args"]["correlation"]]
        assert ns(e["ts"]) > ns(launch["ts"])
        assert e["args"]["device"] == e["pid"] and e["args"]["stream"] == e["tid"]
    comm = [e for e in device if "Collective name" in e["args"]]
    assert {e["args"]["Collective name"] for e in comm} == {"allreduce", "send", "recv"}
    wanted = {"In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Ranks", "Seq"}
    assert all(wanted <= set(e["args"]) for e in comm)
    sends = [e["args"] for e in comm if e["args"]["Collective name"] == "send"]
    assert {a["Dst Rank"] for a in sends} == {2} and not any("Src Rank" in a for a in sends)
    calls = [e["args"] for e in events if e["name"] == "record_param_comms"]
    issued = [
        a["Seq"]
        for a in calls
        if a["Collective name"] == "allreduce" and a["Process Group Description"] == "mesh_tp"
    ]
    assert issued == list(range(1, len(issued) + 1))
    assert {"wait"} <= {a["Collective name"] for a in calls}


def test_steps_and_pipeline_actions_are_annotated_as_the_schedules_do(tmp_path: Path) -> None:
    def names(**options: Any) -> set[str]:
        run_simulation(tmp_path / "run", **{**SIZES, "detail": "layer", **options})
        events = read(tmp_path / "run" / "rank0.json.gz")["traceEvents"]
        return {e["name"] for e in events if e.get("cat") == "user_annotation"}

    plain = names(pp=2, microbatches=2)
    assert {"ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5", "Optimizer.step#AdamW.step"} <= plain
    assert not any(n.startswith(("PP:", "Forward", "Backward")) for n in plain)
    assert {"Forward 0", "Backward 1"} <= names(pp=2, microbatches=2, schedule="gpipe")
    many = names(pp=2, microbatches=2, schedule="interleaved")
    assert {"PP:0F0", "PP:2F1", "PP:2B0", "PP:0SEND_F0", "PP:2RECV_F1"} <= many


def test_a_host_clock_is_ahead_only_in_the_files(tmp_path: Path) -> None:
    options = {**SIZES, "dp": 2, "gpus_per_host": 1}
    run_simulation(tmp_path / "true", **options)
    run_simulation(tmp_path / "off", **options, clock_offset="1:350us")
    for rank, shift in ((0, 0), (1, 350_000)):
        a, b = (
            [ns(e["ts"]) for e in read(tmp_path / d / f"rank{rank}.json.gz")["traceEvents"] if e["ph"] == "X"]
            for d in ("true", "off")
        )
        assert [y - x for x, y in zip(a, b, strict=True)] == [shift] * len(a)
    same = [truth_table(tmp_path / d / "truth.json", "breakdown") for d in ("true", "off")]
    assert same[0] == same[1]


def test_missing_ranks_have_no_file_and_truncated_ones_end_early(tmp_path: Path) -> None:
    options = {**SIZES, "dp": 4, "missing_ranks": "3", "truncate": "1:0.5"}
    result = run_simulation(tmp_path / "gz", **options)
    assert [p.name for p in result.files] == ["rank0.json.gz", "rank1.json.gz", "rank2.json.gz"]
    with pytest.raises((EOFError, zlib.error)):
        gzip.decompress((tmp_path / "gz" / "rank1.json.gz").read_bytes())
    run_simulation(tmp_path / "plain", compress="plain", **options)
    text = (tmp_path / "plain" / "rank1.json").read_text()
    assert text.count("\n") > 100
    with pytest.raises(json.JSONDecodeError):
        json.loads(text.splitlines()[-1].rstrip(","))
    rows = json.loads((tmp_path / "plain" / "truth.json").read_text())["files"]
    assert [r["status"] for r in rows] == ["whole", "truncated", "whole", "missing"]


def test_a_slow_rank_costs_what_the_run_without_it_saves(tmp_path: Path) -> None:
    options = {**SIZES, "dp": 2}
    healthy = run_simulation(tmp_path / "a", **options)
    slow = run_simulation(tmp_path / "b", **options, slow_rank="1:2")
    (finding,) = slow.findings
    assert finding["code"] == "slow_rank" and finding["ranks"] == [1]
    total = [sum(r["wall_ns"] for r in truth_table(d.truth, "breakdown")) for d in (healthy, slow)]
    assert finding["cost_ns"] == (total[1] - total[0]) // 2 > 0
    last = [c["last_rank"] for c in truth_table(slow.truth, "calls") if c["role"] == "DP"]
    assert last and set(last) == {1}


def test_a_data_stall_is_idle_time_of_that_rank_and_waiting_of_the_others(tmp_path: Path) -> None:
    result = run_simulation(tmp_path, **SIZES, dp=2, data_stall="1@4:20ms")
    rows = {(r["rank"], r["step"]): r for r in truth_table(result.truth, "breakdown")}
    assert rows[1, 4]["data_loading_ns"] > 20_000_000 > rows[1, 5]["data_loading_ns"]
    assert rows[0, 4]["straggler_wait_ns"] > 19_000_000
    assert rows[0, 4]["data_loading_ns"] < 1_000_000


def test_a_slow_host_makes_the_device_wait_for_launches(tmp_path: Path) -> None:
    result = run_simulation(tmp_path, **SIZES, host_bound="5")
    for row in truth_table(result.truth, "breakdown"):
        assert row["host_dispatch_ns"] + row["host_other_ns"] + row["launch_latency_ns"] > row["wall_ns"] // 4


def test_a_folder_of_other_traces_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text("{}")
    with pytest.raises(UsageError, match="not simulated"):
        run_simulation(tmp_path, **SIZES)
    assert (tmp_path / "rank0.json").read_text() == "{}"


def test_an_earlier_simulation_is_replaced(tmp_path: Path) -> None:
    run_simulation(tmp_path, **SIZES, dp=4)
    run_simulation(tmp_path, **SIZES, dp=2, compress="plain")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank0.json", "rank1.json", "truth.json"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_many_ranks_need_little_memory(tmp_path: Path) -> None:
    code = (
        "import sys; from rankscope.simulate import run_simulation;"
        "r = run_simulation(sys.argv[1], detail='layer', steps=1, tp=4, pp=4, dp=16, microbatches=4, layers=4,"
        " hidden=512, ffn=1024, heads=8, seq=256, vocab=2048);"
        # not ru_maxrss, which a child inherits from the process that forked it
        "print(len(r.files), next(s.split()[1] for s in open('/proc/self/status') if s.startswith('VmHWM')))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    n_files, peak_kib = map(int, out.stdout.split())
    # 256 ranks took 114 MB, of which 65 MB are the interpreter: below half a megabyte a rank
    assert n_files == 256
    assert peak_kib < 200 * 1024


@pytest.mark.parametrize("name", sorted(set(preset_texts()) - {"scale"}))
def test_every_preset_runs(name: str, tmp_path: Path) -> None:
    result = run_simulation(tmp_path, preset=name, steps=1, layers=8, detail="layer", jitter=0.0)
    assert result.mean_step_ns > 0


def test_an_unfinished_simulation_is_known_as_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rankscope.simulate.run.Engine", stop)
    with pytest.raises(KeyboardInterrupt):
        run_simulation(tmp_path, **SIZES)
    monkeypatch.undo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank0.json.gz", "truth.json"]
    assert len(run_simulation(tmp_path, **SIZES).files) == 1


def test_long_lists_of_ranks_are_shortened_as_pytorch_does_but_not_in_the_header(tmp_path: Path) -> None:
    run_simulation(tmp_path, **{**SIZES, "steps": 1, "layers": 1, "detail": "stage"}, dp=32)
    trace = read(tmp_path / "rank31.json.gz")
    assert trace["distributedInfo"]["pg_config"][0]["ranks"] == list(range(32))
    listed = {e["args"]["Process Group Ranks"] for e in trace["traceEvents"] if "Seq" in e.get("args", {})}
    assert f"[{', '.join(map(str, range(30)))}, ...]" in listed


def test_members_of_a_collective_share_its_identity(tmp_path: Path) -> None:
    run_simulation(tmp_path, **SIZES, tp=2)

    def ids(rank: int) -> list[tuple[int, int]]:
        events = read(tmp_path / f"rank{rank}.json.gz")["traceEvents"]
        return [
            (e["args"]["Seq"], e["args"]["Comms Id"])
            for e in events
            if e.get("cat") == "kernel" and "Seq" in e["args"]
        ]

    assert ids(0) == ids(1)
    assert len({c for _, c in ids(0)}) == len(ids(0)) > 10
