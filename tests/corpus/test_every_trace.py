"""Every real trace is read to the end or refused in one clear line, and its parts close."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow.compute as pc
import pytest
from quality_page import is_listed

import rankscope
from rankscope.store.errors import TraceError
from rankscope.store.schema import PARTS

SMALL_MB = 0.7
"""The default run reads the traces below this size; the slow run reads all of them."""


def _catalog(shared: Path) -> list[dict[str, str]]:
    with (shared / "corpus" / "catalog.csv").open() as lines:
        return [r for r in csv.DictReader(lines) if r["kind"].startswith("trace")]


def _sizes(row: dict[str, str]) -> float:
    return float(row["uncompressed_mb"] or 0)


def _check(shared: Path, row: dict[str, str]) -> None:
    path = shared / "corpus" / row["file"]
    try:
        run = rankscope.open(str(path), cache=False)
        events = run.table("events")
    except TraceError as error:
        assert error.exit_code == 3, error
        assert "\n" not in error.message
        return
    quality = run.table("quality").to_pylist()
    assert all(is_listed(q["code"], q["severity"]) for q in quality), quality
    if row["events"]:
        ends = sum(1 for q in quality if q["code"] == "end_unmatched")
        recorded = int(row["events"])
        pairs = events.num_rows
        is_paired = "B/E" in row["quirks"]
        assert pairs <= recorded
        assert pairs == recorded or is_paired or ends, (pairs, recorded)
    for steps in ("all", "none"):
        rows = run.breakdown_table(by=["rank", "device", "step", "window"], steps=steps).to_pylist()
        for r in rows:
            assert sum(r[p] for p in PARTS) == r["wall_ns"]
    gpu = int(row["gpu_events"] or 0)
    if gpu:
        kinds = pc.is_in(events.column("cat").cast("string"), value_set=_device_categories())
        assert run.table("activities").num_rows == pc.sum(kinds).as_py() == gpu


def _device_categories():  # type: ignore[no-untyped-def]
    import pyarrow as pa

    return pa.array(["kernel", "gpu_memcpy", "gpu_memset"])


@pytest.mark.corpus
def test_small_traces_of_every_kind_are_read_and_close(shared: Path) -> None:
    small = [r for r in _catalog(shared) if _sizes(r) <= SMALL_MB]
    assert len(small) > 20
    for row in small:
        _check(shared, row)


@pytest.mark.corpus
@pytest.mark.slow
def test_all_other_traces_are_read_and_close(shared: Path) -> None:
    large = [r for r in _catalog(shared) if _sizes(r) > SMALL_MB]
    assert len(large) > 50
    for row in large:
        _check(shared, row)
