"""Simulated runs: every part, union and idle cause equals what the engine knew, to the nanosecond.

Through the facade; `unit/simulate/test_against_analysis.py` tries every layout with every disturbance.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rankscope
from rankscope.simulate import run_simulation

SAME = [
    "wall_ns",
    "compute_only_ns",
    "overlap_ns",
    "exposed_comm_ns",
    "exposed_memcpy_ns",
    "idle_ns",
    "compute_ns",
    "communication_ns",
    "memcpy_ns",
    "data_loading_ns",
    "checkpoint_ns",
    "host_sync_ns",
    "gc_ns",
    "host_dispatch_ns",
    "host_other_ns",
    "launch_latency_ns",
    "kernel_gap_ns",
    "graph_gap_ns",
    "dependency_wait_ns",
    "tail_ns",
    "device_other_ns",
    "unattributed_ns",
]

LAYOUTS: dict[str, dict[str, Any]] = {
    "tp": {"tp": 4},
    "dp": {"dp": 4},
    "pp": {"pp": 4, "microbatches": 8},
    "3d": {"tp": 2, "pp": 2, "dp": 2},
}


def _truth(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    table = json.loads((folder / "truth.json").read_text())["breakdown"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    return {(r["rank"], r["step"]): r for r in rows}


def check(folder: Path) -> None:
    run = rankscope.open(str(folder), cache=False)
    rows = run.breakdown_table(by=["rank", "step"], steps="all").to_pylist()
    written = {
        f["rank"] for f in json.loads((folder / "truth.json").read_text())["files"] if f["status"] == "whole"
    }
    truth = {k: v for k, v in _truth(folder).items() if k[0] in written}
    assert truth
    assert {(r["rank"], r["step"]) for r in rows} == set(truth)
    for row in rows:
        want = truth[(row["rank"], row["step"])]
        different = {c: (row[c], want[c]) for c in SAME if row[c] != want[c]}
        assert not different, ((row["rank"], row["step"]), different)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_healthy_run_equals_its_truth(layout: str, tmp_path: Path) -> None:
    run_simulation(tmp_path / "run", steps=4, **LAYOUTS[layout])
    check(tmp_path / "run")


@pytest.mark.parametrize("name", ["sim_tp2pp2dp2", "sim_pp4_1f1b", "sim_slow_rank"])
def test_a_shipped_simulated_sample_equals_its_truth(name: str) -> None:
    check(Path(__file__).resolve().parents[2] / "sample_traces" / name)


def test_a_truncated_rank_leaves_the_others_exact(tmp_path: Path) -> None:
    run_simulation(tmp_path / "run", steps=3, tp=2, truncate="1:0.6")
    run = rankscope.open(str(tmp_path / "run"), cache=False)
    assert {s["rank"]: s["status"] for s in run.table("sources").to_pylist()} == {0: "whole", 1: "truncated"}
    truth = _truth(tmp_path / "run")
    for row in run.breakdown_table(by=["rank", "step"], steps="all", ranks=[0]).to_pylist():
        want = truth[(0, row["step"])]
        assert {c: row[c] for c in SAME} == {c: want[c] for c in SAME}
