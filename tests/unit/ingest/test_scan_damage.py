"""Broken traces: what can be read is read, nothing else is lost, and all of it is said."""

from __future__ import annotations

import json
import time

import pytest
from builders_scan import event, in_every_chunking, scanned, text_of

from rankscope.ingest.scan import header as header_module
from rankscope.ingest.scan.careful import CarefulScan
from rankscope.ingest.scan.repair import repaired, repaired_string
from rankscope.store.errors import DamagedFile

GOOD = [event(f"g{i}", args={"list": [{"name": 1}, {"name": 2}, {"name": 3}]}) for i in range(6)]


def amid(damaged: str) -> bytes:
    return text_of([*GOOD[:3], damaged, *GOOD[3:]], tail='"baseTimeNanoseconds": 7')


GOOD_NAMES = [f"g{i}" for i in range(6)]


def test_backslashes_of_windows_paths_stay_separators() -> None:
    name = r"app\utils\train.py(12): step"  # \u is no unicode escape here, \t no tab
    for got in in_every_chunking(amid(f'{{"ph": "X", "name": "{name}", "ts": 1, "dur": 1}}')):
        assert got.names == ["g0", "g1", "g2", name, "g3", "g4", "g5"]
        assert got.counts == {"string_repaired": 1}


@pytest.mark.parametrize(
    ("token", "fixed"),
    [
        (rb'"C:\qt\new"', r"C:\qt\new"),
        (rb'"C:\\x\qt"', r"C:\x\qt"),  # a proper pair is one backslash
        (rb'"say \"hi\" \q"', r'say "hi" \q'),
        (rb'"\u12"', r"\u12"),
        (rb'"\ud800 lone"', "\ufffd lone"),
        (b'"tab\there"', "tab here"),
        (b'"nul\0here"', "nul\ufffdhere"),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (rb'"fine \n \u00e9"', "fine \n \u00e9"),
    ],
)
def test_strings_are_repaired_to_what_was_meant(token: bytes, fixed: str) -> None:
    assert json.loads(repaired_string(token)) == fixed


def test_control_characters_and_bad_utf8_count_one_string_each() -> None:
    content = (
        text_of([event("A"), event("B"), event("C")])
        .replace(b'"A"', b'"cfg \x01"')
        .replace(b'"B"', b'"op_\xff\xfe"')
    )
    for got in in_every_chunking(content):
        assert got.names == ["cfg \ufffd", "op_\ufffd\ufffd", "C"]
        assert got.counts == {"string_repaired": 2}


@pytest.mark.parametrize(
    "token", ["inf", "-inf", "Infinity", "-Infinity", "NaN", "nan", "-nan(ind)", "1.#INF"]
)
def test_numbers_that_are_none_become_null(token: str) -> None:
    got = scanned(amid(f'{{"ph": "X", "name": "b", "args": {{"bytes": 200, "GB/s": {token}}}}}'))
    row = got.rows[3]
    assert row["bytes"] == 200
    assert json.loads(row["extra"]) == {"GB/s": None}
    assert got.counts == {"number_not_finite": 1}
    assert token in got.example("number_not_finite")


def test_stray_commas_python_words_and_odd_numbers_are_read_as_meant() -> None:
    got = scanned(amid('{"ph": "X", "name": "b", "ts": 1., "args": {"a": [1, 2,], "b": True, "c": 007,},}'))
    assert got.rows[3]["start_ns"] == 1_000
    assert json.loads(got.rows[3]["extra"]) == {"a": [1, 2], "b": True, "c": "007"}
    assert got.counts["syntax_repaired"] == 6


def test_the_offset_of_a_repair_is_the_byte_in_the_file() -> None:
    content = amid(r'{"ph": "X", "name": "a\qb"}')
    example = scanned(content).example("string_repaired")
    assert example.endswith(f"at byte {content.index(b'a' + chr(92).encode() + b'qb') - 1}")


def test_unescaped_quotes_in_a_name_are_part_of_it() -> None:
    got = scanned(amid('{"ph": "X", "name": "say "hi" there", "ts": 1}'))
    assert got.names[3] == 'say "hi" there'
    assert len(got.names) == 7
    assert got.counts == {"string_repaired": 1}


