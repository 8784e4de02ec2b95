"""Whole-window and per-step totals of real traces, exactly (ns): compute_only, overlap, exposed_comm, exposed_memcpy, idle."""

from __future__ import annotations

from pathlib import Path

import pytest

import rankscope
from rankscope.store.schema import PARTS

WHOLE = {
    "hta_nccl_parser_config_nccl_data": (108338822, 7317025, 39559468, 2284699, 503050991),
    "hta_timeline_analysis_sampled_rank_0": (151104000, 59216000, 336983000, 353000, 675191000),
    "hta_trace_diff_control_control": (205722000, 75614000, 87921000, 19330000, 76007000),
    "astra_megatron_tp8_rank0": (131390000, 0, 241191000, 146000, 222514000),
    "tl_b200_eager_trace": (8652137, 0, 2141501, 802844, 72890696),
    "tl_mi300_google_owlv2_large_patch14_ensemble_1016001": (327416988, 0, 0, 4399354, 576521813),
}
STEPS = {
    4: (36681147, 1825259, 10163762, 768753, 173064364),
    5: (36669002, 1760420, 10539609, 759895, 170057504),
    6: (34988673, 3731346, 18856097, 756051, 166604076),
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_window_of_a_real_trace_is_as_published(shared: Path, name: str) -> None:
    run = rankscope.open(str(shared / "corpus" / "files" / f"{name}.json.gz"), cache=False)
    (row,) = run.breakdown_table(steps="none").to_pylist()
    assert tuple(row[p] for p in PARTS) == WHOLE[name]
    assert sum(row[p] for p in PARTS) == row["wall_ns"]


@pytest.mark.corpus
def test_each_step_of_a_real_trace_is_as_published(shared: Path) -> None:
    path = shared / "corpus" / "files" / "hta_nccl_parser_config_nccl_data.json.gz"
    run = rankscope.open(str(path), cache=False)
    rows = run.breakdown_table(by=["rank", "device", "step"], steps="all").to_pylist()
    assert {r["step"]: tuple(r[p] for p in PARTS) for r in rows} == STEPS
