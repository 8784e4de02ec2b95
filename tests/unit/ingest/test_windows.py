"""Several captures of one rank, and several worlds in one directory."""

from __future__ import annotations

from builders_identity import MS, by_rel, codes, planned, ranks, seen

from rankscope.ingest.plan import verify_windows
from rankscope.store.schema import Severity


def windows(result: object) -> dict[str, int | None]:
    return {rel: s.window for rel, s in by_rel(result).items() if s.is_read}  # type: ignore[arg-type]


def worlds(result: object) -> dict[str, str]:
    return {rel: s.world for rel, s in by_rel(result).items()}  # type: ignore[arg-type]


def test_iteration_folders_are_windows_in_numeric_order() -> None:
    files = {
        f"iteration_{n}/rank{r}_trace.json": seen(rank=r, world_size=2, at=(n * 10, n * 10 + 5))
        for n in (10, 9, 100)
        for r in (0, 1)
    }
    result = planned(files)
    assert windows(result)["iteration_9/rank1_trace.json"] == 0
    assert windows(result)["iteration_10/rank0_trace.json"] == 1
    assert windows(result)["iteration_100/rank0_trace.json"] == 2
    assert result.worlds[0].n_windows == 3
    assert result.worlds[0].is_pooled
    assert codes(result) == {}


def test_captures_of_one_process_at_different_times_are_successive_windows() -> None:
    files = {
        f"h_{10 + r}.{t}000000000.pt.trace.json": seen(rank=r, world_size=2, at=(t, t + 5))
        for r in (0, 1)
        for t in (1000, 2000, 3000)
    }
    result = planned(files)
    assert [s.window for s in result.sources] == [0, 1, 2, 0, 1, 2]


def test_captures_at_the_same_time_share_the_number_and_a_lacking_rank_is_cut() -> None:
    files = {
        "a/rank0.json": seen(rank=0, at=(0, 10)),
        "b/rank0.json": seen(rank=0, at=(100, 110)),
        "a/rank1.json": seen(rank=1, at=(102, 112)),
    }
    result = planned(files)
    assert windows(result) == {"a/rank0.json": 0, "b/rank0.json": 1, "a/rank1.json": 1}
    cut = [q for q in result.quality if q.code == "window_cut"]
    assert [(q.rank, q.count, q.severity) for q in cut] == [(1, 1, Severity.WARNING)]


def test_back_to_back_captures_with_skew_stay_in_order() -> None:
    # rank 1 ends its first capture after rank 0 began its second
    files = {
        "h_1.100000000.pt.trace.json": seen(rank=0, at=(0, 10)),
        "h_1.200000000.pt.trace.json": seen(rank=0, at=(11, 20)),
        "h_2.100000000.pt.trace.json": seen(rank=1, at=(2, 12)),
        "h_2.200000000.pt.trace.json": seen(rank=1, at=(13, 22)),
    }
    assert [s.window for s in planned(files).sources] == [0, 1, 0, 1]


def test_a_rank_with_fewer_captures_joins_the_windows_it_overlaps() -> None:
    files = {
        "h_1.100000000.pt.trace.json": seen(rank=0, at=(0, 10)),
        "h_1.200000000.pt.trace.json": seen(rank=0, at=(11, 20)),
        "h_2.200000000.pt.trace.json": seen(rank=1, at=(9, 21)),
    }
    assert [s.window for s in planned(files).sources] == [0, 1, 1]


def test_clocks_far_apart_pair_captures_by_order_and_say_so() -> None:
    files = {
        "x/rank0.json": seen(rank=0, at=(0, 1)),
        "y/rank0.json": seen(rank=0, at=(10, 11)),
        "x/rank1.json": seen(rank=1, at=(5, 6)),
        "y/rank1.json": seen(rank=1, at=(15, 16)),
    }
    result = planned(files)
    assert windows(result) == {"x/rank0.json": 0, "y/rank0.json": 1, "x/rank1.json": 0, "y/rank1.json": 1}
    assert codes(result)["windows_disjoint"] == "warning"


def test_one_capture_a_rank_is_one_window_whatever_the_clocks() -> None:
    result = planned({"rank0.json": seen(rank=0, at=(0, 1)), "rank1.json": seen(rank=1, at=(5, 6))})
    assert set(windows(result).values()) == {0}
    assert codes(result)["windows_disjoint"] == "warning"


