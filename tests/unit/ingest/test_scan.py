"""What goes into which column, for every spelling and every odd value."""

from __future__ import annotations

import gc
import json
from typing import Any

import pyarrow as pa
import pytest
from builders_scan import event, in_every_chunking, scanned, text_of

from rankscope.ingest.scan import scan
from rankscope.store.errors import UnknownFormat
from rankscope.store.schema import RAW_EVENTS


def row_of(*, args: Any = None, **fields: Any) -> dict[str, Any]:
    made = event(**fields) if args is None else event(args=args, **fields)
    return scanned(text_of([made])).rows[0]


def test_batches_have_exactly_the_columns_of_the_schema() -> None:
    batches: list[pa.RecordBatch] = []
    scan([text_of([event(args={"stream": 7}), event()])], batches.append, path="t")
    assert all(b.schema == RAW_EVENTS.arrow for b in batches)


def test_a_kernel_of_pytorch_2_13_fills_its_columns_and_leaves_the_rest_verbatim() -> None:
    args = {
        "External id": 5, "queued": 0, "device": 1, "context": 1, "stream": 27, "correlation": 9,
        "blocks per SM": 15.515152, "grid": [2048, 1, 1], "graph id": 0, "graph node id": 0,
        "Collective name": "allreduce", "Process Group Name": "0", "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]", "Group size": 2, "In msg nelems": 8, "Out msg nelems": 16,
        "In split size": "[]", "Out split size": "[]", "dtype": "Long", "Seq": 255, "Src Rank": 0,
        "Dst Rank": 1, "Comms Id": "12345678901234567890", "Is asynchronized op": 0,
    }  # fmt: skip
    row = row_of(args=args)
    assert json.loads(row.pop("extra")) == {
        "queued": 0,
        "context": 1,
        "blocks per SM": 15.515152,
        "grid": [2048, 1, 1],
    }
    assert row == {
        "ph": "X", "cat": "kernel", "name": "e", "pid": "0", "tid": "7", "start_ns": 10_000, "dur_ns": 5_000,
        "external_id": 5, "device": 1, "stream": 27, "correlation": 9, "collective": "allreduce", "pg": "0",
        "pg_description": "default_pg", "pg_ranks": "[0, 1]", "group_size": 2, "in_nelems": 8,
        "out_nelems": 16, "in_split": "[]", "out_split": "[]", "dtype": "Long", "seq": 255, "src_rank": 0,
        "dst_rank": 1, "comms_id": "12345678901234567890", "is_async": False,
    }  # fmt: skip


def test_python_and_sync_arguments_have_columns() -> None:
    args = {
        "Python id": 3,
        "Python parent id": 2,
        "wait_on_stream": 20,
        "wait_on_cuda_event_record_corr_id": 77,
        "bytes": 4096,
    }
    row = row_of(args=args)
    assert [row[c] for c in ("python_id", "python_parent_id", "wait_on_stream", "wait_on_correlation")] == [
        3,
        2,
        20,
        77,
    ]
    assert row["bytes"] == 4096
    assert "extra" not in row