def test_a_backslash_before_the_closing_quote_is_a_separator() -> None:
    one = r'{"ph": "X", "name": "C:\qx\", "args": {"stream": 1}}'
    got = scanned(amid(one))
    assert got.names[3] == "C:\\qx\\"
    assert got.rows[3]["stream"] == 1
    assert got.counts == {"string_repaired": 1}


@pytest.mark.parametrize(
    "damaged",
    [
        '{"ph": "X", "name": "cut off here',
        '{"ph": "X", "name": "a", "args": {,',
        '{"ph": "X", "name": "a", "args": {"x": 1}',
        '{"ph": "X", "name": "a", "args": {"x": [1, 2}}',
        '{"ph" "X"}',
        '"',
        "{",
        "null",
        "5",
        "[1]",
        '{"ph": "X", "args": {"l": [{"name": 1}, {"name": 2}, {"name"',
        '{"ph": "X", "args": {"a": ' + "[" * 5000 + "]" * 5000 + "}}",
        "\0\0\0\0",
    ],
)
def test_one_hopeless_event_costs_no_other(damaged: str) -> None:
    content = amid(damaged)
    for got in in_every_chunking(content):
        assert [n for n in got.names if n in GOOD_NAMES] == GOOD_NAMES
        assert len(got.names) == 6
        assert got.result.truncated is None
        assert got.result.header["baseTimeNanoseconds"] == 7
    if damaged != "\0\0\0\0":  # empty space between events is no loss
        assert got.counts["event_skipped"] == 1
        assert f"at byte {content.index(b'g2') + 1}"[:7] in got.example("event_skipped")


def test_a_missing_comma_costs_nothing() -> None:
    content = text_of(GOOD).replace(b"}]}}, {", b"}]}}\n{").replace(b"}]}, {", b"}]}\n{")
    for got in in_every_chunking(content):
        assert got.names == GOOD_NAMES


def test_one_bad_event_among_many_is_the_only_one_lost() -> None:
    n = 20_000
    events = [f'{{"ph":"X","name":"e{i}","ts":{i}}}' for i in range(n)]
    events[12_345] = '{"ph":"X","name":"bad","args":{,'
    got = scanned(text_of(events))
    assert len(got.names) == n - 1
    assert "bad" not in got.names


@pytest.mark.parametrize("cut", [1, 3, 10, 40])
def test_a_file_cut_off_keeps_every_whole_event(cut: int) -> None:
    whole = text_of(GOOD, tail='"z": 1')
    last = whole.rindex(b'{"ph"')
    for got in in_every_chunking(whole[: last + cut]):
        assert got.names == GOOD_NAMES[:5]
        assert got.result.truncated == f"ends inside an event that begins at byte {last}"
        assert got.counts == {"file_truncated": 1}


def test_a_file_cut_between_events_or_behind_them_is_truncated_too() -> None:
    whole = text_of(GOOD, tail='"z": {"y": 1}')
    after = whole.index(b', "z"')
    between = scanned(whole[: after - 1])
    assert between.names == GOOD_NAMES
    assert between.result.truncated is not None
    for end in (after, after + 5, len(whole) - 1):
        behind = scanned(whole[:end])
        assert behind.names == GOOD_NAMES
        assert behind.result.truncated is not None
        assert "metadata" in behind.result.truncated


def test_a_file_that_ends_in_zeros_is_truncated() -> None:
    whole = text_of(GOOD)
    got = scanned(whole[:-40] + bytes(100_000))
    assert got.names == GOOD_NAMES[:5]
    assert got.result.truncated is not None


@pytest.mark.parametrize(
    "content",
    [
        b'{"schemaVersion": 1, "traceEvents": [',
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "na',
        b'{"schemaVersion": 1, "deviceProperties": [{"id": 0, "na',
    ],
)
def test_a_trace_with_nothing_to_recover_is_damaged(content: bytes) -> None:
    with pytest.raises(DamagedFile):
        scanned(content)


