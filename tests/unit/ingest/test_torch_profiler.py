"""Whole files: absolute times, closed pairs, validity, status, and the cases from bug reports."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from builders_scan import event, text_of

from rankscope.ingest.scan import ScanResult
from rankscope.ingest.scan.careful import CarefulScan
from rankscope.ingest.torch_profiler import COLUMNS, TraceFile, read_trace
from rankscope.store.errors import DamagedFile, UnknownFormat, UsageError
from rankscope.store.schema import EVENTS


def read(tmp_path: Path, content: bytes, name: str = "t.json") -> TraceFile:
    path = tmp_path / name
    path.write_bytes(content)
    return read_trace(str(path), spool=tmp_path / "spool")


def rows(trace: TraceFile, **options: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if v is not None} for r in trace.table(**options).to_pylist()]


def counts(trace: TraceFile) -> dict[str, int]:
    return {q.code: q.count for q in trace.quality}


def test_starts_become_absolute_with_a_base_that_stands_last(tmp_path: Path) -> None:
    tail = '"displayTimeUnit": "ns", "baseTimeNanoseconds": 1719853884000000000'
    with read(tmp_path, text_of([event(ts=1000.5, dur=40.25)], tail=tail)) as trace:
        row = rows(trace)[0]
        assert row["start_ns"] == 1_719_853_884_001_000_500  # microseconds, whatever displayTimeUnit says
        assert row["dur_ns"] == 40_250
        assert (trace.base_ns, trace.start_ns) == (1_719_853_884_000_000_000, row["start_ns"])
        assert trace.end_ns == row["start_ns"] + 40_250


@pytest.mark.parametrize(("base", "ns"), [('"17"', 17), ("17", 17), ("null", 0)])
def test_the_base_may_be_text_or_missing(tmp_path: Path, base: str, ns: int) -> None:
    with read(tmp_path, text_of([event()], head=f'"baseTimeNanoseconds": {base}')) as trace:
        assert trace.base_ns == ns
        assert trace.quality == []


@pytest.mark.parametrize("base", ['"soon"', "99999999999999999999", "[1]", "true"])
def test_a_base_that_is_no_time_is_left_out_and_said(tmp_path: Path, base: str) -> None:
    with read(tmp_path, text_of([event()], head=f'"baseTimeNanoseconds": {base}')) as trace:
        assert trace.base_ns == 0
        assert counts(trace) == {"base_time_invalid": 1}


def test_a_start_that_overflows_with_its_base_is_null_and_counted(tmp_path: Path) -> None:
    content = text_of(
        [event(ts=1), event(ts=9_000_000_000_000_000)], head='"baseTimeNanoseconds": 1719853884000000000'
    )
    with read(tmp_path, content) as trace:
        assert [r.get("start_ns") for r in rows(trace)] == [1_719_853_884_000_001_000, None]
        assert [r["valid"] for r in rows(trace)] == [True, False]
        assert counts(trace) == {"ts_invalid": 1}


def test_zero_negative_unfinished_and_impossible_times_are_marked_and_counted(tmp_path: Path) -> None:
    events = [
        event("good", ts=2_000_000, dur=40),
        event("zero", ts=0, dur=0),
        event("negative", ts=2_000_010, dur=-7),
        event("endless", ts=2_000_020, dur=9_223_372_036_854_775),
        event("overflow", ts=2_000_020, dur=99_999_999_999_999_999),
        event("cut off", ts=2_000_030, dur=3, args={"finished": False}),
        event("finished", ts=2_000_030, dur=3, args={"finished": True}),
        {"ph": "X", "name": "no duration", "ts": 2_000_040},
        {"ph": "X", "name": "bad ts", "ts": "soon", "dur": 1},
        {"ph": "X", "name": "no ts", "dur": 1},
        {"ph": "i", "name": "instant", "ts": 2_000_050},
        {"ph": "M", "name": "process_name", "ts": 0, "args": {"name": "python"}},
    ]
    with read(tmp_path, text_of(events)) as trace:
        valid = {r["name"]: r["valid"] for r in rows(trace)}
        assert [n for n, ok in valid.items() if ok] == [
            "good",
            "finished",
            "instant",
            "process_name",
        ]
        assert counts(trace) == {
            "ts_invalid": 3,
            "duration_negative": 1,
            "duration_impossible": 2,
            "event_unclosed": 2,
        }
        assert (trace.start_ns, trace.end_ns) == (2_000_000_000, 2_000_050_000)


def test_begins_and_ends_of_a_thread_are_a_stack(tmp_path: Path) -> None:
    def mark(ph: str, ts: float, tid: int = 13, **more: Any) -> dict[str, Any]:
        return {"ph": ph, "pid": 2, "tid": tid, "ts": ts, **more}

    events = [
        mark("E", 40),  # ends may stand anywhere in the file
        mark("B", 0, name="outer", args={"stream": 3}),
        mark("B", 10, name="inner"),
        mark("E", 25, args={"stream": 4, "note": "late"}),
        mark("B", 5, tid=14, name="open"),
        mark("E", 9, tid=15, name="lone"),
        {"ph": "X", "pid": 2, "tid": 15, "ts": 10, "dur": 64, "name": "x"},
    ]
    with read(tmp_path, text_of(events)) as trace:
        got = {r["name"]: r for r in rows(trace)}
        assert {n: r.get("dur_ns") for n, r in got.items()} == {
            "outer": 40_000,
            "inner": 15_000,
            "open": None,
            "lone": None,
            "x": 64_000,
        }
        assert {r["ph"] for n, r in got.items() if n in ("outer", "inner")} == {"B"}
        assert got["inner"]["stream"] == 4
        assert json.loads(got["inner"]["extra"]) == {"note": "late"}
        assert [n for n, r in got.items() if not r["valid"]] == ["open", "lone"]
        assert counts(trace) == {"event_unclosed": 1, "end_unmatched": 1}
        assert trace.n_events == 7


def test_an_end_that_says_something_else_than_its_begin_loses_neither(tmp_path: Path) -> None:
    common = {"pid": 1, "tid": 1}
    events = [
        {"ph": "B", "ts": 1, "name": "a", "attr": {"P": "1"}, "args": {"stream": 1, "x": 1}, **common},
        {
            "ph": "E",
            "ts": 2,
            "name": "b",
            "attr": {"P": "1"},
            "args": {"stream": 2, "x": 2, "y": 3},
            **common,
        },
    ]
    with read(tmp_path, text_of(events)) as trace:
        (row,) = rows(trace)
        assert (row["name"], row["stream"]) == ("a", 1)
        assert json.loads(row["extra"]) == {
            "attr": {"P": "1"},
            "x": 1,
            "x (end)": 2,
            "y": 3,
            "name (end)": "b",
            "stream (end)": 2,
        }


def test_pairs_close_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_small_chunks(chunks: Iterable[bytes], sink: Any, *, path: str) -> ScanResult:
        content = b"".join(chunks)
        pieces = [content[i : i + 100] for i in range(0, len(content), 100)]
        return CarefulScan(pieces, sink, path=path, chunk=500).run()

    monkeypatch.setattr("rankscope.ingest.torch_profiler.scan", in_small_chunks)
    n = 60
    begins = [{"ph": "B", "pid": 1, "tid": i, "ts": i, "name": f"e{i}"} for i in range(n)]
    ends = [{"ph": "E", "pid": 1, "tid": i, "ts": 1000, "args": {"end": i}} for i in range(n)]
    with read(tmp_path, text_of(begins + ends)) as trace:
        assert len(list(trace.batches())) > 5
        got = rows(trace)
        assert [r["dur_ns"] for r in got] == [(1000 - i) * 1000 for i in range(n)]
        assert [json.loads(r["extra"]) for r in got] == [{"end": i} for i in range(n)]


def test_columns_and_rows_can_be_chosen(tmp_path: Path) -> None:
    events = [
        event("k", args={"stream": 7}),
        event("frame.py(1): f", cat="python_function"),
        {"ph": "i", "name": "[memory]", "ts": 1},
    ]
    with read(tmp_path, text_of(events)) as trace:
        assert tuple(trace.table().column_names) == COLUMNS
        assert trace.table(["name", "start_ns"]).column_names == ["name", "start_ns"]
        without = trace.table(["name"], exclude_cats=["python_function"])
        assert without.column("name").to_pylist() == ["k", "[memory]"]
        assert "frame.py(1): f" not in without.column("name").combine_chunks().dictionary.to_pylist()
        assert rows(trace, cats=["kernel"], columns=["stream"]) == [{"stream": 7}]
        assert [r["name"] for r in rows(trace, names=lambda n: n.startswith("["))] == ["[memory]"]


def test_the_table_has_the_types_of_the_schema_also_when_it_is_empty(tmp_path: Path) -> None:
    kept = [f for f in EVENTS.arrow if f.name in COLUMNS]
    for content in (b"", text_of([event()])):
        with read(tmp_path, content) as trace:
            assert list(trace.table().schema) == kept


def test_names_of_processes_and_threads_stand_in_the_header(tmp_path: Path) -> None:
    events = [
        event(),
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "GPU 0"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 7, "args": {"name": "stream 7"}},
        {"ph": "M", "name": "process_sort_index", "pid": 1, "args": {"sort_index": 5}},
    ]
    with read(tmp_path, text_of(events)) as trace:
        assert trace.header["_process_names"] == {"1": "python"}
        assert trace.header["_process_labels"] == {"1": "GPU 0"}
        assert trace.header["_thread_names"] == {"1/7": "stream 7"}


def test_the_status_says_whole_truncated_or_empty(tmp_path: Path) -> None:
    whole = text_of([event("a"), event("b")])
    packed = gzip.compress(whole)
    expected = {
        whole: ("whole", 2),
        whole[:-40]: ("truncated", 1),
        packed: ("whole", 2),
        packed[:-8]: ("truncated", 2),
        b"": ("empty", 0),
        gzip.compress(b""): ("empty", 0),
        b'{"traceEvents": []}': ("empty", 0),
    }
    for content, (status, n) in expected.items():
        with read(tmp_path, content) as trace:
            assert (trace.status, trace.n_events) == (status, n)
            assert (trace.reason is None) == (status == "whole")
            assert ("file_truncated" in counts(trace)) == (status == "truncated")


def test_the_spool_is_removed_whatever_happens(tmp_path: Path) -> None:
    for content in (text_of([event()]), b"junk", b'{"traceEvents": [{'):
        try:
            with read(tmp_path, content):
                assert list((tmp_path / "spool").iterdir())
        except (UnknownFormat, DamagedFile):
            pass
        assert list((tmp_path / "spool").iterdir()) == []
    with pytest.raises(UsageError):
        read_trace(str(tmp_path / "missing"), spool=tmp_path / "spool")
    assert list((tmp_path / "spool").iterdir()) == []


def case(shared: Path, number: str, name: str) -> str:
    return str(next((shared / "cases").glob(f"{number}-*")) / name)


@pytest.mark.parametrize(
    ("number", "name", "n", "quality"),
    [
        ("01", "rank0.json", 3, {"string_repaired": 1}),
        ("03", "rank0.json", 3, {"string_repaired": 2}),
        ("04", "rank0.json", 2, {"number_not_finite": 1}),
        ("06", "rank0.json", 7, {"file_truncated": 1}),
        ("06", "rank1.json.gz", 1950, {"file_truncated": 1}),
        ("07", "rank0.json.gz", 0, {"file_empty": 1}),
        ("07", "rank1.json", 0, {"file_empty": 1}),
        ("22", "rank0.json", 4, {}),
        ("25", "rank0.json", 4, {"ts_invalid": 1}),
        ("26", "rank0.json", 4, {"duration_negative": 2, "duration_impossible": 1}),
        ("30", "rank0.json", 2, {}),
        ("46", "fused.json", 6, {"rank_assumed": 2}),
        ("47", "host.json", 7, {"event_unclosed": 1, "end_unmatched": 1}),
    ],
)
def test_cases_from_bug_reports(
    shared: Path, tmp_path: Path, number: str, name: str, n: int, quality: dict[str, int]
) -> None:
    with read_trace(case(shared, number, name), spool=tmp_path) as trace:
        assert trace.n_events == n
        assert counts(trace) == quality


def test_a_file_of_two_ranks_names_both_and_whose_each_process_is(shared: Path, tmp_path: Path) -> None:
    with read_trace(case(shared, "46", "fused.json"), spool=tmp_path) as trace:
        assert trace.ranks == (0, 1)
        assert trace.rank_of_pid == {"0": 0, "100": 0, "100000": 1, "100100": 1}


@pytest.mark.corpus
def test_the_damaged_header_of_a_real_recording_costs_nothing(shared: Path, tmp_path: Path) -> None:
    path = shared / "corpus" / "files" / "rec_colls_w2_meta_rank0.json.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    with read_trace(str(path), spool=tmp_path) as trace:
        assert trace.n_events == text.count('"ph":')
        assert trace.header["note"] == 'say /"hi/" / path C:/tmpnewline'
        assert trace.header["host_name"] == "vm"
        assert trace.base_ns == 1_790_857_026_000_000_000
        assert counts(trace) == {"string_repaired": 1}
