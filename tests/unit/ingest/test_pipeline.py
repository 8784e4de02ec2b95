"""Traces in, a store out: whole or not at all, resumed, and the same bytes whatever the order."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from builders_store import rows
from builders_trace import NCCL, kernel, launch, steps_trace, two_ranks, write

from rankscope.ingest import cache as caches
from rankscope.ingest import ingest_one as one
from rankscope.ingest import pipeline
from rankscope.ingest.lean import lean
from rankscope.ingest.options import IngestOptions
from rankscope.ingest.pipeline import ingest_run
from rankscope.store.errors import EmptyRun, RankConflict, StoreVersion, TraceError, UnknownFormat, UsageError
from rankscope.store.reader import RunStore


def digests(root: Path) -> dict[str, str]:
    """Content of every file of a store but the receipts, which know where the traces lie."""
    found = [
        p for p in root.rglob("*") if p.is_file() and "_receipts" not in p.parts and p.name != caches.USED
    ]
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}


def codes(store: RunStore) -> dict[str, int]:
    """Quality codes with their counts."""
    found: dict[str, int] = {}
    for row in store.table("quality").to_pylist():
        found[row["code"]] = found.get(row["code"], 0) + row["count"]
    return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels of the sources that were read in this process."""
    seen: list[str] = []

    def spy(source, destination, options):  # type: ignore[no-untyped-def]
        seen.append(source.label)
        return one.ingest_one(source, destination, options)

    monkeypatch.setattr(pipeline, "ingest_one", spy)
    return seen


def test_two_ranks_become_one_store(tmp_path: Path) -> None:
    store = ingest_run(two_ranks(tmp_path / "traces"), tmp_path / "run")
    assert store.ranks() == [0, 1]
    assert store.default_world == "0"
    events = store.table("events")
    assert events.num_rows == 2 * 5 * 8
    activities = store.table("activities", ranks=[1])
    assert activities.num_rows == 15
    assert set(activities.column("class").to_pylist()) == {"compute", "comm", "memcpy"}
    assert set(activities.column("gpu").to_pylist()) == {"Test GPU"}
    assert store.table("steps", ranks=[0]).column("step").to_pylist() == [1, 2, 3, 4, 5]
    assert store.table("launches", columns=["n_activities"]).column(0).to_pylist() == [1] * 30
    sources = store.table("sources").to_pylist()
    assert [(s["path"], s["rank"], s["status"], s["world_size"]) for s in sources] == [
        ("rank_0.json", 0, "whole", 2),
        ("rank_1.json.gz", 1, "whole", 2),
    ]
    assert [s["n_events"] for s in sources] == [40, 40]
    assert json.loads(sources[0]["metadata"])["distributedInfo"]["rank"] == 0
    assert store.manifest["devices"] == ["Test GPU"]


def test_the_manifest_names_no_place_and_no_time(tmp_path: Path) -> None:
    ingest_run(two_ranks(tmp_path / "traces"), tmp_path / "run")
    text = (tmp_path / "run" / "manifest.json").read_text()
    assert str(tmp_path) not in text
    assert "mtime" not in text


def test_the_bytes_do_not_depend_on_order_jobs_executor_or_place(tmp_path: Path) -> None:
    paths = []
    for rank in range(4):
        name = f"rank_{rank}.json" + (".gz" if rank % 2 else "")
        paths.append(str(write(tmp_path / "traces" / name, steps_trace(rank, world_size=4))))
    ingest_run(paths, tmp_path / "a", jobs=1)
    shuffled = random.Random(5).sample(paths, len(paths))
    ingest_run(shuffled, tmp_path / "b", jobs=2)
    with ThreadPoolExecutor(3) as executor:
        ingest_run(shuffled, tmp_path / "c", executor=executor)
    moved = tmp_path / "elsewhere"
    for path in paths:
        write(moved / Path(path).name, Path(path).read_bytes())
        os.utime(moved / Path(path).name, (1e9, 1e9))
    ingest_run(moved, tmp_path / "d")
    assert (
        digests(tmp_path / "a")
        == digests(tmp_path / "b")
        == digests(tmp_path / "c")
        == digests(tmp_path / "d")
    )


def test_a_damaged_file_beside_a_healthy_one_does_not_stop_the_run(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "traces")
    write(folder / "rank_2.json", b"\x00\x01 this is no trace")
    write(folder / "rank_3.json", b"")
    store = ingest_run(folder, tmp_path / "run")
    assert store.ranks() == [0, 1]
    status = {s["path"]: s["status"] for s in store.table("sources").to_pylist()}
    assert status["rank_0.json"] == status["rank_1.json.gz"] == "whole"
    assert status["rank_2.json"] in ("skipped", "refused")
    assert status["rank_3.json"] == "empty"
    assert codes(store)["file_empty"] == 1
    assert "not_a_trace" in codes(store)


