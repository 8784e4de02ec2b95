"""Every field of every event against the standard library's JSON reader, over synthetic and real traces."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rankscope.ingest.scan.careful import CarefulScan

INTEGERS = {
    "correlation": "correlation",
    "External id": "external_id",
    "device": "device",
    "graph id": "graph_id",
    "graph node id": "graph_node_id",
    "bytes": "bytes",
    "Group size": "group_size",
    "In msg nelems": "in_nelems",
    "Out msg nelems": "out_nelems",
    "Seq": "seq",
    "Src Rank": "src_rank",
    "Dst Rank": "dst_rank",
    "Python id": "python_id",
    "Python parent id": "python_parent_id",
    "wait_on_stream": "wait_on_stream",
    "wait_on_cuda_event_record_corr_id": "wait_on_correlation",
}
WORDS = {
    "Collective name": "collective",
    "Process Group Name": "pg",
    "Process Group Description": "pg_description",
    "Process Group Ranks": "pg_ranks",
    "In split size": "in_split",
    "Out split size": "out_split",
    "dtype": "dtype",
    "Comms Id": "comms_id",
}
OLD = {"external id": "External id", "Process Group ID": "Process Group Name", "Input dims": "Input Dims"}
CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
    "async": "ac2g",
    "async_gpu": "ac2g",
    "async_cpu_to_gpu": "ac2g",
}


def ns(value: Any) -> int | None:
    try:
        return int((Decimal(str(value)) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_UP))
    except InvalidOperation:
        return None


def expected(event: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Typed columns and leftovers of an event, from its plain JSON."""
    columns: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in event.items():
        if key in ("ph", "cat", "name", "pid", "tid"):
            columns[key] = None if value is None else str(value)
        elif key in ("ts", "dur"):
            columns["start_ns" if key == "ts" else "dur_ns"] = None if value is None else ns(value)
        elif key != "args":
            extra[key] = value
    columns["cat"] = CATEGORIES.get(columns.get("cat"), columns.get("cat"))
    args = event.get("args") or {}
    for key, value in args.items():
        _argument(OLD[key] if key in OLD and OLD[key] not in args else key, value, columns, extra)
    if columns.get("graph_id") == 0:
        columns["graph_id"] = None
    if columns.get("graph_node_id") == 0 and not columns.get("graph_id"):
        columns["graph_node_id"] = None
    tid = str(event.get("tid"))
    if "stream" not in columns and tid.startswith("stream ") and tid[7:].isdecimal():
        columns["stream"] = int(tid[7:])
    return columns, extra


def _argument(key: str, value: Any, columns: dict[str, Any], extra: dict[str, Any]) -> None:
    integer = INTEGERS.get(key) or ("stream" if key == "stream" else None)
    is_int = type(value) is int and abs(value) < 1 << 63
    if integer and is_int:
        columns[integer] = value
    elif key == "Is asynchronized op" and value in (0, 1):
        columns["is_async"] = bool(value)
    elif key in WORDS and isinstance(value, str):
        columns[WORDS[key]] = value
    elif key == "Process Group Name" and type(value) is int:  # early 2024 wrote the id as a number
        columns["pg"] = str(value)
    else:
        if integer and isinstance(value, str) and value.lstrip("-").isdecimal():
            columns[integer] = int(value)
        extra[f"args.{key}" if key in extra else key] = value


def rows_of(content: bytes, chunk: int) -> Iterator[dict[str, Any]]:
    batches: list[pa.RecordBatch] = []
    pieces = (content[i : i + chunk] for i in range(0, len(content), chunk))
    CarefulScan(pieces, batches.append, path="t", chunk=chunk).run()
    for batch in batches:
        yield from batch.to_pylist()


