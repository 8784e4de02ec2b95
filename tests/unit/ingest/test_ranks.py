"""Names and headers that say which rank, host and process a trace belongs to."""

from __future__ import annotations

import pytest
from builders_identity import by_rel, codes, planned, ranks, seen

from rankscope.ingest.coords import coordinates, coords_text, host_of_rank, local_ranks
from rankscope.ingest.facts import RunFacts
from rankscope.ingest.names import numbered, read_name
from rankscope.ingest.ranks import compact, missing_ranks


@pytest.mark.parametrize(
    ("rel", "rank"),
    [
        ("rank0.json", 0),
        ("rank_0.json.gz", 0),
        ("rank-3.json", 3),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("node1_rank_3.trace.json", 3),
        ("rank00012_trace.json", 12),
        ("iteration_10/rank7_trace.json", 7),
        ("iteration_10/replica_1/rank7_trace.json.gz", 7),
        ("rank0.1234.pt.trace.json.gz", 0),
        ("graph_capture_rank_5.1773709742341309550.pt.trace.json.gz", 5),
        ("dp1_pp0_tp3_dcp0_ep3_rank11.1773709742341309550.pt.trace.json.gz", 11),
        ("worker0.pt.trace.json", 0),
        ("worker2.1623143089861.pt.trace.json.gz", 2),
        ("nodeA-rank12.json", 12),
        ("rank_4/trace.json", 4),
        ("r3-2024-05-01.json.gz", 3),
        ("profile_trace_rank_0_annotation_iteration_9_256x256.json.gz", 0),
        ("global_rank_6_local_rank_2.json", 6),
        ("nccl_trace_rank_nodeA-02_5", 5),
        ("smci350-zts-gtu-c6-25_200691.1758927066581847260.pt.trace.json", None),
        ("host_4000.170000.pt.trace.json", None),
        ("h_12.async_llm.1773709742341309550.pt.trace.json.gz", None),
        ("local_rank_2.json", None),
        ("node_rank_1.json", None),
        ("frank12.json", None),
        ("tp8_pp2.json", None),
        ("num_workers_4.json", None),
        ("rank_1773709742341309550.json", None),
        ("trace_1700000000.json", None),
    ],
)
def test_rank_is_read_from_a_name_only_where_the_name_says_rank(rel: str, rank: int | None) -> None:
    assert read_name(rel).rank == rank


def test_handler_names_give_host_and_process_but_no_rank() -> None:
    name = read_name("smci350-zts-gtu-c6-25_200691.1758927066581847260.pt.trace.json")
    assert (name.host, name.process) == ("smci350-zts-gtu-c6-25", ("smci350-zts-gtu-c6-25", 200691))


def test_vllm_front_end_name_gives_host_and_is_a_front_end() -> None:
    name = read_name("gpu-7_991.async_llm.1773709742341309550.pt.trace.json.gz")
    assert (name.process, name.is_frontend) == (("gpu-7", 991), True)


def test_sglang_and_vllm_names_give_parallel_indices_and_sizes_do_not() -> None:
    sglang = read_name("1700000000.123-TP-3-DP-1-PP-0-EP-2.trace.json.gz")
    assert dict(sglang.indices) == {"tp": 3, "dp": 1, "pp": 0, "ep": 2}
    assert dict(read_name("1700000000.1-TP-3-DECODE.trace.json.gz").indices) == {"tp": 3}
    vllm = read_name("dp1_pp0_tp3_dcp0_ep3_rank11.1773709742341309550.pt.trace.json.gz")
    assert dict(vllm.indices) == {"dp": 1, "pp": 0, "tp": 3, "ep": 3}
    assert read_name("tp8_pp2_rank0.json").indices == ()
    assert read_name("llama_tp8_rank0.json").indices == ()


def test_folders_of_captures_and_ranks_are_no_place() -> None:
    name = read_name("runs/replica_0/iteration_20/rank_3/trace.json")
    assert (name.place, name.window, name.replica, name.rank) == (
        ("runs", "replica_0"),
        (20,),
        ("replica_0",),
        3,
    )


def test_zip_counts_as_a_folder_and_its_members_name_the_rank() -> None:
    name = read_name("traces.zip", "iteration_5/rank1.json")
    assert (name.rank, name.place, name.window) == (1, ("traces",), (5,))


def test_folder_above_a_single_file_names_its_rank() -> None:
    assert read_name("trace.json", parent="rank_6").rank == 6


