"""Mutated traces: nothing but a TraceError is ever raised, and damage costs only what it touches."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
from builders_scan import scanned
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankscope.ingest.torch_profiler import read_trace
from rankscope.store.errors import TraceError

STYLES = ((None, None), (2, None), (None, (",", ":")))
INSERTIONS = (b'"', b"\\", b"{", b"}", b"]", b",", b"\0", b"\xff", b'"}', b"NaN", b'},{"x":')


def trace(n: int, style: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A trace with every trap (quotes, lists of objects, metadata), and where each event begins and ends."""
    indent, separators = STYLES[style]
    content = '{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": ['
    places = []
    for i in range(n):
        made: dict[str, object] = {
            "ph": "X",
            "cat": "kernel",
            "name": f"e{i}",
            "pid": 1,
            "ts": i * 10 + 0.5,
            "dur": 3,
        }
        if i % 3:
            made["args"] = {
                "stream": 7,
                "note": 'a "q" b\\c',
                "d": [{"name": 1}, {"name": 2}],
                "s": [[1, 2], []],
            }
        if i % 5 == 0:
            made = {"ph": "M", "name": f"e{i}", "pid": 1, "args": {"name": "x"}}
        content += ",\n" if i else ""
        begin = len(content)
        content += json.dumps(made, indent=indent, separators=separators)
        places.append((begin, len(content)))
    return (content + '], "traceName": "x", "baseTimeNanoseconds": 5}').encode(), places


def mutated(content: bytes, chance: random.Random) -> tuple[bytes, int, int]:
    """The content with one stretch flipped, deleted, doubled, or with something inserted; the stretch."""
    at = chance.randrange(len(content))
    end = min(len(content), at + chance.choice([1, 1, 1, 5, 40]))
    kind = chance.choice(["flip", "delete", "insert", "double"])
    if kind == "flip":
        return content[:at] + chance.randbytes(end - at) + content[end:], at, end
    if kind == "delete":
        return content[:at] + content[end:], at, end
    if kind == "insert":
        return content[:at] + chance.choice(INSERTIONS) + content[at:], at, at
    return content[:end] + content[at:], at, end


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(400))
def test_damage_costs_only_the_events_it_touches(seed: int) -> None:
    chance = random.Random(seed)
    content, places = trace(chance.choice([1, 3, 20, 40]), seed % 3)
    chunk = chance.choice([200, 700, 4000, 1 << 20])
    damaged, begin, end = mutated(content, chance)
    try:
        names = scanned(damaged, chunk=chunk, piece=97).names
    except TraceError:
        assert begin < places[0][1]  # with a whole event in front of the damage there is no refusing
        return
    if begin < places[0][0]:
        return  # in the metadata, up to the opening bracket itself
    before = [f"e{i}" for i, (_, stop) in enumerate(places) if stop <= begin]
    after = [f"e{i}" for i, (start, _) in enumerate(places) if start >= end]
    assert names[: len(before)] == before
    assert [n for n in names if n in after] == after


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100))
def test_a_cut_keeps_every_event_before_it(seed: int) -> None:
    chance = random.Random(seed)
    content, places = trace(20, seed % 3)
    cut = chance.randrange(places[0][1], places[-1][1])
    got = scanned(content[:cut], chunk=chance.choice([200, 4000, 1 << 20]), piece=97)
    assert got.names == [f"e{i}" for i, (_, stop) in enumerate(places) if stop <= cut]
    assert got.result.truncated is not None


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "x"])
PHASES = st.sampled_from(["X", "B", "E", "M", "i", "s"])


@pytest.mark.fuzz
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(PHASES, st.dictionaries(KEYS, JSONISH, max_size=6)), max_size=6), st.integers(0, 2**32)
)
@example([("X", {"ts": float("nan"), "dur": -1})], 0)
@example([("E", {"ts": 1, "args": {"stream": 1}}), ("B", {"ts": 0})], 0)
def test_any_events_are_read_to_the_end_or_refused(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, dict[str, object]]], seed: int
) -> None:
    folder: Path = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    made = [{**fields, "ph": phase} for phase, fields in events]
    content = json.dumps({"traceEvents": made, "baseTimeNanoseconds": seed}).encode("utf-8", "surrogatepass")
    (folder / "t.json").write_bytes(content)
    with read_trace(str(folder / "t.json"), spool=folder / "spool") as got:
        assert got.n_events == len(made)
        n_closing = sum(1 for phase, _ in events if phase == "E")
        assert len(made) - n_closing <= got.table().num_rows <= len(made)


@pytest.mark.fuzz
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"[", b"{", b'{"traceEvents":[', b'[{"ph":"X"},']))
def test_any_bytes_are_read_or_refused(content: bytes, start: bytes) -> None:
    with suppress(TraceError):
        scanned(start + content, chunk=64, piece=10)