def test_text_behind_the_document_is_ignored() -> None:
    for tail in (b"garbage", b"\n\n", b"\0" * 50):
        got = scanned(text_of(GOOD) + tail)
        assert got.names == GOOD_NAMES
        assert got.result.truncated is None


def test_a_broken_header_value_keeps_its_text_and_costs_no_event() -> None:
    # PyTorch 2.13 writes add_metadata("note", 'say "hi" ...') so.
    head = '"schemaVersion": 1, "note": "say /"hi/" / path C:/tmpnewline", "rank": 3'
    for got in in_every_chunking(text_of(GOOD, head=head)):
        assert got.names == GOOD_NAMES
        assert got.result.header == {"schemaVersion": 1, "note": 'say /"hi/" / path C:/tmpnewline', "rank": 3}
        assert got.counts == {"string_repaired": 1}


def test_a_header_that_never_balances_is_still_passed() -> None:
    head = '"schemaVersion": 1, "a": {"b": [1, 2, "c": "open, "rank": 3'
    got = scanned(text_of(GOOD, head=head))
    assert got.names == GOOD_NAMES
    assert got.result.header["schemaVersion"] == 1


def test_header_values_beyond_python_are_kept_as_text() -> None:
    head = f'"big": {"9" * 5000}, "far": 1e999, "nan": NaN, "deep": {"[" * 3000 + "]" * 3000}, "k": 1'
    got = scanned(text_of(GOOD, head=head))
    assert got.result.header["nan"] is None
    assert got.result.header["k"] == 1
    assert got.result.header["far"] == "1e999"
    assert len(got.result.header["big"]) == 5000


def test_a_huge_header_value_is_skipped_and_the_keys_around_it_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(header_module, "MAX_VALUE", 1000)
    head = f'"a": 1, "huge": {json.dumps(list(range(1000)))}, "b": 2'
    got = scanned(text_of(GOOD, head=head))
    assert got.result.header == {"a": 1, "b": 2}
    assert got.counts == {"header_skipped": 1}


def test_an_event_longer_than_the_limit_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.ingest.scan.careful.MAX_EVENT", 20_000)
    content = text_of([*GOOD[:3], event("huge", args={"x": "y" * 100_000}), *GOOD[3:]])
    batches: list[list[str]] = []
    pieces = [content[i : i + 100] for i in range(0, len(content), 100)]
    result = CarefulScan(
        pieces, lambda b: batches.append(b.column("name").to_pylist()), path="t", chunk=1000
    ).run()
    names = [n for batch in batches for n in batch]
    assert names == GOOD_NAMES
    assert result.truncated is None
    assert {q.code for q in result.quality} == {"event_skipped"}


def test_repairs_leave_good_text_alone() -> None:
    good = json.dumps([event('ü\n"x"', args={"a": [1.5e-3, -2, None, True], "b": "c,}"})]).encode()
    assert repaired(good) == (good, repaired(b"")[1])


@pytest.mark.parametrize(
    "content",
    [
        b'{"traceEvents":[' + b'{"ph":' * 60_000,
        b'{"traceEvents":[' + b'"' * 500_000,
        b'{"traceEvents":[{"ph":"X","name":"' + b"\\" * 500_001,
        b'{"traceEvents":[' + b"{" * 500_000,
        b'{"traceEvents":[' + b"{}" * 200_000,
        b'{"traceEvents":[{"ph":"X","name":"' + b"x" * 1_000_000 + b'"}]}',
        b'{"schemaVersion":1,' + b'"a": "b"c",' * 30_000 + b'"traceEvents":[{"ph":"X"}]}',
        b'{"schemaVersion":1,' + b'"a": [{"b": "c' * 30_000 + b'"traceEvents":[{"ph":"X"}]}',
        b"[" + b"1," * 200_000,
    ],
)
def test_nothing_takes_quadratic_time(content: bytes) -> None:
    begin = time.process_time()
    try:
        scanned(content)
    except Exception as error:
        assert type(error).__module__ == "rankscope.store.errors"
    assert time.process_time() - begin < 5