def test_same_rank_same_time_same_folder_is_refused_with_both_names() -> None:
    result = planned({"a_rank0.json": seen(rank=0, world_size=2), "b_rank0.json": seen(rank=0, world_size=2)})
    assert [s.status for s in result.sources] == ["refused", "refused"]
    assert "b_rank0.json" in (result.sources[0].reason or "")
    assert "a_rank0.json" in (result.sources[1].reason or "")
    row = next(q for q in result.quality if q.code == "duplicate_rank")
    assert (row.severity, row.rank, row.count) == (Severity.ERROR, 0, 2)
    assert "a_rank0.json" in row.example
    assert "b_rank0.json" in row.example


def test_a_copy_beside_its_original_is_refused_and_other_ranks_stay() -> None:
    files = {name: seen(rank=0, world_size=2) for name in ("rank0.json", "rank0.json.gz")}
    result = planned(files | {"rank1.json": seen(rank=1, world_size=2)})
    assert ranks(result) == {"rank1.json": 1}


def test_unknown_times_never_make_two_windows_of_one_folder() -> None:
    result = planned({"a_rank0.json": seen(rank=0, at=None), "b_rank0.json": seen(rank=0, at=None)})
    assert {s.status for s in result.sources} == {"refused"}


def test_named_captures_that_overlap_stay_apart_but_are_not_pooled() -> None:
    files = {f"iteration_{n}/rank0.json": seen(rank=0, at=(0, 10)) for n in (1, 2)}
    result = planned(files)
    assert sorted(windows(result).values()) == [0, 1]  # type: ignore[type-var]
    assert not result.worlds[0].is_pooled
    assert codes(result)["windows_apart"] == "warning"


def test_windows_without_a_common_rank_are_kept_apart() -> None:
    files = {
        "iteration_1/rank0.json": seen(rank=0, at=(0, 10)),
        "iteration_2/rank1.json": seen(rank=1, at=(20, 30)),
    }
    assert not planned(files).worlds[0].is_pooled


def test_replica_folders_are_worlds() -> None:
    files = {
        f"iteration_{n}/replica_{k}/rank{r}_trace.json": seen(
            rank=r, world_size=2, at=(n * 100, n * 100 + 50)
        )
        for n in (1, 2)
        for k in (0, 1)
        for r in (0, 1)
    }
    result = planned(files)
    assert {w.label: (w.world_size, w.ranks, w.n_windows) for w in result.worlds} == {
        "replica_0": (2, (0, 1), 2),
        "replica_1": (2, (0, 1), 2),
    }
    assert result.default_world == "replica_0"
    assert codes(result) == {"several_worlds": "info"}
    assert windows(result)["iteration_2/replica_1/rank0_trace.json"] == 1


def test_replica_folders_separate_even_when_their_captures_do_not_overlap() -> None:
    files = {
        "replica_0/rank0.json": seen(rank=0, world_size=1, at=(0, 10)),
        "replica_1/rank0.json": seen(rank=0, world_size=1, at=(20, 30)),
    }
    assert worlds(planned(files)) == {
        "replica_0/rank0.json": "replica_0",
        "replica_1/rank0.json": "replica_1",
    }


def test_trainer_and_rollout_of_different_size_are_worlds_and_the_larger_is_the_default() -> None:
    files = {f"trainer/rank{r}.json": seen(rank=r, world_size=4) for r in range(4)}
    files |= {f"rollout/rank{r}.json": seen(rank=r, world_size=2) for r in range(2)}
    result = planned(files)
    assert set(worlds(result).values()) == {"trainer", "rollout"}
    assert result.default_world == "trainer"
    assert "rollout" in next(q for q in result.quality if q.code == "several_worlds").example


def test_worlds_in_one_folder_are_named_by_their_size() -> None:
    files = {f"t_rank{r}.json": seen(rank=r, world_size=4) for r in range(4)}
    files |= {f"r_rank{r}.json": seen(rank=r, world_size=2) for r in range(2)}
    assert {w.label for w in planned(files).worlds} == {"w4", "w2"}


def test_engines_with_ranks_from_zero_in_their_own_folders_are_worlds() -> None:
    files = {f"e{k}/rank{r}.json": seen(rank=r, world_size=2) for k in "ab" for r in (0, 1)}
    assert {w.label: w.ranks for w in planned(files).worlds} == {"ea": (0, 1), "eb": (0, 1)}


