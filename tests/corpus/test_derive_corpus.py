"""Real traces through reading and deriving: phases, roles, inferred steps, and windows that tile."""

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


def _derived(shared: Path, tmp_path: Path, name: str) -> Derived:
    with read_trace(str(shared / "corpus" / "files" / f"{name}.json.gz"), spool=tmp_path) as trace:
        events = trace.table()
        header = trace.header
        is_python = pc.fill_null(pc.equal(events.column("cat").cast(pa.string()), "python_function"), False)
        return derive(events.filter(pc.invert(is_python)), header, DeriveOptions())


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
