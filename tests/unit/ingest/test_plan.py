"""The whole plan: front ends, files that are no trace, real files and cases, and independence of order."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import pytest
from builders_identity import by_rel, codes, planned, ranks, seen, source, trace_text
from builders_trace import write
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.ingest.discover import Source, discover
from rankscope.ingest.plan import Plan, PlannedSource, identify, needs_times, plan
from rankscope.ingest.probe import Probe

VLLM = "dp0_pp0_tp{0}_dcp0_ep{0}_rank{0}.1773709742341309550.pt.trace.json.gz"


def of(folder: Path, *names: str) -> Plan:
    return identify(discover([str(folder / n) for n in names] or str(folder)))


def test_front_end_named_by_its_file_is_no_rank() -> None:
    files = {VLLM.format(r): seen(rank=r, world_size=2, backend="nccl") for r in (0, 1)}
    files["gpu7_991.async_llm.1773709742341309550.pt.trace.json.gz"] = seen(gpu=False)
    result = planned(files)
    front = by_rel(result)["gpu7_991.async_llm.1773709742341309550.pt.trace.json.gz"]
    assert (front.kind, front.rank, front.is_read) == ("frontend", None, False)
    assert sorted(filter(None, ranks(result).values())) == [1]
    assert codes(result) == {"frontend_trace": "info"}


@pytest.mark.parametrize("name", ["VLLM::EngineCore", "VLLM::APIServer", "sglang::scheduler", "AsyncLLM"])
def test_front_end_named_by_its_process_is_no_rank(name: str) -> None:
    files = {
        "rank0.json": seen(rank=0),
        "h_1.1700000000.pt.trace.json": seen(gpu=False, process_names=(name,)),
    }
    assert by_rel(planned(files))["h_1.1700000000.pt.trace.json"].kind == "frontend"


def test_cpu_trace_without_rank_beside_gpu_ranks_is_taken_for_a_front_end_with_a_warning() -> None:
    result = planned({"rank0.json": seen(rank=0), "h_1.1700000000.pt.trace.json": seen(gpu=False)})
    assert by_rel(result)["h_1.1700000000.pt.trace.json"].kind == "frontend"
    assert codes(result)["frontend_trace"] == "warning"


def test_a_rank_that_lost_its_gpu_records_stays_a_rank() -> None:
    files = {
        "rank0.json": seen(rank=0, world_size=4),
        "rank1.json": seen(rank=1, world_size=4, gpu=False),
        "rank2.json": seen(gpu=False),
        "x.json": seen(gpu=False, has_device_calls=True),
    }
    assert ranks(planned(files)) == {"rank0.json": 0, "rank1.json": 1, "rank2.json": 2, "x.json": 3}


def test_cpu_only_runs_have_no_front_end() -> None:
    assert ranks(planned({"a.json": seen(gpu=False), "b.json": seen(gpu=False)})) == {
        "a.json": 0,
        "b.json": 1,
    }
    assert ranks(planned({"scheduler.json": seen(gpu=False)})) == {"scheduler.json": 0}


def test_files_that_are_no_trace_are_skipped_with_a_reason() -> None:
    files = {
        "rank0.json": seen(rank=0),
        "rank0.et.json": Probe(kind="execution_trace", status="skipped", reason="an execution trace"),
        "rank1.et.json": Probe(kind="execution_trace", status="skipped", reason="an execution trace"),
        "notes.json": Probe(status="skipped", reason="a JSON object without traceEvents"),
        "rank2.json": Probe(status="skipped", reason="neither a JSON object nor a list of events"),
    }
    result = planned(files)
    assert [s.status for s in result.sources].count("skipped") == 4
    rows = sorted((q.severity, q.count, q.rank, q.path) for q in result.quality)
    assert rows == [
        ("info", 1, None, "notes.json"),
        ("info", 2, None, "rank0.et.json"),
        ("warning", 1, 2, "rank2.json"),
    ]


def test_records_travel_and_serialise() -> None:
    result = planned({"rank0.json": seen(rank=0, world_size=2, backend="nccl")})
    one = result.sources[0]
    assert pickle.loads(pickle.dumps(result)) == result
    assert PlannedSource(**json.loads(json.dumps(one.as_json() | {"ranks": ()})) | {"ranks": ()}) == one
    assert len(one.source_id) == 12


def test_source_id_depends_on_the_place_in_the_run_only() -> None:
    probe = seen(rank=0)
    ids = {
        plan([Source(f"{root}/a/rank0.json", "a/rank0.json")], [probe]).sources[0].source_id
        for root in ("/x", "s3://y")
    }
    assert len(ids) == 1


def test_only_files_whose_rank_is_claimed_twice_need_their_end() -> None:
    shallow = Probe(kind="torch_profiler", shape="object", rank=0)
    other = Probe(kind="torch_profiler", shape="object", rank=1)
    names = ["iteration_1/rank0.json.gz", "iteration_2/rank0.json.gz", "iteration_1/rank1.json.gz"]
    assert needs_times([source(n) for n in names], [shallow, shallow, other]) == [0, 1]


def test_empty_file_and_gzip_of_nothing_beside_a_healthy_rank(shared: Path) -> None:
    result = of(shared / "cases/07-empty-trace-file", "rank0.json.gz", "rank1.json", "rank2.json")
    assert ranks(result) == {"rank2.json": 2}
    empties = [(q.rank, q.severity) for q in result.quality if q.code == "file_empty"]
    assert empties == [(0, "warning"), (1, "warning")]


def test_single_handler_file_is_rank_0_assumed(shared: Path) -> None:
    (one,) = of(shared / "cases/09-no-rank-single-file", "host_4000.170000.pt.trace.json").sources
    assert (one.rank, one.rank_source, one.host) == (0, "assumed", "host")


def test_ranks_0_and_3_by_name_and_notes_skipped(shared: Path) -> None:
    names = ("node1_rank_0.trace.json", "node1_rank_3.trace.json", "notes.json")
    result = of(shared / "cases/10-no-rank-many-files", *names)
    assert ranks(result) == {names[0]: 0, names[1]: 3}
    assert {s.host for s in result.to_read()} == {"node1"}
    assert [s.label for s in result.sources if s.status == "skipped"] == ["notes.json"]


def test_flight_recorder_dumps_with_host_in_the_name(shared: Path) -> None:
    names = ("nccl_trace_rank_nodeA-02_0", "nccl_trace_rank_nodeB-02_1")
    result = of(shared / "cases/13-wrong-kind-of-name-fr", *names)
    assert [(s.kind, s.rank) for s in result.sources] == [("flight_recorder", 0), ("flight_recorder", 1)]


def test_fused_file_holds_two_ranks(shared: Path) -> None:
    (one,) = of(shared / "cases/46-merged-multi-rank-file", "fused.json").sources
    assert (one.rank, one.ranks, one.status) == (None, (0, 1), "whole")


def corpus_group(shared: Path, tmp_path: Path, prefix: str) -> Plan:
    folder = tmp_path / prefix
    folder.mkdir()
    for path in (shared / "corpus/files").glob(f"{prefix}_*"):
        (folder / path.name).symlink_to(path)
    return identify(discover(str(folder)))


@pytest.mark.parametrize(
    ("prefix", "size"),
    [
        ("rec_colls_w2_meta", 2),
        ("rec_ddp_w2_stack_mem", 2),
        ("rec_pp_1f1b_w4", 4),
        ("rec_hsdp_w8", 8),
        ("astra_megatron_tp8", 8),
    ],
)
def test_real_groups_are_one_world_of_all_their_ranks(
    shared: Path, tmp_path: Path, prefix: str, size: int
) -> None:
    result = corpus_group(shared, tmp_path, prefix)
    (world,) = result.worlds
    assert (world.label, world.world_size, world.ranks, world.n_windows) == ("0", size, tuple(range(size)), 1)
    assert {q.severity for q in result.quality} <= {"info"}
    if prefix.startswith("rec_"):
        assert [(s.host, s.local_rank) for s in result.to_read()] == [("vm", r) for r in range(size)]


def test_two_ranks_of_128_name_the_other_126(shared: Path, tmp_path: Path) -> None:
    for name in ("hta_timeline_analysis_sampled_rank_0", "hta_trace_filter_sampled_rank_1"):
        (tmp_path / f"{name}.json.gz").symlink_to(shared / "corpus/files" / f"{name}.json.gz")
    result = of(tmp_path)
    row = next(q for q in result.quality if q.code == "rank_missing")
    assert row.count == 126
    assert "2-127" in row.example


def test_identify_reads_the_end_of_compressed_files_where_time_decides(tmp_path: Path) -> None:
    for n, start in ((1, 1000.0), (2, 5000.0)):
        tail = ", ".join(
            [json.dumps({"ph": "X", "cat": "cpu_op", "name": "x" * 200, "ts": start, "dur": 1})] * 6000
        )
        text = '{"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [' + tail
        write(
            tmp_path / f"h_7.{n}00000000.pt.trace.json.gz",
            text + ', {"ph": "X", "ts": ' + str(start) + ', "dur": 500}]}',
        )
    result = of(tmp_path)
    assert [(s.rank, s.window) for s in result.sources] == [(0, 0), (0, 1)]


def test_a_healthy_run_of_files_on_disk(tmp_path: Path) -> None:
    for r in range(4):
        write(tmp_path / f"rank{r}.json", trace_text(rank=r, world_size=4, host_name=f"n{r // 2}"))
    result = of(tmp_path)
    assert result.quality == ()
    assert [(s.host, s.local_rank) for s in result.sources] == [("n0", 0), ("n0", 1), ("n1", 0), ("n1", 1)]


names = st.sampled_from(
    [
        *(f"iteration_{n}/rank{r}.json" for n in (1, 2) for r in (0, 1)),
        *(f"replica_{k}/rank0.json" for k in (0, 1)),
        *(f"h_{p}.{t}000000000.pt.trace.json" for p in (1, 2) for t in (17, 18)),
        "trace.0.json",
        "trace.1.json",
        "1.5-TP-0-PP-1.trace.json",
        "x.json",
        "sub/x.json",
    ]
)
probes = st.builds(
    seen,
    rank=st.sampled_from([None, 0, 1]),
    world_size=st.sampled_from([None, 1, 2]),
    at=st.sampled_from([None, (0, 10), (5, 15), (20, 30)]),
    gpu=st.booleans(),
    host=st.sampled_from([None, "a", "b"]),
    pg_count=st.sampled_from([None, 1, 2]),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(names, probes, max_size=9), st.randoms(use_true_random=False))
def test_order_never_matters_and_no_two_files_share_a_place(
    files: dict[str, Probe], shuffler: random.Random
) -> None:
    pairs = [(source(rel), probe) for rel, probe in files.items()]
    first = plan([s for s, _ in pairs], [p for _, p in pairs])
    shuffler.shuffle(pairs)
    assert plan([s for s, _ in pairs], [p for _, p in pairs]) == first
    places = [(s.world, s.rank, s.window) for s in first.to_read()]
    assert len(set(places)) == len(places)
    assert len(first.sources) == len(files)
    assert all(s.reason for s in first.sources if not s.is_read)
    labels = {w.label for w in first.worlds}
    assert {s.world for s in first.to_read()} <= labels
    assert first.default_world in labels or not labels
    for world in first.worlds:
        used = {s.window for s in first.to_read() if s.world == world.label}
        assert used == set(range(world.n_windows))
