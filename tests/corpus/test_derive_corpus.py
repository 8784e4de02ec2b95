"""Real traces through reading and deriving: published totals, step counts and what the formats page says."""

from __future__ import annotations

import csv
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rankscope.ingest.derive import Derived, DeriveOptions, derive
from rankscope.ingest.torch_profiler import read_trace
from rankscope.store.errors import TraceError

pytestmark = pytest.mark.corpus

WHOLE = {
    "hta_nccl_parser_config_nccl_data": (108338822, 7317025, 39559468, 2284699, 503050991),
    "hta_timeline_analysis_sampled_rank_0": (151104000, 59216000, 336983000, 353000, 675191000),
    "astra_megatron_tp8_rank0": (131390000, 0, 241191000, 146000, 222514000),
    "tl_b200_eager_trace": (8652137, 0, 2141501, 802844, 72890696),
}
LARGE = {
    "hta_trace_diff_control_control": (205722000, 75614000, 87921000, 19330000, 76007000),
    "tl_mi300_google_owlv2_large_patch14_ensemble_1016001": (327416988, 0, 0, 4399354, 576521813),
}
"""compute_only, overlap, exposed_comm, exposed_memcpy, idle from first start to last end, ns."""


def _derived(shared: Path, tmp_path: Path, name: str) -> Derived:
    with read_trace(str(shared / "corpus" / "files" / f"{name}.json.gz"), spool=tmp_path) as trace:
        events = trace.table()
        header = trace.header
        is_python = pc.fill_null(pc.equal(events.column("cat").cast(pa.string()), "python_function"), False)
        return derive(events.filter(pc.invert(is_python)), header, DeriveOptions())


def _parts(rows: list[tuple[str, int, int]], low: int, high: int) -> tuple[int, ...]:
    """The five parts of a window by walking over all ends in order of time."""
    edges = []
    for klass, start, end in rows:
        if min(end, high) > max(start, low):
            edges += [(max(start, low), klass, 1), (min(end, high), klass, -1)]
    active: Counter[str] = Counter()
    parts, at = [0] * 5, low
    for time, klass, change in [*sorted(edges), (high, "compute", 0)]:
        if active["compute"]:
            part = 1 if active["comm"] else 0
        else:
            part = 2 if active["comm"] else 3 if active["memcpy"] else 4
        parts[part] += time - at
        at = time
        active[klass] += change
    return tuple(parts)


def _rows(derived: Derived) -> list[tuple[str, int, int]]:
    columns = derived.activities.select(["class", "start_ns", "end_ns", "valid"]).to_pylist()
    return [(r["class"], r["start_ns"], r["end_ns"]) for r in columns if r["valid"]]


def _check_whole(derived: Derived, expected: tuple[int, ...]) -> None:
    rows = _rows(derived)
    assert _parts(rows, min(r[1] for r in rows), max(r[2] for r in rows)) == expected


@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_window_is_as_published(shared: Path, tmp_path: Path, name: str) -> None:
    _check_whole(_derived(shared, tmp_path, name), WHOLE[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_the_whole_window_of_a_large_trace_is_as_published(shared: Path, tmp_path: Path, name: str) -> None:
    _check_whole(_derived(shared, tmp_path, name), LARGE[name])


def test_each_step_is_as_published(shared: Path, tmp_path: Path) -> None:
    derived = _derived(shared, tmp_path, "hta_nccl_parser_config_nccl_data")
    rows = _rows(derived)
    steps = {r["step"]: _parts(rows, r["start_ns"], r["end_ns"]) for r in derived.steps.to_pylist()}
    assert steps == {
        4: (36681147, 1825259, 10163762, 768753, 173064364),
        5: (36669002, 1760420, 10539609, 759895, 170057504),
        6: (34988673, 3731346, 18856097, 756051, 166604076),
    }


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("tl_b200_eager_trace", "prefill"),
        ("tl_inference_sglang_decode_sglang_Qwen3_8B_decode", "decode"),
        ("tl_inference_sglang_prefilldecode_sglang_Qwen3_8B_prefilldecode", "prefill"),
        ("tl_inference_vllm_decode_full_graph_execution", "decode"),
    ],
)
def test_inference_captures_tell_their_phase(shared: Path, tmp_path: Path, name: str, phase: str) -> None:
    derived = _derived(shared, tmp_path, name)
    assert [(r["source"], r["phase"]) for r in derived.steps.to_pylist()] == [("inference", phase)]
    assert pc.all(pc.is_valid(derived.activities.column("launch_id"))).as_py()


def test_the_expert_exchange_of_the_syncless_trace_is_communication(shared: Path, tmp_path: Path) -> None:
    derived = _derived(shared, tmp_path, "ao_syncless_ep_moe_fwd")
    rows = derived.activities.filter(pc.equal(derived.activities.column("class").cast(pa.string()), "comm"))
    found = Counter((r["name"].split("(")[0], r["role"], r["operation"]) for r in rows.to_pylist())
    assert found == {
        ("ncclDevKernel_AllGather_RING_LL", None, "all_gather"): 10,
        ("_mxfp8_all_to_all_expert_major_kernel", "EP", "dispatch"): 10,
        ("_combine_all_to_all_kernel", "EP", "combine"): 10,
    }


def test_the_steps_of_a_training_run_are_found_again_without_its_host_events(
    shared: Path, tmp_path: Path
) -> None:
    path = shared / "corpus" / "files" / "luatil_trace_05.json.gz"
    with read_trace(str(path), spool=tmp_path) as trace:
        events, header = trace.table(cats=("kernel", "gpu_memcpy", "gpu_memset")), trace.header
    derived = derive(events, header, DeriveOptions())
    lengths = [r["end_ns"] - r["start_ns"] for r in derived.steps.to_pylist()]
    assert {r["source"] for r in derived.steps.to_pylist()} == {"sequence"}
    marked = _derived(shared, tmp_path, "luatil_trace_05").steps.to_pylist()
    assert [r["source"] for r in marked] == ["profiler_step"] * 5
    known = [r["end_ns"] - r["start_ns"] for r in marked]
    assert len(lengths) == 5
    assert lengths[1:] == pytest.approx(known[1:], rel=0.001)


def _catalog(shared: Path) -> list[dict[str, str]]:
    with (shared / "corpus" / "catalog.csv").open() as lines:
        return [r for r in csv.DictReader(lines) if r["kind"].startswith("trace")]


@pytest.mark.slow
def test_every_trace_derives_and_its_windows_tile(shared: Path, tmp_path: Path) -> None:
    for row in _catalog(shared):
        try:
            derived = _derived(shared, tmp_path, row["name"])
        except TraceError:
            continue
        assert derived.activities.num_rows == int(row["gpu_events"] or 0), row["name"]
        windows: dict[int | None, list[tuple[int, int]]] = {}
        for step in derived.steps.to_pylist():
            windows.setdefault(step["device"], []).append((step["start_ns"], step["end_ns"]))
        for device, spans in windows.items():
            assert all(a[1] == b[0] for a, b in pairwise(spans)), (row["name"], device)
            assert all(start <= end for start, end in spans)