@pytest.mark.parametrize(
    ("stems", "expected"),
    [
        (["trace.0", "trace.1", "trace.2"], [0, 1, 2]),
        (["kineto_1", "kineto_0"], [1, 0]),
        (["trace_04", "trace_05"], None),
        (["a_0", "b_1"], None),
        (["run1_0", "run2_1"], None),
        (["trace.0"], None),
    ],
)
def test_one_running_number_from_zero_numbers_the_ranks(stems: list[str], expected: list[int] | None) -> None:
    assert numbered(stems) == expected


def test_distributed_info_wins_over_the_name_and_the_difference_is_said() -> None:
    result = planned({"rank0.json": seen(rank=2, world_size=4)})
    assert ranks(result) == {"rank0.json": 2}
    assert by_rel(result)["rank0.json"].rank_source == "distributed_info"
    assert codes(result)["rank_differs"] == "info"


def test_rank_from_a_name_is_an_info_row() -> None:
    result = planned({"node1_rank_0.trace.json": seen(), "node1_rank_3.trace.json": seen()})
    assert ranks(result) == {"node1_rank_0.trace.json": 0, "node1_rank_3.trace.json": 3}
    assert codes(result) == {"rank_from_name": "info"}


def test_single_file_without_rank_is_rank_0_and_said() -> None:
    result = planned({"host_4000.170000.pt.trace.json": seen()})
    assert ranks(result) == {"host_4000.170000.pt.trace.json": 0}
    assert by_rel(result)["host_4000.170000.pt.trace.json"].rank_source == "assumed"
    assert codes(result) == {"rank_assumed": "info"}


def test_several_files_without_rank_are_numbered_in_natural_order_with_a_warning() -> None:
    result = planned({"trace_v10.json": seen(), "trace_v9.json": seen(), "b.json": seen()})
    assert ranks(result) == {"b.json": 0, "trace_v9.json": 1, "trace_v10.json": 2}
    assert codes(result) == {"rank_assumed": "warning"}


def test_assumed_numbers_avoid_known_ranks() -> None:
    result = planned({"rank0.json": seen(rank=0), "x.json": seen(), "rank2.json": seen(rank=2)})
    assert ranks(result) == {"rank0.json": 0, "rank2.json": 2, "x.json": 1}


def test_files_of_one_process_are_one_rank() -> None:
    files = {
        "h_10.1000000000000.pt.trace.json": seen(at=(0, 10)),
        "h_10.2000000000000.pt.trace.json": seen(at=(20, 30)),
        "h_11.1000000000001.pt.trace.json": seen(at=(0, 10)),
        "h_11.2000000000001.pt.trace.json": seen(at=(20, 30)),
    }
    result = planned(files)
    assert [s.rank for s in result.sources] == [0, 0, 1, 1]
    assert [s.window for s in result.sources] == [0, 1, 0, 1]


def test_running_number_across_the_set_is_the_rank() -> None:
    result = planned({f"trace.{i}.json": seen() for i in range(12)})
    assert [s.rank for s in result.sources] == list(range(12))
    assert codes(result) == {"rank_from_name": "info"}


def test_sglang_rank_is_stage_times_tensor_size_plus_tensor_index() -> None:
    files = {f"17.5-TP-{t}-DP-0-PP-{p}-EP-0.trace.json.gz": seen() for p in range(2) for t in range(4)}
    result = planned(files)
    assert ranks(result)["17.5-TP-2-DP-0-PP-1-EP-0.trace.json.gz"] == 6
    assert by_rel(result)["17.5-TP-2-DP-0-PP-1-EP-0.trace.json.gz"].coords == "tp2.ep0.pp1.dp0"
    assert by_rel(result)["17.5-TP-2-DP-0-PP-1-EP-0.trace.json.gz"].rank_source == "name"


def test_sglang_rank_is_not_guessed_when_stages_are_incomplete() -> None:
    files = {
        "1-TP-0-PP-0.trace.json": seen(),
        "1-TP-1-PP-0.trace.json": seen(),
        "1-TP-0-PP-1.trace.json": seen(),
    }
    result = planned(files)
    assert by_rel(result)["1-TP-0-PP-1.trace.json"].rank_source == "assumed"


def test_several_ranks_in_one_file_are_kept_as_such() -> None:
    result = planned({"fused.json": seen(fused_ranks=(0, 1))})
    one = result.sources[0]
    assert (one.rank, one.ranks, one.window) == (None, (0, 1), 0)
    assert result.worlds[0].ranks == (0, 1)