def test_node_folders_of_one_world_are_not_worlds() -> None:
    files = {f"node{r // 2}/rank{r}.json": seen(rank=r, world_size=4) for r in range(4)}
    result = planned(files)
    assert [w.label for w in result.worlds] == ["0"]
    assert codes(result) == {}


def test_worlds_of_several_nodes_split_at_the_folder_that_separates_them() -> None:
    files = {
        f"job{k}/node{r // 2}/rank{r}.json": seen(rank=r, world_size=4) for k in (1, 2) for r in range(4)
    }
    assert {w.label: w.ranks for w in planned(files).worlds} == {"job1": (0, 1, 2, 3), "job2": (0, 1, 2, 3)}


def test_a_world_in_the_top_folder_beside_one_in_a_subfolder_is_named_with_a_dot() -> None:
    files = {"rank0.json": seen(rank=0, world_size=1), "old/rank0.json": seen(rank=0, world_size=1)}
    assert set(worlds(planned(files)).values()) == {".", "old"}


def test_different_groups_or_hosts_in_one_folder_are_worlds_not_duplicates() -> None:
    groups = {
        "a_rank0.json": seen(rank=0, world_size=2, pg_count=3),
        "b_rank0.json": seen(rank=0, world_size=2, pg_count=7),
    }
    assert {w.label for w in planned(groups).worlds} == {"pg3", "pg7"}
    hosts = {
        "a_rank0.json": seen(rank=0, world_size=2, host="n1"),
        "b_rank0.json": seen(rank=0, world_size=2, host="n2"),
    }
    assert {w.label for w in planned(hosts).worlds} == {"n1", "n2"}
    unsure = {
        "a_rank0.json": seen(rank=0, world_size=2, host="n1"),
        "b_rank0.json": seen(rank=0, world_size=2),
    }
    assert codes(planned(unsure))["duplicate_rank"] == "error"


def test_trace_without_world_size_joins_the_only_one() -> None:
    files = {"rank0.json": seen(rank=0, world_size=2), "rank1.json": seen()}
    assert [w.label for w in planned(files).worlds] == ["0"]


def test_exact_times_refuse_what_the_probe_could_not_see() -> None:
    files = {
        "h_1.100000000.pt.trace.json": seen(rank=0, at=(0, 10)),
        "h_1.200000000.pt.trace.json": seen(rank=0, at=(20, 30)),
    }
    first = planned(files)
    a, b = (s.source_id for s in first.sources)
    assert verify_windows(first, {a: (0, 10 * MS), b: (20 * MS, 30 * MS)}) == first
    result = verify_windows(first, {a: (0, 21 * MS), b: (20 * MS, 30 * MS)})
    assert [s.status for s in result.sources] == ["refused", "refused"]
    assert codes(result)["duplicate_rank"] == "error"
    assert result.worlds[0].ranks == ()


def test_exact_times_of_named_captures_only_end_the_pooling() -> None:
    first = planned({f"iteration_{n}/rank0.json": seen(rank=0, at=(n * 20, n * 20 + 1)) for n in (1, 2)})
    assert first.worlds[0].is_pooled
    ids = [s.source_id for s in first.sources]
    result = verify_windows(first, {ids[0]: (0, 50), ids[1]: (40, 60)})
    assert all(s.is_read for s in result.sources)
    assert not result.worlds[0].is_pooled


def test_windows_with_steps_of_different_sources_are_kept_apart() -> None:
    first = planned({f"iteration_{n}/rank0.json": seen(rank=0, at=(n * 20, n * 20 + 1)) for n in (1, 2)})
    ids = [s.source_id for s in first.sources]
    ranges = {ids[0]: (0, 1), ids[1]: (2, 3)}
    same = verify_windows(first, ranges, step_sources=dict.fromkeys(ids, "profiler_step"))
    assert same.worlds[0].is_pooled
    mixed = verify_windows(first, ranges, step_sources={ids[0]: "profiler_step", ids[1]: "none"})
    assert not mixed.worlds[0].is_pooled
    assert codes(mixed)["windows_apart"] == "warning"


def test_a_world_without_any_trace_left_is_not_the_default() -> None:
    files = {f"big/{n}_rank0.json": seen(rank=0, world_size=8) for n in "ab"}
    result = planned(files | {"small/rank0.json": seen(rank=0, world_size=2)})
    assert result.default_world == "small"
