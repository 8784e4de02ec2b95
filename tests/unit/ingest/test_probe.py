"""What a file says about itself, from its head and tail."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from builders_identity import trace_text
from builders_trace import write
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.ingest.discover import Source, discover
from rankscope.ingest.peek import peek_events
from rankscope.ingest.probe import HEAD_BYTES, Probe, probe
from rankscope.ingest.sniff import sniff


def look(path: Path, *, deep: bool = False, member: str | None = None) -> Probe:
    return probe(Source(str(path), path.name, member), deep=deep)


def big(events: list[str], header: str = "", tail: str = "", n: int = 30_000) -> str:
    """A trace of more than one head, filled with operators between the given events."""
    filler = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 500, "dur": 1}'
    body = ",\n".join([events[0], *[filler] * n, *events[1:]])
    return f'{{{header}"traceEvents": [\n{body}\n]{tail}}}'


def event(ts: object, dur: object = 10, cat: str = "cpu_op", ph: str = "X") -> str:
    return json.dumps({"ph": ph, "cat": cat, "name": "e", "pid": 1, "tid": 1, "ts": ts, "dur": dur})


def test_header_facts(tmp_path: Path) -> None:
    config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))}]
    info = {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 71, "pg_config": config}
    text = trace_text(distributedInfo=info, host_name="node7", baseTimeNanoseconds=1_000_000_000)
    found = look(write(tmp_path / "a.json", text))
    assert (found.kind, found.shape, found.status, found.reason) == (
        "torch_profiler",
        "object",
        "whole",
        None,
    )
    assert (found.rank, found.world_size, found.backend, found.pg_count) == (3, 8, "nccl", 71)
    assert (found.host, found.gpus, found.base_ns) == ("node7", ("GPU-A",), 1_000_000_000)
    assert (found.first_ns, found.last_ns) == (1_000_100_000, 1_000_130_000)
    assert found.groups_key is not None
    assert found.has_device_activity
    assert found.is_trace


def test_groups_key_tells_other_groups_apart_and_ignores_their_order(tmp_path: Path) -> None:
    a, b = {"pg_name": "0", "pg_size": 2}, {"pg_name": "1", "pg_size": 4}
    keys = [
        look(write(tmp_path / "a.json", trace_text(distributedInfo={"rank": 0, "pg_config": c}))).groups_key
        for c in ([a, b], [b, a], [a])
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_distributed_info_and_base_behind_the_events(tmp_path: Path, name: str) -> None:
    tail = ', "distributedInfo": {"rank": 5, "world_size": 16}, "baseTimeNanoseconds": 7000'
    path = write(tmp_path / name, big([event(10), event(900)], tail=tail))
    found = look(path)
    assert path.suffix == ".gz" or path.stat().st_size > HEAD_BYTES
    assert (found.rank, found.world_size, found.base_ns) == (5, 16, 7000)
    assert (found.first_ns, found.last_ns) == (17_000, 917_000)


def test_a_compressed_file_is_read_to_its_end_only_when_asked(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.json.gz", big([event(10), event(900)], header='"distributedInfo": {"rank": 1}, ')
    )
    shallow, deep = look(path), look(path, deep=True)
    assert (shallow.rank, shallow.is_deep, shallow.last_ns) == (1, False, 501_000)
    assert (deep.rank, deep.is_deep, deep.last_ns) == (1, True, 910_000)


def test_damaged_user_metadata_does_not_hide_the_rank(tmp_path: Path) -> None:
    text = (
        '{"schemaVersion": 1, "note": "say /"hi/" / path C:/tmpnewline", "distributedInfo": {"backend": "gloo", '
        '"rank": 1, "world_size": 2, "pg_config": [{"ranks": [0, 1]}]}, "host_name": "vm", "traceEvents": ['
        + event(5)
        + "]}"
    )
    found = look(write(tmp_path / "a.json", text))
    assert (found.rank, found.world_size, found.backend, found.host) == (1, 2, "gloo", "vm")


def test_damaged_distributed_info_still_gives_its_numbers(tmp_path: Path) -> None:
    text = (
        '{"distributedInfo": {"backend": "nccl", "rank": 4, "world_size": 8, "x": "\\q"}, "traceEvents": ['
        + event(5)
    )
    found = look(write(tmp_path / "a.json", text))
    assert (found.rank, found.world_size, found.backend) == (4, 8, "nccl")


def test_distributed_info_inside_an_event_or_a_text_is_not_believed(tmp_path: Path) -> None:
    inner = '{"ph": "X", "name": "n", "ts": 1, "args": {"s": "\\"distributedInfo\\": {\\"rank\\": 9}"}}'
    assert look(write(tmp_path / "a.json", '{"traceEvents": [' + inner + "]}")).rank is None


@pytest.mark.parametrize(
    ("value", "rank"),
    [(3, 3), ("3", 3), (-1, None), (True, None), (None, None), (2.5, None), ("x", None), (2**40, None)],
)
def test_only_whole_numbers_are_ranks(tmp_path: Path, value: Any, rank: int | None) -> None:
    assert look(write(tmp_path / "a.json", trace_text(distributedInfo={"rank": value}))).rank == rank


def test_a_very_long_header_is_read_through(tmp_path: Path) -> None:
    config = [{"pg_name": str(i), "ranks": list(range(2000))} for i in range(200)]
    text = trace_text(distributedInfo={"pg_config": config, "rank": 6, "world_size": 2000})
    path = write(tmp_path / "a.json", text)
    assert path.stat().st_size > HEAD_BYTES
    found = look(path)
    assert (found.rank, found.world_size, found.is_trace) == (6, 2000, True)


def test_bare_array_of_2020(tmp_path: Path) -> None:
    text = f"[{event(100, cat='Kernel')}, {event(50, cat='Operator')}]"
    found = look(write(tmp_path / "a.json", text))
    assert (found.shape, found.first_ns, found.last_ns, found.has_device_activity) == (
        "array",
        50_000,
        110_000,
        True,
    )


def test_string_time_stamps_are_exact(tmp_path: Path) -> None:
    found = look(write(tmp_path / "a.json", f"[{event('1701313432463321.123', 0.5)}]"))
    assert (found.first_ns, found.last_ns) == (1701313432463321123, 1701313432463321623)


def test_damaged_stamps_do_not_widen_the_range(tmp_path: Path) -> None:
    good = [event(1_700_000_000_000_000 + i) for i in range(5)]
    bad = [event(0), event(1), event(9e18), event("x"), event(None), event(1_700_000_000_000_001, 1e15)]
    found = look(write(tmp_path / "a.json", "[" + ",".join(good + bad) + "]"))
    assert found.first_ns == 1_700_000_000_000_000_000
    assert found.last_ns == 1_700_000_000_000_014_000


def test_a_file_cut_in_the_middle_of_an_event_still_has_a_range(tmp_path: Path) -> None:
    text = f"[{event(100)}, {event(200)}, " + event(300)[:30]
    found = look(write(tmp_path / "a.json", text))
    assert (found.first_ns, found.last_ns) == (100_000, 210_000)


def test_gpu_records_in_the_middle_of_a_large_file_are_seen(tmp_path: Path) -> None:
    kernels = ",".join([event(600, cat="kernel")] * 30_000)
    text = big([event(10), kernels, *[event(700)] * 10_000])
    for name in ("a.json", "a.json.gz"):
        assert look(write(tmp_path / name, text)).has_device_activity


def test_cpu_trace_has_no_device_flags_and_amds_kernel_argument_is_none(tmp_path: Path) -> None:
    text = '[{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1, "args": {"kernel": "kernel"}}]'
    found = look(write(tmp_path / "a.json", text))
    assert (found.has_device_activity, found.has_device_calls) == (False, False)
    calls = look(write(tmp_path / "b.json", f"[{event(1, cat='cuda_runtime')}]"))
    assert (calls.has_device_activity, calls.has_device_calls) == (False, True)


def test_process_names_and_ranks_of_a_fused_file(tmp_path: Path) -> None:
    names = [
        json.dumps({"ph": "M", "name": "process_name", "pid": p, "ts": 0, "args": {"name": f"rank {r} GPU"}})
        for p, r in ((0, 0), (100000, 1))
    ]
    found = look(write(tmp_path / "fused.json", f"[{event(100)}, {', '.join(names)}]"))
    assert found.fused_ranks == (0, 1)
    assert found.process_names == ("rank 0 GPU", "rank 1 GPU")
    single = look(write(tmp_path / "one.json", f"[{event(100)}, {names[1]}]"))
    assert single.fused_ranks == ()


@pytest.mark.parametrize(
    ("data", "kind", "status", "reason"),
    [
        (b"", "other", "empty", "the file is empty"),
        (b"  \n ", "other", "empty", "nothing but white space"),
        (gzip.compress(b"", mtime=0), "other", "empty", "the file is empty"),
        (b"[]", "other", "empty", "an empty list"),
        (b"[", "other", "empty", "a list that ends before its first event"),
        (b'{"hello": 1}', "other", "skipped", "a JSON object without traceEvents"),
        (b'["a", "b"]', "other", "skipped", "a list of something else than events"),
        (b"\x00\x01\x02", "other", "skipped", "neither a JSON object nor a list of events"),
        (b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [', "execution_trace", "skipped", None),
        (b'{"entries": [{"collective_seq_id": 1}], "pg_config": {}}', "flight_recorder", "skipped", None),
        (b"\x80\x02}(X\x07\x00\x00\x00versionq\x00X\tpg_config", "flight_recorder", "skipped", None),
        (b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]", "memory_timeline", "skipped", None),
        (b"node01:1:2 [0] NCCL INFO 8 coll channels", "nccl_log", "skipped", None),
        (b'[\n{"name": "Group", "cat": "GROUP_API", "ph": "b", "ts": 1}', "nccl_profiler", "skipped", None),
        (
            b'{"header":{},"metadata":{"inspector_output_format_version":"v4.0"}}',
            "inspector",
            "skipped",
            None,
        ),
    ],
)
def test_what_is_no_trace_is_named(
    tmp_path: Path, data: bytes, kind: str, status: str, reason: str | None
) -> None:
    (tmp_path / "f").write_bytes(data)
    found = look(tmp_path / "f")
    assert (found.kind, found.status, found.is_trace) == (kind, status, False)
    assert found.reason == reason or (reason is None and found.reason)


def test_missing_and_broken_files_are_reasons_not_errors(tmp_path: Path) -> None:
    assert look(tmp_path / "gone.json").reason == "does not exist"
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"[" + event(1).encode())[:12])
    found = look(tmp_path / "cut.json.gz")
    assert found.status == "empty"
    assert found.reason is not None
    assert "gzip" in found.reason
    assert probe(Source("x", "x", skipped="because")).reason == "because"


def test_zip_member_is_probed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x/rank0.json", trace_text(rank=0))
        archive.writestr("x/rank1.json", trace_text(rank=1))
    assert [probe(s).rank for s in discover(str(tmp_path))] == [0, 1]


def test_nccl_samples_are_recognised(shared: Path) -> None:
    folder = shared / "nccl_samples"
    expected = {
        "inspector/verbose_rank0.log": "inspector",
        "ext_profiler/v5_master_trace_44607494358935148_0.json": "nccl_profiler",
        "flight_recorder/gloo_torch2.13/ok/comm_lib_trace_rank_0": "flight_recorder",
        "flight_recorder/gloo_torch2.13/ok/json_rank_0.json": "flight_recorder",
        "flight_recorder/docs/tutorial_v2.5_excerpt.json": "flight_recorder",
        "nccl_debug_log/init_2.22_issue273.log": "nccl_log",
        "nccl_debug_log/torch_watchdog_issue1730.log": "nccl_log",
        "kineto/gloo_cpu_torch2.13_rank0.json": "torch_profiler",
    }
    assert {name: look(folder / name).kind for name in expected} == expected


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"[", b'{"traceEvents": [', b'{"distributedInfo": {"rank": 1']),
)
def test_no_bytes_break_it(tmp_path_factory: pytest.TempPathFactory, data: bytes, start: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(start + data)
    found = look(path)
    assert found.status in ("whole", "empty", "skipped")
    assert found.is_trace or found.reason


@given(st.text(alphabet='{}[]":,\\u0 ph"ts1e9-.', max_size=200))
def test_no_text_breaks_the_peek(text: str) -> None:
    peek_events(text.encode(), text.encode())
    sniff(text.encode())


def test_hostile_nesting_is_bounded() -> None:
    found = peek_events(b'[{"a":' * 5000, b'{"a":[' * 5000)
    assert found.first_ns is None
