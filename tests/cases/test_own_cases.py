"""The project's own bug-report cases: tiny inputs, end to end, with numbers worked out by hand."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from builders_trace import NCCL, host, kernel, launch, memcpy, trace, write

import rankscope
from rankscope.store.errors import EmptyRun, TraceError, UsageError
from rankscope.store.schema import PARTS

US = 1000


def rows(path: Path | str | list[str], **options: Any) -> list[dict[str, Any]]:
    run = rankscope.open(path if isinstance(path, list) else str(path), cache=False)
    return run.breakdown_table(**{"steps": "none", **options}).to_pylist()


def codes(path: Path) -> dict[str, int]:
    table = rankscope.open(str(path), cache=False).table("quality").to_pylist()
    return {r["code"]: sum(q["count"] for q in table if q["code"] == r["code"]) for r in table}


def five(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[p] // US for p in PARTS)


def test_the_worked_example_of_the_partition(tmp_path: Path) -> None:
    # COMP [0,40) and [60,80), COMM [30,70), MEM [85,95), window [0,95): 40, 20, 20, 10, 5
    events = [kernel("gemm", 0, 40), kernel(NCCL, 30, 40, stream=20), kernel("gemm", 60, 20), memcpy(85, 10)]
    (row,) = rows(write(tmp_path / "rank0.json", trace(events)))
    assert five(row) == (40, 20, 20, 10, 5)
    assert row["wall_ns"] == 95 * US
    assert row["overlap_ratio"] == 0.5
    assert row["unsplit_comm_ns"] == 20 * US
    assert row["bubble_ns"] is None
    assert (row["bubble_min_ns"], row["bubble_max_ns"]) == (5 * US, 25 * US)


def test_epoch_microseconds_keep_every_nanosecond(tmp_path: Path) -> None:
    # A double near 1.7e15 steps by 0.25 us: only the decimal text holds these nanoseconds.
    text = trace([kernel("gemm", 1, 1), kernel("gemm", 2, 1)])
    text = text.replace('"ts": 1,', '"ts": 1700000000000000.001,').replace(
        '"ts": 2,', '"ts": 1700000000000003.333,'
    )
    text = text.replace('"dur": 1', '"dur": 1.111')
    (row,) = rows(write(tmp_path / "rank0.json", text))
    assert row["wall_ns"] == 3332 + 1111
    assert row["compute_ns"] == 2222


def test_absolute_time_adds_the_base_wherever_it_stands_in_the_file(tmp_path: Path) -> None:
    base = 1_775_078_550_000_000_000
    text = trace([kernel("gemm", 10, 5)])
    tail = text.rstrip()[:-1] + f', "baseTimeNanoseconds": {base}}}'
    run = rankscope.open(str(write(tmp_path / "rank0.json", tail)), cache=False)
    assert run.table("activities").column("start_ns").to_pylist() == [base + 10 * US]
    assert run.table("events").column("start_ns").to_pylist() == [base + 10 * US]


def test_several_gpus_in_one_file_are_several_devices(tmp_path: Path) -> None:
    events = [kernel("gemm", 0, 10), kernel("gemm", 100, 30, device=1)]
    got = rows(write(tmp_path / "rank0.json", trace(events)))
    assert [(r["rank"], r["device"], r["wall_ns"]) for r in got] == [(0, 0, 10 * US), (0, 1, 30 * US)]


def test_late_completion_stamps_are_clipped_and_shown_on_request(tmp_path: Path) -> None:
    # The first record claims [0,100); three later kernels of its stream begin and end inside it.
    events = (
        [kernel("gemm", 0, 100)] + [kernel("gemm", t, 5) for t in (20, 40, 60)] + [kernel("gemm", 120, 10)]
    )
    path = write(tmp_path / "rank0.json", trace(events))
    (row,) = rows(path)
    assert five(row) == (20 + 15 + 10, 0, 0, 0, 130 - 45)
    assert codes(path)["clipped_to_successor"] == 1
    (recorded,) = rows(path, as_recorded=True)
    assert recorded["compute_ns"] == 110 * US


def test_small_overlaps_on_one_stream_are_kept(tmp_path: Path) -> None:
    events = [kernel("gemm", 0, 10), kernel("gemm", 9, 10)]
    path = write(tmp_path / "rank0.json", trace(events))
    assert rows(path)[0]["compute_ns"] == 19 * US
    assert "clipped_to_successor" not in codes(path)


def test_two_files_of_one_rank_at_one_time_are_refused_with_both_names(tmp_path: Path) -> None:
    for name in ("a_rank0.json", "b_rank0.json"):
        write(tmp_path / name, trace([kernel("gemm", 0, 10)]))
    with pytest.raises(TraceError) as caught:
        rows(tmp_path)
    assert caught.value.exit_code == 3
    assert "a_rank0.json" in str(caught.value)
    assert "b_rank0.json" in str(caught.value)


def test_a_duplicate_does_not_stop_the_healthy_ranks(tmp_path: Path) -> None:
    write(tmp_path / "a_rank0.json", trace([kernel("gemm", 0, 10)], world_size=2))
    write(tmp_path / "b_rank0.json", trace([kernel("gemm", 0, 12)], world_size=2))
    write(tmp_path / "rank1.json", trace([kernel("gemm", 0, 14)], rank=1, world_size=2))
    got = rows(tmp_path)
    assert [(r["rank"], r["wall_ns"]) for r in got] == [(1, 14 * US)]
    run = rankscope.open(str(tmp_path), cache=False)
    refused = [s["path"] for s in run.table("sources").to_pylist() if s["status"] == "refused"]
    assert sorted(refused) == ["a_rank0.json", "b_rank0.json"]


def test_one_step_folders_are_pooled_into_windows(tmp_path: Path) -> None:
    for window, start in ((10, 0), (20, 1_000_000)):
        for rank in (0, 1):
            dur = 10 + rank + window
            path = tmp_path / f"iteration_{window}" / f"rank{rank}_trace.json"
            write(path, trace([kernel("gemm", start, dur)], rank=rank, world_size=2))
    run = rankscope.open(str(tmp_path), cache=False)
    got = run.breakdown_table(by=["rank", "window"], steps="none").to_pylist()
    assert [(r["rank"], r["window"], r["wall_ns"] // US) for r in got] == [
        (0, 0, 20),
        (0, 1, 30),
        (1, 0, 21),
        (1, 1, 31),
    ]
    total = run.breakdown_table(by=["rank"], steps="none").to_pylist()
    assert [(r["n"], r["wall_ns"] // US) for r in total] == [(2, 50), (2, 52)]


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", trace([kernel("gemm", 0, 10)], world_size=8))
    table = rankscope.open(str(tmp_path), cache=False).table("quality").to_pylist()
    (row,) = [r for r in table if r["code"] == "rank_missing"]
    assert row["count"] == 7
    assert "1-7" in row["example"]


def test_gzip_of_several_members_zip_and_zstd_read_alike(tmp_path: Path) -> None:
    import pyarrow as pa

    text = trace([kernel("gemm", 0, 10), kernel(NCCL, 5, 10, stream=20)]).encode()
    half = len(text) // 2
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "rank0.json.gz").write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:]))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.json", text)
    write(tmp_path / "z" / "rank0.zip", packed.getvalue())
    write(tmp_path / "s" / "rank0.json.zst", pa.compress(text, codec="zstd", asbytes=True))
    for folder in ("m", "z", "s"):
        assert five(rows(tmp_path / folder)[0]) == (5, 5, 5, 0, 0), folder


def test_one_bad_event_loses_only_itself(tmp_path: Path) -> None:
    events = [kernel("gemm", 10 * i, 5) for i in range(50)]
    text = trace(events)
    unreadable = write(tmp_path / "a" / "rank0.json", text.replace('"ts": 250,', '"ts": 250, "dur" }{,'))
    assert rows(unreadable)[0]["compute_ns"] == 49 * 5 * US
    assert codes(unreadable)["event_skipped"] == 1
    no_number = write(tmp_path / "b" / "rank0.json", text.replace('"ts": 250,', '"ts": 2x50,'))
    assert rows(no_number)[0]["compute_ns"] == 49 * 5 * US
    assert codes(no_number)["ts_invalid"] == 1


def test_nan_and_infinity_are_nothing(tmp_path: Path) -> None:
    text = trace([kernel("gemm", 0, 10, occupancy=0.5), kernel("gemm", 20, 10)]).replace("0.5", "NaN")
    path = write(tmp_path / "rank0.json", text)
    assert rows(path)[0]["compute_ns"] == 20 * US
    assert codes(path)["number_not_finite"] == 1


def test_a_step_waits_for_data(tmp_path: Path) -> None:
    # Two steps; in the second the host waits 30 us in the data loader before it launches.
    events = [
        host("user_annotation", "ProfilerStep#1", 0, 100),
        host("user_annotation", "ProfilerStep#2", 100, 100),
        launch(10, 1),
        kernel("gemm", 20, 60, corr=1),
        host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 110, 30),
        launch(150, 2),
        kernel("gemm", 160, 20, corr=2),
    ]
    got = rows(write(tmp_path / "rank0.json", trace(events)), by=["rank", "step"], steps="all")
    by_step = {r["step"]: r for r in got}
    # step 1: b = min(F=20, H=0) = 0 up to b_2 = min(160, max(100, 80)) = 100
    assert by_step[1]["wall_ns"] == 100 * US
    assert by_step[2]["wall_ns"] == 100 * US
    assert by_step[2]["data_loading_ns"] == 30 * US
    assert by_step[2]["launch_latency_ns"] == 10 * US
    # the gap [80,160) has its launch at 150: 30 data and 40 host_other, 20 on each side of the step's edge at 100;
    # the leading gap [0,20) has its launch at 10: 10 host_other, 10 launch latency
    assert by_step[1]["host_other_ns"] == (10 + 20) * US
    assert by_step[1]["launch_latency_ns"] == 10 * US
    assert by_step[2]["tail_ns"] == 20 * US
    assert by_step[2]["host_other_ns"] == 20 * US


def test_a_frontend_trace_is_never_a_rank(tmp_path: Path) -> None:
    write(tmp_path / "rank0.1.pt.trace.json", trace([launch(0, 1), kernel("gemm", 5, 10, corr=1)]))
    text = json.loads(trace([host("cpu_op", "schedule", 0, 5)], rank=None))
    del text["deviceProperties"]
    text["traceEvents"].append(
        {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "args": {"name": "AsyncLLM"}}
    )
    write(tmp_path / "host_frontend.async_llm.pt.trace.json", json.dumps(text))
    run = rankscope.open(str(tmp_path), cache=False)
    assert {r["rank"] for r in run.breakdown_table(steps="none").to_pylist()} == {0}
    assert sorted(str(s["kind"]) for s in run.table("sources").to_pylist()) == ["frontend", "torch_profiler"]


def test_nothing_there_and_nothing_usable_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        rows(tmp_path / "absent")
    write(tmp_path / "empty" / "rank0.json", "")
    with pytest.raises((EmptyRun, TraceError)) as caught:
        rows(tmp_path / "empty")
    assert caught.value.exit_code == 3


def test_an_existing_path_is_a_path_even_when_it_looks_like_a_glob(tmp_path: Path) -> None:
    path = write(tmp_path / "rank[0].json", trace([kernel("gemm", 0, 10)]))
    assert rows(path)[0]["wall_ns"] == 10 * US


def test_a_missing_comma_between_events_is_mended_and_counted(tmp_path: Path) -> None:
    text = trace([kernel("gemm", 0, 10), kernel("gemm", 20, 10)]).replace("}},\n{", "}} {")
    path = write(tmp_path / "rank0.json", text)
    assert rows(path)[0]["compute_ns"] == 20 * US
    assert codes(path)["syntax_repaired"] == 1


def test_a_comma_before_the_end_of_the_list_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", trace([kernel("gemm", 0, 10)]).replace("}}\n]", "}},\n]"))
    assert rows(path)[0]["compute_ns"] == 10 * US
    assert codes(path)["syntax_repaired"] == 1