@pytest.mark.parametrize(
    ("old", "present"),
    [
        ("Kernel", "kernel"),
        ("Memcpy", "gpu_memcpy"),
        ("Memset", "gpu_memset"),
        ("Runtime", "cuda_runtime"),
        ("Driver", "cuda_driver"),
        ("Operator", "cpu_op"),
        ("async", "ac2g"),
        ("async_cpu_to_gpu", "ac2g"),
        ("user_annotation", "user_annotation"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_old_categories_are_mapped_and_unknown_ones_kept(old: str, present: str) -> None:
    assert row_of(cat=old)["cat"] == present


def test_one_category_in_two_spellings_is_one_dictionary_word() -> None:
    batches: list[pa.RecordBatch] = []
    scan([text_of([event(cat="Kernel"), event(cat="kernel")])], batches.append, path="t")
    assert batches[0].column("cat").dictionary.to_pylist() == ["kernel"]


def test_old_argument_keys_are_read_and_the_present_one_wins_beside_them() -> None:
    row = row_of(tid="stream 7", args={"external id": 3, "Process Group ID": "1", "Input dims": [[2]]})
    assert (row["external_id"], row["pg"], row["stream"]) == (3, "1", 7)
    assert json.loads(row["extra"]) == {"Input Dims": [[2]]}
    both = row_of(args={"external id": 3, "External id": 4})
    assert both["external_id"] == 4
    assert json.loads(both["extra"]) == {"external id": 3}


def test_the_stream_argument_wins_over_the_thread_name() -> None:
    assert row_of(tid="stream 7", args={"stream": 9})["stream"] == 9
    assert "stream" not in row_of(tid="stream seven")


def test_graph_zero_is_no_graph_but_node_zero_of_a_graph_is_a_node() -> None:
    outside = row_of(args={"graph id": 0, "graph node id": 0})
    assert "graph_id" not in outside
    assert "graph_node_id" not in outside
    inside = row_of(args={"graph id": 4, "graph node id": 0})
    assert (inside["graph_id"], inside["graph_node_id"]) == (4, 0)


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ("100", 100_000),
        ("1712345678901234.567", 1_712_345_678_901_234_567),
        ('"1704161511420306.491"', 1_704_161_511_420_306_491),
        ("1.5e3", 1_500_000),
        ("-3.25", -3_250),
        ("7.0004", 7_000),
        ("7.0005", 7_001),
    ],
)
def test_time_stamps_of_every_dialect_are_exact(ts: str, ns: int) -> None:
    # Alone, and beside one of another shape: the bulk and the single conversion agree.
    for other in ("1", "2.125", "3.5"):
        one = f'{{"ph": "X", "name": "a", "ts": {ts}, "dur": {other}}}'
        assert scanned(text_of([one, event(ts=1)])).rows[0]["start_ns"] == ns


@pytest.mark.parametrize("ts", ["1e999", "9" * 400, '"soon"', "true", "[1]", '{"a": 1}', "9223372036854776"])
def test_a_time_that_is_none_stays_verbatim(ts: str) -> None:
    row = scanned(text_of([f'{{"ph": "X", "name": "a", "ts": {ts}, "dur": 1}}'])).rows[0]
    assert "start_ns" not in row
    assert row["extra"] == f'{{"ts": {ts}}}'


def test_null_and_absent_values_are_null_columns_and_leave_nothing() -> None:
    row = scanned(text_of(['{"ph": "M", "name": null, "ts": null, "args": null}'])).rows[0]
    assert row == {"ph": "M"}
    assert scanned(text_of(['{"ph": "X", "args": {}}'])).rows[0] == {"ph": "X"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("correlation", "7.5"),
        ("correlation", '"seven"'),
        ("stream", "null"),
        ("stream", "99999999999999999999"),
        ("device", "[0]"),
        ("Collective name", "5"),
        ("dtype", '{"a": 1}'),
        ("Is asynchronized op", '"maybe"'),
        ("Seq", "true"),
    ],
)
def test_a_known_argument_of_another_type_is_not_lost(key: str, value: str) -> None:
    one = f'{{"ph": "X", "args": {{"{key}": {value}, "other": 1}}}}'
    row = scanned(text_of([one])).rows[0]
    extra = json.loads(row.pop("extra"), parse_float=str)
    assert extra == {"other": 1, key: json.loads(value, parse_float=str)}
    assert row == {"ph": "X"}


def test_an_integer_in_quotes_is_one_and_stays_verbatim_too() -> None:
    row = row_of(args={"bytes": "4096"})  # ROCm
    assert row["bytes"] == 4096
    assert json.loads(row["extra"]) == {"bytes": "4096"}


def test_ids_keep_the_files_text_whatever_their_size_or_type() -> None:
    row = row_of(pid="main_0", tid=15514734831341844875, name=5)
    assert (row["pid"], row["tid"], row["name"]) == ("main_0", "15514734831341844875", "5")


def test_unknown_event_keys_go_to_extra_under_their_own_name() -> None:
    row = row_of(id=9, bp="e", s="t", attr={"Power": "1"})
    assert json.loads(row["extra"]) == {"id": 9, "bp": "e", "s": "t", "attr": {"Power": "1"}}


def test_event_keys_and_arguments_share_extra_and_a_clash_loses_neither() -> None:
    assert json.loads(row_of(s="t", args={"Addr": 1})["extra"]) == {"s": "t", "Addr": 1}
    assert json.loads(row_of(id=9, args={"id": 1, "x": 2})["extra"]) == {"id": 9, "args.id": 1, "x": 2}


@pytest.mark.parametrize("args", [5, "text", [1, 2]])
def test_arguments_that_are_no_object_are_kept_whole(args: Any) -> None:
    rows = scanned(text_of([event(args=args), event(args={"stream": 3})])).rows
    assert json.loads(rows[0]["extra"]) == {"args": args}
    assert rows[1]["stream"] == 3


def test_keys_with_percent_signs_quotes_and_unicode_survive() -> None:
    args = {"est. achieved occupancy %": 31, 'say "hi"': "ü%s", "grün": "\u2603"}
    assert json.loads(row_of(args=args)["extra"]) == args


def test_escapes_in_names_are_decoded() -> None:
    one = '{"ph": "X", "name": "a\\"b\\\\c\\u00e9\\/"}'
    assert scanned(text_of([one])).rows[0]["name"] == 'a"b\\cé/'