def test_a_truncated_file_keeps_what_is_whole(tmp_path: Path) -> None:
    text = json.dumps(steps_trace(0, world_size=1))
    whole = ingest_run(write(tmp_path / "a" / "rank_0.json", text), tmp_path / "ra")
    cut = ingest_run(write(tmp_path / "b" / "rank_0.json", text[: len(text) // 2]), tmp_path / "rb")
    (source,) = cut.table("sources").to_pylist()
    assert source["status"] == "truncated" and source["reason"]
    assert 10 < cut.table("events").num_rows < whole.table("events").num_rows
    assert codes(cut)["file_truncated"] == 1


def test_an_unexpected_failure_is_one_refused_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = one.read_trace

    def fails(path, **options):  # type: ignore[no-untyped-def]
        if "rank_1" in path:
            raise ZeroDivisionError("a defect")
        return real(path, **options)

    monkeypatch.setattr(one, "read_trace", fails)
    store = ingest_run(two_ranks(tmp_path / "traces"), tmp_path / "run")
    assert store.ranks() == [0]
    (row,) = (q for q in store.table("quality").to_pylist() if q["code"] == "file_damaged")
    assert (row["rank"], row["path"], row["severity"]) == (1, "rank_1.json.gz", "error")
    assert "ZeroDivisionError" in row["example"]


def test_an_interrupted_ingest_leaves_no_store_and_is_resumed(tmp_path: Path, counted: list[str]) -> None:
    folder = two_ranks(tmp_path / "traces")
    root = tmp_path / "run"
    store = ingest_run(folder, root)
    expected = digests(root)
    assert counted == ["rank_0.json", "rank_1.json.gz"]
    counted.clear()
    (root / "manifest.json").unlink()
    (done,) = (p for p in store.parts("events") if p.rank == 0)
    (root / "_receipts" / f"{done.source_id}.json").unlink()
    with pytest.raises(StoreVersion, match="interrupted"):
        ingest_run(root)
    ingest_run(folder, root)
    assert counted == ["rank_0.json"]
    assert digests(root) == expected


def test_a_killed_ingest_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, root = two_ranks(tmp_path / "traces"), tmp_path / "run"
    real = one.ingest_one

    def killed(source, destination, options):  # type: ignore[no-untyped-def]
        if source.rank == 1:
            raise KeyboardInterrupt
        return real(source, destination, options)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "ingest_one", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest_run(folder, root)
    assert not (root / "manifest.json").exists()
    ingest_run(folder, root)
    ingest_run(folder, tmp_path / "fresh")
    assert digests(root) == digests(tmp_path / "fresh")


def test_an_unchanged_run_is_not_read_again(tmp_path: Path, counted: list[str]) -> None:
    folder = two_ranks(tmp_path / "traces")
    ingest_run(folder, tmp_path / "run")
    counted.clear()
    ingest_run(folder, tmp_path / "run")
    assert counted == []
    write(folder / "rank_0.json", steps_trace(0, n_steps=6))
    store = ingest_run(folder, tmp_path / "run")
    assert counted == ["rank_0.json"]
    assert store.table("steps", ranks=[0]).num_rows == 6


def test_parts_of_other_options_never_get_into_the_manifest(tmp_path: Path, counted: list[str]) -> None:
    folder = two_ranks(tmp_path / "traces")
    ingest_run(folder, tmp_path / "run")
    counted.clear()
    other = IngestOptions(step_regex="aten::mm")
    changed = ingest_run(folder, tmp_path / "run", options=other)
    assert len(counted) == 2
    assert set(changed.table("steps").column("source").to_pylist()) == {"regex"}
    ingest_run(folder, tmp_path / "fresh", options=other)
    assert digests(tmp_path / "run") == digests(tmp_path / "fresh")
    (folder / "rank_1.json.gz").unlink()
    assert ingest_run(folder, tmp_path / "run", options=other).ranks() == [0]


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "traces")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        ingest_run(folder, tmp_path / "home")
    with pytest.raises(UsageError, match="is a file"):
        ingest_run(folder, tmp_path / "home" / "thesis.tex")
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["thesis.tex"]


def test_a_run_without_anything_to_analyse_is_one_clear_error(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.json", "hello")
    with pytest.raises(TraceError) as caught:
        ingest_run(bad, tmp_path / "run")
    assert caught.value.exit_code == 3 and isinstance(caught.value, UnknownFormat)
    assert "bad.json" in str(caught.value) and len(str(caught.value).splitlines()) <= 2
    assert not (tmp_path / "run").exists()
    for i in range(5):
        write(tmp_path / "many" / f"rank_{i}.json", "hello")
    with pytest.raises(EmptyRun) as many:
        ingest_run(tmp_path / "many")
    assert "none of the 5 files" in str(many.value) and "and 2 more" in str(many.value)
    assert len(str(many.value).splitlines()) == 2


def test_two_files_of_one_rank_at_one_time_are_refused_with_both_names(tmp_path: Path) -> None:
    write(tmp_path / "t" / "rank_0.json", steps_trace(0))
    write(tmp_path / "t" / "copy_of_rank_0.json", steps_trace(0))
    with pytest.raises(RankConflict) as caught:
        ingest_run(tmp_path / "t")
    assert "rank_0.json" in str(caught.value) and "copy_of_rank_0.json" in str(caught.value)


def test_successive_captures_are_windows_of_one_run(tmp_path: Path) -> None:
    for window, first in ((0, 1), (1, 11)):
        for rank in range(2):
            trace = steps_trace(rank, shift=100_000 * window, first=first)
            write(tmp_path / "t" / f"iteration_{10 * window}" / f"rank{rank}_trace.json", trace)
    store = ingest_run(tmp_path / "t")
    assert (store.ranks(), store.windows(), store.worlds()) == ([0, 1], [0, 1], ["0"])
    assert store.table("steps", ranks=[0], windows=[1]).column("step").to_pylist() == [11, 12, 13, 14, 15]


def test_folders_of_different_jobs_are_worlds(tmp_path: Path) -> None:
    for job, size in (("train", 2), ("rollout", 3)):
        for rank in range(size):
            write(tmp_path / "t" / job / f"rank_{rank}.json", steps_trace(rank, world_size=size))
    store = ingest_run(tmp_path / "t")
    assert len(store.worlds()) == 2
    assert store.ranks(world=store.default_world) == [0, 1, 2]


def test_a_file_of_several_ranks_is_split(tmp_path: Path) -> None:
    events = []
    for rank in range(2):
        pid = 100_000 * rank
        events += [
            {**launch(95 + 50 * rank, 1), "pid": 100 + pid},
            {**kernel("gemm_a", 100 + 50 * rank, 50, corr=1), "pid": pid},
            {
                "ph": "M",
                "name": "process_name",
                "pid": pid,
                "tid": 0,
                "ts": 0,
                "args": {"name": f"rank {rank} GPU"},
            },
        ]
    events.append({"ph": "X", "cat": "cpu_op", "name": "of nobody", "ts": 90, "dur": 1})
    path = write(tmp_path / "fused.json", {"schemaVersion": 1, "traceEvents": events})
    store = ingest_run(path)
    assert store.ranks() == [0, 1]
    assert store.table("activities").column("start_ns").to_pylist() == [100_000, 150_000]
    assert store.table("events", columns=["rank"]).column("rank").to_pylist() == [0] * 4 + [1] * 3
    assert [s["rank"] for s in store.table("sources").to_pylist()] == [0, 1]


def test_a_remote_store_holds_the_same_as_a_local_one(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "traces")
    local = ingest_run(folder, tmp_path / "run")
    remote = ingest_run(folder, "memory://runs/one")
    assert remote.manifest == local.manifest
    for name in ("events", "activities", "launches", "steps", "sources", "quality"):
        assert remote.table(name).equals(local.table(name)), name


def test_traces_behind_a_url_are_read_and_not_cached(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/traces/rank_0.json", json.dumps(steps_trace(0)).encode())
    store = ingest_run("memory://traces/rank_0.json")
    assert store.ranks() == [0]
    assert str(caches.cache_root()) not in store.path


def test_the_cache_is_used_again_and_left_alone_without_it(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(caches.CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = two_ranks(tmp_path / "traces")
    first = ingest_run([folder / "rank_0.json", folder / "rank_1.json.gz"])
    assert first.path.startswith(str(tmp_path / "cache"))
    again = ingest_run([folder / "rank_1.json.gz", folder / "rank_0.json"])
    assert again.path == first.path and len(counted) == 2
    apart = ingest_run(folder, cache=False)
    assert not apart.path.startswith(str(tmp_path / "cache")) and len(counted) == 4
    assert digests(Path(apart.path)) == digests(Path(first.path))
    ingest_run(folder, options=IngestOptions(sets=("tp=2",)))
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_processes_that_race_for_one_entry_all_get_it(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "traces")
    code = f"import rankscope; print(rankscope.open({str(folder)!r}).breakdown_table(steps='all')['n'].to_pylist())"
    env = {**os.environ, caches.CACHE_VARIABLE: str(tmp_path / "cache")}
    racing = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [p.communicate()[0].strip() for p in racing] == ["[5, 5]"] * 3
    (entry,) = (tmp_path / "cache").iterdir()
    assert RunStore(entry).is_complete()
    assert not list(entry.rglob("*.tmp"))


def test_a_damaged_cache_entry_is_made_again(tmp_path: Path, counted: list[str]) -> None:
    folder = two_ranks(tmp_path / "traces")
    store = ingest_run(folder)
    (Path(store.path) / store.parts("events")[0].path).unlink()
    counted.clear()
    assert ingest_run(folder).table("events").num_rows == 80
    assert counted == ["rank_0.json"]


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(caches.CACHE_VARIABLE, str(tmp_path / "file"))
    assert ingest_run(two_ranks(tmp_path / "traces")).ranks() == [0, 1]
    assert "cannot be written" in caplog.text


def test_a_store_is_opened_as_it_is(tmp_path: Path, counted: list[str]) -> None:
    made = ingest_run(two_ranks(tmp_path / "traces"), tmp_path / "run")
    counted.clear()
    assert ingest_run(tmp_path / "run").manifest == made.manifest
    assert counted == []


def test_a_store_is_derived_again_under_other_rules(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "traces")
    made = ingest_run(folder, tmp_path / "run")
    before = digests(tmp_path / "run")
    options = IngestOptions(rules=('[[rule]]\nid = "mine"\npattern = "^gemm_a$"\nclass = "comm"\n',))
    other = ingest_run(tmp_path / "run", options=options)
    assert other.path != made.path
    assert digests(tmp_path / "run") == before
    classes = dict(
        zip(
            other.table("activities")["name"].to_pylist(),
            other.table("activities")["class"].to_pylist(),
            strict=True,
        )
    )
    assert classes["gemm_a"] == "comm" and classes[NCCL] == "comm"
    direct = ingest_run(folder, tmp_path / "direct", options=options)
    for name in ("events", "activities", "launches", "steps", "quality", "sources"):
        assert other.table(name).equals(direct.table(name)), name
    assert ingest_run(tmp_path / "run", options=options).path == other.path


def test_facts_stated_of_a_store_are_those_of_its_ranks(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "traces")
    ingest_run(folder, tmp_path / "run")
    options = IngestOptions(sets=("tp=2", 'hosts=["a", "b"]', "gpus_per_host=1"))
    other = ingest_run(tmp_path / "run", options=options)
    found = other.table("events", columns=["rank", "host", "local_rank", "coords"]).to_pylist()
    assert found[0] == {"rank": 0, "host": "a", "local_rank": 0, "coords": "tp0"}
    assert found[-1] == {"rank": 1, "host": "b", "local_rank": 0, "coords": "tp1"}
    direct = ingest_run(folder, tmp_path / "direct", options=options)
    for name in ("events", "activities", "launches", "steps", "quality", "sources"):
        assert other.table(name).equals(direct.table(name)), name
    assert other.manifest == direct.manifest
    assert ingest_run(other.path, options=options).path == other.path
    wrong = ingest_run(tmp_path / "run", options=IngestOptions(sets=("tp=3",)))
    assert "fact_contradicted" in codes(wrong)


def test_standard_input_is_read_and_never_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Stdin:
        buffer = io.BytesIO(json.dumps(steps_trace(0, world_size=1)).encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    store = ingest_run("-")
    assert store.table("activities").num_rows == 15
    assert str(caches.cache_root()) not in store.path


def test_progress_counts_up_to_all(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    ingest_run(two_ranks(tmp_path / "traces"), tmp_path / "run", progress=lambda *a: seen.append(a))
    assert [(done, total) for done, total, _ in seen] == [(1, 2), (2, 2)]
    assert {name for _, _, name in seen} == {"rank_0.json", "rank_1.json.gz"}


def test_the_worker_and_its_receipt_travel_between_processes(tmp_path: Path) -> None:
    options = IngestOptions(rules=("x",), step_regex="y", storage_options={"a": 1})
    call = pickle.loads(pickle.dumps(partial(one.ingest_one, destination=str(tmp_path), options=options)))
    assert call.keywords["options"] == options


def test_headers_that_are_no_json_are_made_json(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "traces")
    odd = steps_trace(2, world_size=3) | {"note": float("nan"), "half": "\ud800"}
    write(folder / "rank_3.json", odd)
    store = ingest_run(folder, tmp_path / "run")
    assert store.ranks() == [0, 1, 2]
    metadata = {
        s["rank"]: s["metadata"] for s in store.table("sources").to_pylist() if s["status"] == "whole"
    }
    assert json.loads(metadata[2], parse_constant=lambda _: 1 / 0)["schemaVersion"] == 1


def test_what_derives_nothing_is_left_out_of_the_derivation() -> None:
    table = rows(
        "events",
        cat=["python_function", "cpu_op", None, "ac2g", "gpu_memcpy"],
        name=["a", "b", "c", "d", "e"],
        ph=["X", "X", "M", "s", "X"],
        extra=["1", "2", "3", "4", "5"],
    )
    kept = lean(pa.table(table))
    assert kept.column("name").to_pylist() == ["b", "c", "e"]
    assert kept.column("extra").to_pylist() == [None, None, "5"]
