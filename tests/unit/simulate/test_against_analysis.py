"""What the analysis reads from the simulated files equals what the engine knew: to the nanosecond, in every column.

The two sides share no code: `ingest` and `analysis` see only the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.breakdown import breakdown
from rankscope.analysis.idle import idle_segments
from rankscope.ingest.pipeline import ingest_run
from rankscope.simulate import run_simulation
from rankscope.simulate.run import truth_table
from rankscope.store.schema import CAUSES

SIZES: dict[str, Any] = {
    "layers": 4,
    "hidden": 512,
    "ffn": 1024,
    "heads": 8,
    "seq": 256,
    "vocab": 2048,
    "steps": 4,
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "tp": {"tp": 2},
    "dp": {"dp": 2},
    "pp4": {"pp": 4, "microbatches": 8, "detail": "layer"},
    "3d": {"tp": 2, "pp": 2, "dp": 2, "microbatches": 2, "gpus_per_host": 4, "detail": "layer"},
}
FAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "jitter": {"jitter": 0.05},
    "slow rank": {"slow_rank": "1:1.5"},
    "slow link": {"slow_link": ["tp:3", "dp:3", "pp:3"]},
    "clock offset": {"clock_offset": "0:350us"},
    "data stall": {"data_stall": "1@4:5ms"},
    "gc pause": {"gc_pause": "all@4:2ms"},
    "checkpoint": {"checkpoint": "0@5:2ms"},
    "host bound": {"host_bound": "5"},
    "no Seq": {"missing_seq": True},
    "lost launches": {"drop_launches": "0.03"},
    "missing rank": {"missing_ranks": "1"},
    "truncated": {"truncate": "1:0.5"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "sequence parallel": {"tp": 2, "sequence_parallel": True},
    "experts": {"dp": 2, "ep": 2},
    "ring": {"cp": 2},
    "fsdp": {"dp": 2, "fsdp": True},
    "gpipe": {"pp": 2, "schedule": "gpipe", "microbatches": 4},
    "interleaved": {"pp": 2, "schedule": "interleaved", "microbatches": 4},
}
PARTS = ("compute_only_ns", "overlap_ns", "exposed_comm_ns", "exposed_memcpy_ns", "idle_ns")
COLUMNS = ("wall_ns", *PARTS, "compute_ns", "communication_ns", "memcpy_ns", *CAUSES)


def _compare(folder: Path, store: Path) -> None:
    truth = json.loads((folder / "truth.json").read_text())
    whole = {f["rank"] for f in truth["files"] if f["status"] == "whole"}
    offsets = {c["host"]: c["offset_ns"] for c in truth["clocks"]}
    shift = {r["rank"]: truth["origin_ns"] + offsets[r["host"]] for r in truth["ranks"]}
    run = ingest_run(str(folder), out=str(store), jobs=1)
    activities, steps = run.table("activities"), run.table("steps")
    idle = idle_segments(activities, run.table("events"), windows=steps)
    found = {(r["rank"], r["step"]): r for r in breakdown(activities, steps, idle=idle).to_pylist()}
    windows = {(r["rank"], r["step"]): r for r in steps.to_pylist()}
    expected = [r for r in truth_table(folder / "truth.json", "breakdown") if r["rank"] in whole]
    assert {k for k in found if k[0] in whole} == {(r["rank"], r["step"]) for r in expected}
    for row in expected:
        key = row["rank"], row["step"]
        assert {c: found[key][c] for c in COLUMNS} == {c: row[c] for c in COLUMNS}, key
    for row in (r for r in truth_table(folder / "truth.json", "steps") if r["rank"] in whole):
        window = windows[row["rank"], row["step"]]
        for column in ("start_ns", "end_ns", "host_start_ns"):
            assert window[column] == row[column] + shift[row["rank"]]


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_the_analysis_finds_what_the_engine_knew(layout: str, fault: str, tmp_path: Path) -> None:
    run_simulation(tmp_path / "run", **{**SIZES, **LAYOUTS[layout], **FAULTS[fault]})
    _compare(tmp_path / "run", tmp_path / "store")


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_the_analysis_finds_what_the_engine_knew_of_other_layouts(name: str, tmp_path: Path) -> None:
    run_simulation(tmp_path / "run", **{**SIZES, **OTHERS[name]}, jitter=0.1)
    _compare(tmp_path / "run", tmp_path / "store")
