"""Broken, odd and hostile files end to end: the numbers are known by hand, and nothing ever crashes."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from pathlib import Path

import builders_command as build
import pyarrow as pa
import pytest
from builders_command import KNOWN, activity, codes, command, parts, trace
from builders_trace import write

ONE = [(0, 0, KNOWN)]
TEXT = json.dumps(trace())
HOST = '{"ph":"X","cat":"cpu_op","name":%s,"pid":1,"tid":1,"ts":100,"dur":5,"args":{}}'


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path / "cache"))


def _with_event(event: str) -> str:
    return TEXT.replace('"traceEvents": [', f'"traceEvents": [{event},')


DAMAGED = {
    "unescaped quotes in a name": _with_event(HOST % '"a "quoted" name"'),
    "trailing comma": TEXT.replace("}]}", "},]}"),
    "trailing commas": TEXT.replace("}]}", "},],}"),
    "missing comma": TEXT.replace("}}, {", "}} {"),
    "doubled key": TEXT.replace('"ts": 100,', '"ts": 99999, "ts": 100,'),
    "byte order mark": "\ufeff" + TEXT,
    "line ends of Windows": json.dumps(trace(), indent=1).replace("\n", "\r\n"),
    "latin-1": _with_event(HOST % '"gr\xf6\xdfe"').encode("latin-1"),
    "zero byte in a name": _with_event(HOST % '"a\0b"'),
    "lone surrogate": TEXT.replace("gemm", "ge\\ud83dmm"),
    "windows path": _with_event(HOST % '"C:\\users\\tmp\\x"'),
    "name of ten megabytes": _with_event(HOST % f'"{"x" * 10_000_000}"'),
    "deep nesting in an event": _with_event(
        HOST.replace('"args":{}', '"args":{"x":' + "[" * 100_000 + "]" * 100_000 + "}") % '"d"'
    ),
    "deep nesting in the header": TEXT.replace(
        '"schemaVersion"', '"zz": ' + "[" * 100_000 + "]" * 100_000 + ', "schemaVersion"', 1
    ),
    "garbage behind the end": TEXT + "[" * 100_000,
    "damaged header value": TEXT.replace(
        '"schemaVersion": 1', '"schemaVersion": @@, "x": nan, "c": "a "b" c"'
    ),
    "numbers that are none": TEXT.replace('"dur": 50', '"dur": 50, "bw": inf, "a": -Infinity, "b": NaN'),
    "time beyond all numbers": _with_event(
        json.dumps(activity("z", 1, 5)).replace('"ts": 1,', '"ts": 1e400,')
    ),
    "time of 5000 digits": _with_event(
        json.dumps(activity("z", 1, 5)).replace('"ts": 1,', f'"ts": {"9" * 5000},')
    ),
    "correlation beyond int64": TEXT.replace(
        '"stream": 7', '"stream": 7, "correlation": 99999999999999999999'
    ),
    "things that are no events": _with_event('null, 1, "x", [], {}, [1,2], true'),
    "times as text": TEXT.replace('"ts": 100,', '"ts": "100",').replace('"dur": 100', '"dur": "100.000"'),
    "exponents": TEXT.replace('"ts": 100,', '"ts": 1e2,').replace('"dur": 50', '"dur": 5.0E+1'),
    "keys after the events": json.dumps(
        {"traceEvents": build.events(), **trace(found=[])} | {"traceEvents": build.events()}
    ),
    "bare list": json.dumps(build.events()),
    "bare list left open": json.dumps(build.events())[:-1],
    "nanoseconds on display": json.dumps(trace(displayTimeUnit="ns")),
}


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda d: d.replace(" ", "_"))
def test_the_parts_are_exact_whatever_is_wrong_with_the_text(tmp_path: Path, damage: str) -> None:
    content = DAMAGED[damage]
    assert parts(write(tmp_path / "a.json", content)) == ONE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        (" \n", "white space"),
        ("{", "without traceEvents"),
        (json.dumps(trace(found=[])), "no events"),
        (json.dumps({"schemaVersion": 1, "traceEvents": None}), "no trace"),
        (json.dumps({"schemaVersion": 1, "traceEvents": {}}), "no trace"),
        ('{"schemaVersion": 1, "traceEve', "cut off"),
        ('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat":', "no whole event"),
        (TEXT.replace('"', "'"), "without traceEvents"),
        (TEXT.encode("utf-16"), "neither"),
        (b"PK\3\4garbage", "zip"),
        (b"\x1f\x8b\x08", "ends early"),
        ("hello", "neither"),
    ],
)
def test_a_file_without_one_event_is_one_clear_error_with_exit_3(
    tmp_path: Path, content: str | bytes, words: str
) -> None:
    ran = command("breakdown", write(tmp_path / "a.json", content))
    assert (ran.code, ran.out) == (3, "")
    assert words in ran.err
    assert len(ran.err.splitlines()) <= 2


def _zip(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


BYTES = TEXT.encode()
PACKED = {
    "a.json.gz": gzip.compress(BYTES),
    "members.json.gz": gzip.compress(BYTES[:300]) + gzip.compress(BYTES[300:]),
    "garbage.json.gz": gzip.compress(BYTES) + b"garbage",
    "padded.json.gz": gzip.compress(BYTES) + b"\0" * 512,
    "plain.json.gz": BYTES,
    "zstd.json.gz": _zstd(BYTES),
    "gzip.json": gzip.compress(BYTES),
    "twice.json.gz": gzip.compress(gzip.compress(BYTES)),
    "gzip_of_zstd.json.gz": gzip.compress(_zstd(BYTES)),
    "zstd_of_gzip.json.zst": _zstd(gzip.compress(BYTES)),
    "crc.json.gz": gzip.compress(BYTES)[:-8] + b"\0" * 8,
    "a.json.zst": _zstd(BYTES),
    "frames.json.zst": _zstd(BYTES[:300]) + _zstd(BYTES[300:]),
    "garbage.json.zst": _zstd(BYTES) + b"xyz",
    "a.zip": _zip({"x.json": BYTES}),
    "mac.zip": _zip({"d/": b"", "d/x.json": BYTES, "__MACOSX/d/._x.json": b"\0\5\x16\7"}),
    "gzip.zip": _zip({"x.json.gz": gzip.compress(BYTES)}),
    "cut.zip": _zip({"x.json": BYTES})[:-40],
    "zip.json": _zip({"x.json": BYTES}),
}


@pytest.mark.parametrize("name", PACKED)
def test_what_is_in_a_file_counts_not_its_name_or_what_follows(tmp_path: Path, name: str) -> None:
    assert parts(write(tmp_path / name, PACKED[name])) == ONE


def test_a_zip_with_paths_that_lead_outside_writes_nothing_there(tmp_path: Path) -> None:
    first, other = (json.dumps(trace(rank, 2)).encode() for rank in (0, 1))
    packed = write(tmp_path / "in" / "a.zip", _zip({"../evil.json": first, "/abs/rank1.json": other}))
    before = sorted(tmp_path.iterdir())
    assert [(rank, found) for rank, _, found in parts(packed)] == [(0, KNOWN), (1, KNOWN)]
    assert [p for p in sorted(tmp_path.iterdir()) if p.name != "cache"] == before


ODD_NAMES = (
    "sp ace.json",
    "日本.json",
    "br[0]acket.json",
    "st*r.json",
    "-dash.json",
    "$(x).json",
    "a%20b#c?.json",
)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_file_name_can_be_given(tmp_path: Path, name: str) -> None:
    assert parts(write(tmp_path / "d" / name, TEXT)) == ONE


def test_a_name_that_is_no_utf8_is_read_and_shown_with_its_bytes_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    path = os.path.join(os.fsencode(folder), b"bad\xff.json")
    with open(path, "wb") as file:
        file.write(BYTES)
    assert parts(folder) == ONE
    assert list(build.sources(folder)) == ["bad\\xff.json"]
    assert command("summary", os.fsdecode(path)).code == 0


EVIL = "\x1b[31mEVIL\x1b]0;t\x07\nX\u202e\u2028\x9b31m"
RAW = ("\x1b", "\x9b", "\x07", "\u202e", "\u2028")


@pytest.mark.parametrize("name", ["summary", "breakdown", "gaps", "kernels", "info"])
@pytest.mark.parametrize("shape", ["table", "markdown", "json"])
def test_escape_sequences_in_names_never_reach_the_terminal(tmp_path: Path, name: str, shape: str) -> None:
    found = [e | {"name": e["name"] + EVIL} for e in build.events()]
    found.append({"ph": "X", "cat": "cpu_op", "name": EVIL, "pid": 1, "tid": 1, "ts": 100, "dur": 200})
    header = {"deviceProperties": [{"id": 0, "name": EVIL}], "traceName": EVIL, EVIL: EVIL}
    file = write(tmp_path / "esc\x1b[31m\nx.json", trace(found=found, **header))
    ran = command(name, file, "--format", shape)
    assert ran.code == 0
    assert not [c for c in RAW if c in ran.out + ran.err]


def test_escape_sequences_in_what_was_typed_come_back_harmless(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", TEXT)
    for args in (["--by", EVIL], ["--steps", EVIL], ["--ranks", EVIL], ["--set", EVIL], ["--rules", EVIL]):
        ran = command("breakdown", file, *args)
        assert ran.code == 2
        assert not [c for c in RAW if c in ran.err], args
        assert len(ran.err.splitlines()) <= 2
    ran = command("breakdown", f"/no/such{EVIL}")
    assert ran.code == 2
    assert not [c for c in RAW if c in ran.err]


def test_an_event_that_is_a_link_to_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "dead.json").symlink_to("nowhere")
    ran = command("breakdown", tmp_path / "dead.json")
    assert ran.code == 2
    assert "link to nothing" in ran.err
    assert "dead.json?" not in ran.err


def test_loops_pipes_and_doubled_paths_are_no_second_capture(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for rank in (0, 1):
        write(run / f"rank{rank}.json", trace(rank, 2))
    (run / "latest.json").symlink_to("rank1.json")
    (run / "loop").symlink_to(".")
    os.mkfifo(run / "pipe.json")
    both = [(0, 0, KNOWN), (1, 0, KNOWN)]
    assert parts(run) == both
    assert parts(run, run / "rank0.json", run / "latest.json") == both
    assert codes(run) == {}
    assert command("breakdown", run / "pipe.json").code == 2
    assert command("breakdown", "/dev/zero").code == 2


LATE = [activity("gemm", 10, 100), *(activity("gemm", t, 5) for t in (20, 30, 40, 200))]


@pytest.mark.parametrize(
    ("found", "expected", "quality"),
    [
        ([activity("gemm", 0, 5), activity("gemm", 10, 5)], (10_000, 5_000), {}),
        ([activity("gemm", 0, 5), activity("gemm", 2e6, 5)], (5_000, 0), {"ts_invalid": 1}),
        ([activity("gemm", 10, 5), activity("gemm", 12, 4e9), activity("gemm", 20, 5)], (10_000, 5_000), {"duration_impossible": 1}),
        ([activity("gemm", 10, 5), activity("gemm", 12, -1), activity("gemm", 20, 5)], (10_000, 5_000), {"duration_negative": 1}),
        ([activity("gemm", 10, 5), activity("gemm", 15, 0), activity("gemm", 30, 0)], (5_000, 15_000), {}),
        ([activity("gemm", 10, 5), activity("gemm", 12, 5)], (7_000, 0), {}),
        (LATE, (30_000, 165_000), {"clipped_to_successor": 1}),
        ([*LATE[:3], LATE[4]], (105_000, 90_000), {}),
        ([activity("gemm", 10, 5), activity("Stream Sync", 0, 99, cat="cuda_sync"), activity("a", 1, 99, cat="gpu_user_annotation")], (5_000, 0), {}),
    ],
)  # fmt: skip
def test_times_that_cannot_be_leave_the_sums_and_are_counted(
    tmp_path: Path, found: list[dict[str, object]], expected: tuple[int, int], quality: dict[str, int]
) -> None:
    file = write(tmp_path / "a.json", trace(found=found))
    compute, idle = expected
    assert parts(file) == [(0, 0, (compute, 0, 0, 0, idle))]
    assert codes(file) == quality


def test_digits_beyond_the_nanosecond_round_and_an_epoch_stays_exact(tmp_path: Path) -> None:
    text = json.dumps(trace(found=[activity("gemm", 4, 5)])).replace('"ts": 4', '"ts": 1712345678901234.567')
    file = write(tmp_path / "a.json", text.replace('"dur": 5', '"dur": 0.0015'))
    assert parts(file) == [(0, 0, (2, 0, 0, 0, 0))]
    import rankscope

    (start,) = rankscope.open(str(file)).table("activities").column("start_ns").to_pylist()
    assert start == 1_712_345_678_901_234_567


@pytest.mark.parametrize(
    "found",
    [
        [activity("gemm", 10, -5)],
        [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "x"}}],
        [{"ph": "i", "name": "x", "pid": 0, "tid": 0, "ts": 1, "s": "t"}],
    ],
    ids=["no_valid_time", "only_metadata", "only_instants"],
)
def test_a_file_without_activity_is_nothing_to_analyse_but_can_be_inspected(
    tmp_path: Path, found: list[dict[str, object]]
) -> None:
    file = write(tmp_path / "a.json", trace(found=found))
    for name in ("summary", "breakdown", "gaps", "kernels"):
        ran = command(name, file, "--format", "json")
        assert (ran.code, ran.out) == (3, "")
        assert "nothing to analyse" in ran.err
    assert command("info", file).code == 0


def test_a_hostile_world_size_costs_no_memory(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", trace(0, 2**31 - 1))
    assert parts(file) == ONE
    assert codes(file) == {"rank_missing": 2**31 - 2}


@pytest.mark.parametrize(
    "text", ["", '"ts": 1e400,', '"ts": "x",', '"ts": null,', '"ts": NaN,', '"ts": true,']
)
def test_an_activity_without_a_usable_start_is_counted(tmp_path: Path, text: str) -> None:
    event = json.dumps(activity("z", 1, 5)).replace('"ts": 1,', text)
    file = write(tmp_path / "a.json", _with_event(event))
    assert parts(file) == ONE
    assert codes(file)["ts_invalid"] == 1
