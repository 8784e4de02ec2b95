"""Simulated runs: windows, parts, unions and idle causes read from the files equal what the engine knew, to the nanosecond.

The two sides share no code: the analysis sees only the files, the truth is written from the engine's own state.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders_sim import LAYOUTS, SMALL

import rankscope
from rankscope.simulate import run_simulation
from rankscope.simulate.run import truth_table
from rankscope.store.schema import CAUSES, PARTS

SIZES = SMALL | {"steps": 4}
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

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
SIMULATED = ("sim_tp2pp2dp2", "sim_pp4_1f1b", "sim_slow_rank")
COLUMNS = ("wall_ns", *PARTS, "compute_ns", "communication_ns", "memcpy_ns", *CAUSES)


def _check(folder: Path) -> None:
    """Every rank whose file is whole: its windows and its rows are those of the truth."""
    truth = json.loads((folder / "truth.json").read_text())
    whole = {f["rank"] for f in truth["files"] if f["status"] == "whole"}
    offsets = {c["host"]: c["offset_ns"] for c in truth["clocks"]}
    shift = {r["rank"]: truth["origin_ns"] + offsets[r["host"]] for r in truth["ranks"]}
    run = rankscope.open(str(folder), cache=False, jobs=1)
    rows = run.breakdown_table(by=["rank", "step"], steps="all", ranks=sorted(whole)).to_pylist()
    found = {(r["rank"], r["step"]): r for r in rows}
    windows = {(r["rank"], r["step"]): r for r in run.table("steps").to_pylist()}
    expected = [r for r in truth_table(folder / "truth.json", "breakdown") if r["rank"] in whole]
    assert expected
    assert set(found) == {(r["rank"], r["step"]) for r in expected}
    for row in expected:
        key = row["rank"], row["step"]
        assert {c: found[key][c] for c in COLUMNS} == {c: row[c] for c in COLUMNS}, key
    for row in (r for r in truth_table(folder / "truth.json", "steps") if r["rank"] in whole):
        window = windows[row["rank"], row["step"]]
        for column in ("start_ns", "end_ns", "host_start_ns"):
            assert window[column] == row[column] + shift[row["rank"]]


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_layout_with_every_fault_equals_its_truth(layout: str, fault: str, tmp_path: Path) -> None:
    run_simulation(tmp_path / "run", **{**SIZES, **LAYOUTS[layout], **FAULTS[fault]})
    _check(tmp_path / "run")


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_other_layouts_equal_their_truth(name: str, tmp_path: Path) -> None:
    run_simulation(tmp_path / "run", **{**SIZES, **OTHERS[name]}, jitter=0.1)
    _check(tmp_path / "run")


@pytest.mark.parametrize("name", SIMULATED)
def test_a_shipped_sample_equals_its_truth(name: str) -> None:
    _check(SAMPLES / name)


def test_a_truncated_rank_is_said_and_the_others_are_whole(tmp_path: Path) -> None:
    run_simulation(tmp_path / "run", steps=3, tp=2, truncate="1:0.6")
    run = rankscope.open(str(tmp_path / "run"), cache=False)
    assert {s["rank"]: s["status"] for s in run.table("sources").to_pylist()} == {0: "whole", 1: "truncated"}
    _check(tmp_path / "run")