def test_missing_ranks_are_named_compactly() -> None:
    rows = missing_ranks("0", 8, [0])
    assert [(r.code, r.severity, r.count) for r in rows] == [("rank_missing", "warning", 7)]
    assert "1-7" in rows[0].example
    assert missing_ranks("0", None, [0]) == []


def test_ranks_beyond_the_world_are_said() -> None:
    rows = missing_ranks("0", 2, [0, 1, 5])
    assert [(r.code, r.count) for r in rows] == [("rank_out_of_range", 1)]


def test_a_huge_world_is_not_listed() -> None:
    rows = missing_ranks("0", 2**31 - 1, [7])
    assert rows[0].count == 2**31 - 2


def test_empty_file_of_a_rank_is_not_also_missing() -> None:
    empty = seen()
    empty = type(empty)(kind="other", shape="empty", status="empty", reason="the file is empty")
    result = planned({"rank0.json": seen(rank=0, world_size=2), "rank1.json": empty})
    assert codes(result) == {"file_empty": "warning"}
    assert by_rel(result)["rank1.json"].rank == 1


def test_compact_ranks() -> None:
    assert compact([3, 1, 2, 7, 9, 10]) == "1-3,7,9-10"


def test_hosts_come_from_metadata_then_names() -> None:
    files = {
        "nodeA-rank0.json": seen(rank=0, world_size=4, host="real-a"),
        "nodeA-rank1.json": seen(rank=1, world_size=4),
        "h100-07-rank2.json": seen(rank=2, world_size=4),
        "h100-08-rank3.json": seen(rank=3, world_size=4),
    }
    hosts = {rel: s.host for rel, s in by_rel(planned(files)).items()}
    assert hosts["nodeA-rank0.json"] == "real-a"
    assert (hosts["h100-07-rank2.json"], hosts["h100-08-rank3.json"]) == ("h100-07", "h100-08")


def test_a_prefix_that_is_no_host_stays_unknown() -> None:
    result = planned({"llama3-rank0.json": seen(rank=0), "llama3-rank1.json": seen(rank=1)})
    assert {s.host for s in result.sources} == {None}


def test_local_rank_only_when_whole_world_lies_in_even_blocks() -> None:
    none = RunFacts()
    assert local_ranks({0: "a", 1: "a", 2: "b", 3: "b"}, 4, none) == {0: 0, 1: 1, 2: 0, 3: 1}
    assert local_ranks({0: "a", 1: "b", 2: "a", 3: "b"}, 4, none) == {}
    assert local_ranks({0: "a", 1: "a"}, 4, none) == {}
    assert local_ranks({0: "a", 1: None}, 2, none) == {}
    assert local_ranks({5: None}, None, RunFacts(gpus_per_host=4)) == {5: 1}


def test_coordinates_follow_megatrons_order_or_the_stated_one() -> None:
    # W=16, tp2 cp1 dp4 pp2: rank 13 = tp1 + 2*dp2 + 8*pp1
    facts = RunFacts(tp=2, pp=2)
    assert coordinates(13, 16, facts) == {"tp": 1, "dp": 2, "pp": 1}
    assert coords_text({"tp": 1, "dp": 2, "pp": 1}) == "tp1.pp1.dp2"
    # tp-pp-dp: 13 = tp1 + 2*pp0 + 4*dp3
    assert coordinates(13, 16, RunFacts(tp=2, pp=2, order="tp-pp-dp")) == {"tp": 1, "pp": 0, "dp": 3}
    # experts: grid etp2 ep4 edp1 pp2: 13 = 1 + 2*2 + 8*1
    assert coordinates(13, 16, RunFacts(tp=2, pp=2, ep=4)) == {"tp": 1, "dp": 2, "pp": 1, "ep": 2}


def test_coordinates_are_unknown_without_sizes_or_when_they_do_not_fit() -> None:
    assert coordinates(0, 8, RunFacts()) is None
    assert coordinates(0, 8, RunFacts(tp=3)) is None
    assert coordinates(0, 8, RunFacts(tp=2, dp=2)) is None
    assert coordinates(0, None, RunFacts(tp=2)) is None
    assert coordinates(3, None, RunFacts(tp=2, dp=2)) == {"tp": 1, "dp": 1}


def test_stated_hosts_in_blocks_or_by_rank() -> None:
    assert host_of_rank(5, RunFacts(hosts=("a", "b"), gpus_per_host=4), None) == "b"
    assert host_of_rank(5, RunFacts(hosts=("a", "b")), 8) == "b"
    assert host_of_rank(5, RunFacts(hosts=("a", "b")), None) is None
    assert host_of_rank(5, RunFacts(host_of=((5, "x"),)), None) == "x"