def assert_equal(content: bytes, chunk: int) -> None:
    document = json.loads(content, parse_float=str, strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    rows = list(rows_of(content, chunk))
    assert len(rows) == len(events)
    for i, (event, row) in enumerate(zip(events, rows, strict=True)):
        columns, extra = expected(event)
        got_extra = json.loads(row.pop("extra") or "{}", parse_float=str, strict=False)
        assert {k: v for k, v in row.items() if v is not None} == {
            k: v for k, v in columns.items() if v is not None
        }, i
        assert got_extra == extra, i


DIALECTS: dict[str, list[dict[str, Any]]] = {
    "2020": [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 9, "tid": "9", "ts": 1612, "dur": 4, "args": {"Input dims": [[2, 3], []], "external id": 4, "external ts": 1}},
        {"ph": "X", "cat": "Kernel", "name": "k", "pid": "0", "tid": "stream 7", "ts": 1620, "dur": 1, "args": {"external id": 4, "correlation": 5, "grid": [1, 2, 3]}},
        {"ph": "s", "cat": "async", "name": "launch", "id": 5, "pid": 9, "tid": "9", "ts": 1613},
    ],
    "2022": [
        {"ph": "i", "name": "[memory]", "s": "t", "pid": 1, "tid": 2, "ts": 1665536373729077, "args": {"Device Type": 0, "Bytes": -512, "Addr": 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 1665536373729065, "dur": 12, "args": {"cbid": 211, "correlation": 5, "External id": 3, "Trace name": "P", "Trace iteration": 0}},
    ],
    "2024": [
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 2, "ts": 1712170298381102.25, "dur": 1.5, "args": {"Process Group ID": "0", "Collective name": "wait", "Group size": 1, "In msg nelems": 0, "dtype": "Float"}},
    ],
    "2026": [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0.000, "args": {"name": "python"}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 30, "ts": 4460000000.123, "dur": 17.001, "args": {"External id": 1, "Seq": 7, "graph id": 0, "graph node id": 0, "Process Group Ranks": "[0, 1]", "Is asynchronized op": 1, "stream": 30, "device": 0}},
        {"ph": "X", "cat": "kernel", "name": "g", "pid": 0, "tid": 7, "ts": 4460000001.5, "dur": 0, "args": {"graph id": 3, "graph node id": 0, "correlation": 9}},
    ],
    "rocm": [
        {"ph": "X", "cat": "cuda_runtime", "name": "hipMemcpyWithStream", "pid": 5, "tid": 6, "ts": 12.5, "dur": 3.25, "args": {"cid": 31, "bytes": "8", "kind": "1", "src": "0x1177a6000", "correlation": 44332}},
    ],
    "ascend": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 437675, "tid": 437675, "ts": "1704161511420306.491", "dur": 13.08, "args": {"Sequence number": -1}},
        {"ph": "f", "cat": "async_npu", "name": "x", "id": "17", "bp": "e", "pid": 1, "tid": 2, "ts": "1704161511420306.5"},
    ],
    "aiu": [
        {"attr": {"Power": "3620872431"}, "name": "add Cmpt", "ph": "B", "pid": 0, "tid": 15514734831341844875, "ts": 2097962447511.067},
        {"attr": {"Power": "3620872431"}, "name": "add Cmpt", "ph": "E", "pid": 0, "tid": 15514734831341844875, "ts": 2097962447512},
    ],
    "odd": [
        {"ph": "X", "name": None, "cat": None, "ts": None, "args": None},
        {"ph": "X", "name": "a", "id": 1, "args": {"id": 2, "stream": 99999999999999999999, "device": 1.5, "correlation": None, "dtype": 5}},
        {"ph": "C", "name": "c", "pid": "main", "ts": 1e3, "args": {"GPU 0 \"x\"": [1, {"y": None}], "ü": "é\\"}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_array", [True, False])
def test_every_dialect_reads_as_plain_json_does(dialect: str, indent: int | None, is_array: bool) -> None:
    events = DIALECTS[dialect] * 7
    content = json.dumps(events if is_array else {"traceEvents": events, "x": 1}, indent=indent).encode()
    for chunk in (1 << 22, 997, 130):
        assert_equal(content, chunk)


def test_dialects_mixed_in_one_file_read_as_plain_json_does() -> None:
    events = [e for n in range(5) for dialect in DIALECTS.values() for e in dialect[n % 2 :]]
    for chunk in (1 << 22, 2003):
        assert_equal(json.dumps({"traceEvents": events}).encode(), chunk)


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name",
    [
        "ao_syncless_ep_moe_fwd",
        "ascend_trace_view_635",
        "hta_nccl_parser_config_nccl_data",
        "hta_ns_resolution_trace_rank_0_Apr_03_18_51_38_1102",
        "ibm_aiu_allreduce_tp4",
        "kineto_docs_before_fix_trace",
        "rec_ddp_w2_rank0",
        "tl_b200_eager_trace",
    ],
)
def test_real_traces_read_as_plain_json_does(shared: Path, name: str) -> None:
    path = shared / "corpus" / "files" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"no {name} in this corpus")
    assert_equal(gzip.decompress(path.read_bytes()), 300_000)