def test_the_last_of_two_equal_keys_wins() -> None:
    one = '{"ph": "X", "name": "a", "name": "b", "ts": 1, "ts": 2, "args": {"stream": 1, "stream": 2}}'
    row = scanned(text_of([one])).rows[0]
    assert (row["name"], row["start_ns"], row["stream"]) == ("b", 2_000, 2)


def test_key_order_inside_an_event_does_not_matter() -> None:
    forwards = event(args={"stream": 1, "correlation": 2})
    backwards = dict(reversed(forwards.items())) | {"args": {"correlation": 2, "stream": 1}}
    rows = scanned(text_of([forwards, backwards])).rows
    assert rows[0] == rows[1]


def test_events_stay_in_file_order_across_layouts() -> None:
    events = [event(f"e{i}", **({"args": {"stream": i}} if i % 2 else {"id": i})) for i in range(50)]
    for got in in_every_chunking(text_of(events)):
        assert got.names == [f"e{i}" for i in range(50)]
        assert got.rows[7]["stream"] == 7


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_formatting_does_not_matter(indent: int | None, separators: tuple[str, str]) -> None:
    document = {
        "a": [1, {"b": 2}],
        "traceEvents": [event("x", args={"d": [{"name": 1}, {"name": 2}]})] * 5,
        "z": 1,
    }
    content = json.dumps(document, indent=indent, separators=separators).encode()
    for got in in_every_chunking(content):
        assert got.names == ["x"] * 5
        assert got.result.header == {"a": [1, {"b": 2}], "z": 1}
        assert got.result.quality == []


def test_top_level_keys_may_stand_on_either_side() -> None:
    tail = '"deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}], "baseTimeNanoseconds": 5'
    for got in in_every_chunking(text_of([event("a"), event("b")], head='"x": "[{"', tail=tail)):
        assert got.names == ["a", "b"]
        assert got.result.shape == "object"
        assert got.result.header["baseTimeNanoseconds"] == 5
        assert [d["name"] for d in got.result.header["deviceProperties"]] == ["A", "B"]
        assert got.result.header["x"] == "[{"


def test_two_event_lists_are_read_one_after_the_other() -> None:
    content = b'{"traceEvents": [{"ph":"X","name":"a"}], "k": 1, "traceEvents": [{"ph":"X","name":"b"}]}'
    got = scanned(content)
    assert got.names == ["a", "b"]
    assert got.result.header == {"k": 1}


def test_a_bare_array_is_a_trace() -> None:
    content = json.dumps([event("a"), event("b")], indent=2).encode()
    for got in in_every_chunking(content):
        assert got.result.shape == "array"
        assert got.names == ["a", "b"]
        assert got.result.quality == []


def test_a_bare_array_without_its_bracket_is_legal_and_said() -> None:
    got = scanned(b'[{"ph":"X","name":"a"},\n{"ph":"X","name":"b"},\n')
    assert got.names == ["a", "b"]
    assert got.result.truncated is None
    assert got.counts == {"array_not_closed": 1}


def test_a_byte_order_mark_is_skipped() -> None:
    assert scanned(b"\xef\xbb\xbf" + text_of([event("a")])).names == ["a"]


def test_an_event_whose_first_key_is_none_of_the_usual_ones_is_cut_as_well() -> None:
    events = [{"zzz": i, "ph": "X", "name": f"e{i}"} for i in range(40)]
    for got in in_every_chunking(text_of(events)):
        assert got.names == [f"e{i}" for i in range(40)]


@pytest.mark.parametrize("content", [b"", b" \n\t ", b"\0\0\0"])
def test_nothing_is_an_empty_trace(content: bytes) -> None:
    got = scanned(content)
    assert got.result.shape == "empty"
    assert got.counts == {"file_empty": 1}


def test_an_empty_list_is_whole_and_has_no_events() -> None:
    assert scanned(b'{"traceEvents": [ ]}').result.truncated is None
    assert scanned(b"[]").result.n_events == 0


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"\x80\x04pickle",
        b"null",
        b'{"schema": "1.0", "nodes": [{"id": 1}]}',
        b'{"traceEvents": null}',
        b"[[1, 2], [3, 4]]",
        b'[{"a": 1}, {"b": 2}]',
        b"[1,2,3",
        '{"traceEvents": []}'.encode("utf-16"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(UnknownFormat, match=r"trace\.json"):
        scanned(content)


def test_the_cycle_collector_is_as_it_was_before() -> None:
    assert gc.isenabled()
    scanned(text_of([event()]))
    assert gc.isenabled()
    gc.disable()
    try:
        scanned(text_of([event()]))
        assert not gc.isenabled()
    finally:
        gc.enable()
