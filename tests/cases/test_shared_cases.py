"""The bug-report cases of the shared folder: every figure of `expected.json` that concerns traces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rankscope

PARTS = {
    "span_us": "wall_ns",
    "compute_us": "compute_ns",
    "comm_us": "communication_ns",
    "mem_us": "memcpy_ns",
    "overlap_us": "overlap_ns",
    "exposed_comm_us": "exposed_comm_ns",
    "exposed_mem_us": "exposed_memcpy_ns",
    "idle_us": "idle_ns",
}


class Case:
    """One case: its expectations and the run made of its input files."""

    def __init__(self, folder: Path, files: list[str]) -> None:
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
        self.run = rankscope.open([str(folder / f) for f in files], cache=False)

    def breakdown(self) -> dict[int, dict[str, Any]]:
        rows = self.run.breakdown_table(by=["rank"], steps="none").to_pylist()
        assert len({r["rank"] for r in rows}) == len(rows)
        return {r["rank"]: r for r in rows}

    def quality(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in self.run.table("quality").to_pylist():
            counts[row["code"]] = counts.get(row["code"], 0) + row["count"]
        return counts

    def activities(self, **where: Any) -> pa.Table:
        return _where(self.run.table("activities"), **where)

    def events(self, **where: Any) -> pa.Table:
        return _where(self.run.table("events"), **where)


def _where(table: pa.Table, **where: Any) -> pa.Table:
    for column, value in where.items():
        values = table.column(column)
        if pa.types.is_dictionary(values.type):
            values = values.cast(pa.string())
        table = table.filter(pc.equal(values, pa.scalar(value)))
    return table


@pytest.fixture
def case(shared: Path):  # type: ignore[no-untyped-def]
    def load(number: str, *files: str) -> Case:
        folder = next((shared / "cases").glob(f"{number}-*"))
        return Case(folder, list(files) or ["rank0.json"])

    return load


def _check_times(row: dict[str, Any], expected: dict[str, Any]) -> None:
    for key, column in PARTS.items():
        if key in expected:
            want = expected[key]
            got = row[column]
            assert got == (None if want is None else round(want * 1000)), (key, got, want)
    if "busy_us" in expected:
        assert row["wall_ns"] - row["idle_ns"] == round(expected["busy_us"] * 1000)
    if "overlap_pct_of_comm" in expected:
        want = expected["overlap_pct_of_comm"]
        ratio = row["overlap_ratio"]
        assert (ratio is None) == (want is None)
        if want is not None:
            assert ratio * 100 == pytest.approx(want, abs=0.005)  # printed with two decimals


@pytest.mark.corpus
@pytest.mark.parametrize(
    "number",
    [
        "01",
        "03",
        "04",
        "14",
        "16",
        "18",
        "19",
        "21",
        "22",
        "23",
        "25",
        "26",
        "27",
        "30",
        "36",
        "38",
        "40",
        "41",
        "45",
    ],
)
def test_the_partition_of_a_single_rank_is_as_computed_by_hand(case, number: str) -> None:
    loaded = case(number)
    rows = loaded.breakdown()
    assert list(rows) == [0]
    _check_times(rows[0], loaded.expected)


@pytest.mark.corpus
def test_01_backslashes_are_kept_as_separators(case) -> None:
    c = case("01")
    names = c.events().column("name").to_pylist()
    name = next(n for n in names if "train.py" in n)
    assert all(part in name for part in c.expected["name_contains"])
    assert all(ord(ch) >= 32 for ch in name)
    assert len(names) == c.expected["events"]
    assert c.quality()["string_repaired"] >= c.expected["repaired_strings_min"]


@pytest.mark.corpus
def test_03_undecodable_strings_are_repaired_and_counted(case) -> None:
    c = case("03")
    assert c.events().num_rows == c.expected["events"]
    quality = c.quality()
    assert (
        quality.get("string_repaired", 0) + quality.get("bytes_replaced", 0) == c.expected["repaired_strings"]
    )


@pytest.mark.corpus
def test_04_a_bare_inf_is_no_number(case) -> None:
    c = case("04")
    copies = c.activities(**{"class": "memcpy"})
    assert copies.num_rows == c.expected["memcpy_count"]
    assert copies.column("bytes").to_pylist() == [c.expected["memcpy_bytes"]]
    assert c.events().num_rows == c.expected["events"]


@pytest.mark.corpus
def test_06_truncated_files_keep_every_whole_event(case) -> None:
    c = case("06", "rank0.json", "rank1.json.gz")
    events = c.events()
    counts = {r: _where(events, rank=r).num_rows for r in (0, 1)}
    assert counts[0] == c.expected["rank0_events"]
    low, high = c.expected["rank1_events_between"]
    assert low <= counts[1] <= high
    status = {s["rank"]: s["status"] for s in c.run.table("sources").to_pylist()}
    assert sorted(r for r, s in status.items() if s == "truncated") == c.expected["truncated_ranks"]
    _check_times(c.breakdown()[0], c.expected["rank0"])


@pytest.mark.corpus
def test_07_empty_files_do_not_stop_the_run(case) -> None:
    c = case("07", "rank0.json.gz", "rank1.json", "rank2.json")
    rows = c.breakdown()
    assert list(rows) == c.expected["ranks_ok"]
    statuses = [s["status"] for s in c.run.table("sources").to_pylist()]
    assert statuses.count("empty") == c.expected["empty_files"]
    _check_times(rows[2], c.expected["rank2"])


@pytest.mark.corpus
def test_09_a_single_file_without_a_rank_is_rank_0_and_says_so(case) -> None:
    c = case("09", "host_4000.170000.pt.trace.json")
    rows = c.breakdown()
    assert list(rows) == c.expected["ranks"]
    assert [s["rank_source"] for s in c.run.table("sources").to_pylist()] == [c.expected["rank_source"]]
    assert "rank_assumed" in c.quality()
    _check_times(rows[0], c.expected)


@pytest.mark.corpus
def test_10_ranks_come_from_file_names(case) -> None:
    c = case("10", "node1_rank_0.trace.json", "node1_rank_3.trace.json", "notes.json")
    rows = c.breakdown()
    assert sorted(rows) == c.expected["ranks"]
    statuses = [s["status"] for s in c.run.table("sources").to_pylist()]
    assert statuses.count("skipped") == c.expected["skipped_files"]
    for rank in c.expected["ranks"]:
        _check_times(rows[rank], c.expected[f"rank{rank}"])


@pytest.mark.corpus
def test_14_old_and_new_kernel_names_are_communication(case) -> None:
    c = case("14")
    assert c.activities(**{"class": "comm"}).num_rows == c.expected["comm_kernels"]


@pytest.mark.corpus
def test_17_communication_that_was_not_recorded_is_unknown(case) -> None:
    c = case("17")
    row = c.breakdown()[0]
    assert row["communication_ns"] is None
    assert row["overlap_ratio"] is None
    assert row["exposed_comm_ns"] == row["overlap_ns"] == 0
    assert row["is_comm_recorded"] is False
    assert row["compute_ns"] == c.expected["compute_us"] * 1000
    assert c.quality()["comm_not_recorded"] == c.expected["collectives_issued"]


@pytest.mark.corpus
@pytest.mark.parametrize("number", ["18", "19", "23", "27", "36", "38", "40"])
def test_kernels_are_counted_without_annotations_and_syncs(case, number: str) -> None:
    c = case(number)
    assert c.events(cat="kernel").num_rows == c.expected["kernels"]
    kernels = c.run.kernels_table()
    assert pc.sum(kernels.column("count")).as_py() == c.expected["kernels"]
    if "sync_events" in c.expected:
        assert c.events(cat="cuda_sync").num_rows == c.expected["sync_events"]
    if "launches" in c.expected:
        assert c.run.table("launches").num_rows == c.expected["launches"]
    if "orphan_launches" in c.expected:
        assert _where(c.run.table("launches"), n_activities=0).num_rows == c.expected["orphan_launches"]
        assert c.quality()["launch_without_activity"] == c.expected["orphan_launches"]


@pytest.mark.corpus
def test_22_old_spellings_are_mapped(case) -> None:
    c = case("22")
    cats = c.events().column("cat").to_pylist()
    wanted = {"kernel": "kernels", "gpu_memcpy": "memcpy", "cuda_runtime": "runtime", "cpu_op": "cpu_ops"}
    for cat, key in wanted.items():
        assert cats.count(cat) == c.expected[key]
    delays = [d for d in c.run.table("launches").column("launch_delay_ns").to_pylist() if d is not None]
    assert delays == [c.expected["launch_delay_us"] * 1000]


@pytest.mark.corpus
def test_24_a_cpu_only_trace_has_no_device_row(case) -> None:
    c = case("24")
    rows = c.run.breakdown_table(steps="none").to_pylist()
    assert all(r["timeline"] == "host" for r in rows)
    assert c.events(cat="cpu_op").num_rows == c.expected["cpu_ops"]
    assert c.run.table("activities").num_rows == c.expected["kernels"]
    assert "no_device_activity" in c.quality()


@pytest.mark.corpus
def test_25_and_26_impossible_times_leave_the_sums_and_are_counted(case) -> None:
    c = case("25")
    assert _where(c.run.table("activities"), valid=True).num_rows == c.expected["kernels_valid"]
    assert c.quality()["ts_invalid"] == c.expected["kernels_invalid_ts"]
    c = case("26")
    assert _where(c.run.table("activities"), valid=True).num_rows == c.expected["kernels_valid"]
    assert c.quality()["duration_negative"] == c.expected["negative_durations"]
    assert c.quality()["duration_impossible"] == c.expected["impossible_durations"]


@pytest.mark.corpus
def test_37_a_kernel_belongs_to_the_step_that_launched_it(case) -> None:
    c = case("37")
    table = c.run.table("activities")
    for step, micros in c.expected["kernel_time_us_by_step"].items():
        mine = _where(table, step=int(step))
        assert mine.num_rows == c.expected["kernels_by_step"][step]
        total = pc.sum(pc.subtract(mine.column("end_ns"), mine.column("start_ns"))).as_py()
        assert total == micros * 1000


@pytest.mark.corpus
def test_38_every_kernel_of_a_graph_is_linked_once(case) -> None:
    c = case("38")
    launches = c.run.table("launches").to_pylist()
    assert [r["n_activities"] for r in launches] == c.expected["kernels_per_launch"]
    assert len(launches) == c.expected["graph_launches"]
    linked = [x for x in c.run.table("activities").column("launch_id").to_pylist() if x is not None]
    assert len(linked) == c.expected["linked_kernels"]


@pytest.mark.corpus
def test_41_metadata_comes_from_the_call_that_launched_the_kernel(case) -> None:
    c = case("41")
    table = c.activities(**{"class": "comm"}).sort_by("start_ns")
    assert table.num_rows == c.expected["comm_kernels"]
    assert table.column("in_bytes").to_pylist() == c.expected["in_bytes"]
    assert table.column("collective").to_pylist() == c.expected["collective"]
    assert table.column("out_bytes").to_pylist() == [8192, None]


@pytest.mark.corpus
def test_42_two_ranks_with_one_group_each_are_read(case) -> None:
    c = case("42", "rank0.json", "rank1.json")
    assert sorted(c.breakdown()) == [0, 1]


@pytest.mark.corpus
def test_45_the_operator_is_found_by_position(case) -> None:
    c = case("45")
    gemm = c.activities(name="gemm_a").to_pylist()
    assert [g["op"] for g in gemm] == [c.expected["op_of_gemm_a"]]


@pytest.mark.corpus
def test_46_a_fused_file_is_split_by_rank(case) -> None:
    c = case("46", "fused.json")
    rows = c.breakdown()
    assert len(rows) == c.expected["ranks_detected"]
    assert [rows[r]["compute_ns"] / 1000 for r in sorted(rows)] == c.expected["per_rank_compute_us"]
    launches = c.run.table("launches").sort_by("rank").column("launch_delay_ns").to_pylist()
    assert [d / 1000 for d in launches] == c.expected["launch_delay_us"]


@pytest.mark.corpus
def test_47_begin_and_end_events_are_paired(case) -> None:
    c = case("47", "host.json")
    durations = {r["name"]: r["dur_ns"] for r in c.events().to_pylist() if r["dur_ns"] is not None}
    assert durations == {k: v * 1000 for k, v in c.expected["durations_us"].items()}
    assert c.quality()["event_unclosed"] == c.expected["unclosed"]
    assert c.quality()["end_unmatched"] == c.expected["unmatched_end"]


@pytest.mark.corpus
@pytest.mark.slow
def test_55_a_large_trace_fits_in_bounded_memory(shared: Path, tmp_path: Path) -> None:
    folder = next((shared / "cases").glob("55-*"))
    expected = json.loads((folder / "expected.json").read_text())
    trace = tmp_path / "rank0.json"
    subprocess.run(
        [sys.executable, str(folder / "make_large.py"), str(trace), str(expected["N"])], check=True
    )
    code = (
        "import resource, rankscope, json\n"
        f"run = rankscope.open({str(trace)!r}, cache=False)\n"
        "row = run.breakdown_table(steps='none').to_pylist()[0]\n"
        "peak = max(resource.getrusage(w).ru_maxrss for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))\n"
        "print(json.dumps({'row': row, 'peak_mb': peak / 1024}))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    result = json.loads(out.splitlines()[-1])
    _check_times(result["row"], {k: v for k, v in expected.items() if k != "mem_us"})
    assert result["peak_mb"] < expected["peak_rss_mb_max"]
