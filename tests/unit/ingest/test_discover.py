"""Which files a run is made of."""

from __future__ import annotations

import io
import json
import os
import socket
import zipfile
from pathlib import Path

import fsspec
import pytest
from builders_identity import trace_text
from builders_trace import write

from rankscope.ingest.discover import discover, facts_file, is_store, spool_stdin
from rankscope.store.errors import UsageError


def labels(run: str | list[str], **options: str) -> list[str]:
    return [s.label for s in discover(run, **options) if s.skipped is None]  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    for name in ("rank10.json", "rank2.json.gz", "iteration_1/rank0.json"):
        write(folder / name, trace_text())
    return folder


def test_directory_is_walked_and_sorted_naturally(run: Path) -> None:
    assert labels(str(run)) == ["iteration_1/rank0.json", "rank2.json.gz", "rank10.json"]


def test_one_file_carries_its_size_and_time(run: Path) -> None:
    (one,) = discover(str(run / "rank10.json"))
    info = (run / "rank10.json").stat()
    assert (one.rel, one.size, one.mtime_ns, one.is_named) == (
        "rank10.json",
        info.st_size,
        info.st_mtime_ns,
        True,
    )


def test_several_paths_are_relative_to_their_common_folder_in_any_order(run: Path) -> None:
    paths = [str(run / "iteration_1/rank0.json"), str(run / "rank10.json")]
    assert labels(paths) == labels(paths[::-1]) == ["iteration_1/rank0.json", "rank10.json"]


def test_a_file_named_twice_or_linked_is_one_source(run: Path) -> None:
    (run / "latest").symlink_to(run / "iteration_1")
    (run / "link.json").symlink_to(run / "rank10.json")
    assert labels(str(run)) == ["iteration_1/rank0.json", "rank2.json.gz", "rank10.json"]
    assert labels([str(run / "rank10.json"), str(run)]) == [
        "iteration_1/rank0.json",
        "rank2.json.gz",
        "rank10.json",
    ]


def test_link_loops_sockets_and_dead_links_do_no_harm(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "iteration_1" / "loop").symlink_to(run)
    (run / "dead.json").symlink_to(run / "nowhere.json")
    monkeypatch.chdir(run)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("rank7.json")
        assert labels(str(run)) == ["iteration_1/rank0.json", "rank2.json.gz", "rank10.json"]
        with pytest.raises(UsageError, match="neither a file nor a directory"):
            discover(str(run / "rank7.json"))


def test_folder_that_cannot_be_listed_is_named_and_the_rest_is_found(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.listdir

    def listdir(path: str) -> list[str]:
        if str(path).endswith("iteration_1"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    skipped = [s for s in discover(str(run)) if s.skipped]
    assert [(s.rel, s.skipped) for s in skipped] == [
        ("iteration_1", "the folder cannot be listed (Permission denied)")
    ]
    assert labels(str(run)) == ["rank2.json.gz", "rank10.json"]


def test_names_that_cannot_be_traces_are_left_out(run: Path) -> None:
    for name in (
        "train.py",
        "model.pt",
        "run.toml",
        "log.txt",
        "x.csv",
        "report.html",
        "a.parquet",
        "stats.pickle",
    ):
        write(run / name, "x")
    for name in (".hidden.json", ".cache/rank5.json", "__pycache__/rank5.json", "truth.json"):
        write(run / name, trace_text())
    assert labels(str(run)) == ["iteration_1/rank0.json", "rank2.json.gz", "rank10.json"]


def test_recordings_of_other_tools_are_named_as_skipped(run: Path) -> None:
    write(run / "rank0_profile.nsys-rep", "x")
    skipped = [s for s in discover(str(run)) if s.skipped]
    assert [(s.rel, s.skipped) for s in skipped] == [
        ("rank0_profile.nsys-rep", ".nsys-rep files are not read")
    ]


def test_nccl_dumps_without_ending_are_candidates(run: Path) -> None:
    write(run / "nccl_trace_rank_0", "x")
    assert "nccl_trace_rank_0" in labels(str(run))


def test_run_stores_inside_are_left_out(run: Path) -> None:
    write(run / "store" / "manifest.json", json.dumps({"format": "rankscope-store"}))
    write(run / "store" / "rank=0" / "x.json", "{}")
    write(run / "old.rankscope" / "x.json", "{}")
    write(run / "half" / "_receipts" / "x.json", "{}")
    write(run / "model" / "manifest.json", json.dumps({"other": 1}))
    write(run / "model" / "rank3.json", trace_text())
    assert labels(str(run)) == ["iteration_1/rank0.json", "model/rank3.json", "rank2.json.gz", "rank10.json"]
    assert is_store(str(run / "store"))
    assert not is_store(str(run / "model"))
    assert not is_store(str(run))
    assert not is_store(str(run / "nowhere"))


def test_glob_finds_files_and_walks_folders(run: Path) -> None:
    assert labels(f"{run}/rank*") == ["rank2.json.gz", "rank10.json"]
    assert labels(f"{run}/**/*.json") == ["iteration_1/rank0.json", "rank10.json"]
    assert labels(f"{run}/iter*") == ["iteration_1/rank0.json"]


def test_existing_path_that_looks_like_a_glob_is_a_path(tmp_path: Path) -> None:
    write(tmp_path / "rank[0].json", trace_text())
    write(tmp_path / "rank0.json", trace_text())
    assert labels(str(tmp_path / "rank[0].json")) == ["rank[0].json"]


def test_missing_path_names_the_nearest_existing_one(run: Path) -> None:
    with pytest.raises(UsageError) as error:
        discover(str(run / "rank_10.json"))
    assert error.value.exit_code == 2
    assert error.value.path == str(run / "rank_10.json")
    assert f"Did you mean {run / 'rank10.json'}?" in str(error.value)
    with pytest.raises(UsageError, match="nearest existing folder is"):
        discover("/nonexistent_zq/x/y.json")


def test_nothing_found_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="empty directory"):
        discover(str(tmp_path))
    write(tmp_path / "readme.txt", "x")
    with pytest.raises(UsageError, match="holds no trace file"):
        discover(str(tmp_path))
    with pytest.raises(UsageError, match="matches no file"):
        discover(f"{tmp_path}/*.json")
    with pytest.raises(UsageError, match="no trace was named"):
        discover([])


def test_zip_with_several_files_gives_one_source_each(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        for name in ("r/rank1.json", "r/rank0.json", "readme.txt", "__MACOSX/r/._rank0.json", "r/.hid.json"):
            archive.writestr(name, trace_text())
    with zipfile.ZipFile(tmp_path / "rank9.zip", "w") as archive:
        archive.writestr("whatever.json", trace_text())
    assert labels(str(tmp_path)) == ["rank9.zip", "run.zip!r/rank0.json", "run.zip!r/rank1.json"]


def test_zip_that_is_none_does_not_stop_the_others(tmp_path: Path) -> None:
    write(tmp_path / "bad.zip", "no zip at all")
    write(tmp_path / "rank0.json", trace_text())
    assert "rank0.json" in labels(str(tmp_path))


def test_memory_urls_of_files_folders_and_globs() -> None:
    files = fsspec.filesystem("memory")
    for name in ("rank0.json", "sub/rank1.json", "st/manifest.json", "st/rank2.json", ".h/rank3.json"):
        files.pipe(
            f"/disc/{name}", b'{"format": "rankscope-store"}' if "manifest" in name else trace_text().encode()
        )
    assert labels("memory://disc") == ["rank0.json", "sub/rank1.json"]
    assert labels("memory://disc/*.json") == ["rank0.json"]
    (one,) = discover("memory://disc/rank0.json")
    assert (one.path, one.rel, one.size) == ("memory:///disc/rank0.json", "rank0.json", len(trace_text()))
    assert is_store("memory://disc/st")
    with pytest.raises(UsageError, match=r"Did you mean .*rank0.json"):
        discover("memory://disc/rnk0.json")
    with pytest.raises(UsageError, match="matches no file"):
        discover("memory://disc/*.zst")


def test_local_and_remote_together_keep_their_names_apart(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe("/both/rank0.json", trace_text().encode())
    write(tmp_path / "rank0.json", trace_text())
    assert labels(["memory://both", str(tmp_path)]) == ["file/rank0.json", "memory/rank0.json"]


def test_standard_input_is_spooled_first(tmp_path: Path) -> None:
    path = spool_stdin(str(tmp_path), io.BytesIO(trace_text().encode()))
    (one,) = discover("-", stdin=path)
    assert (one.path, one.rel) == (path, "stdin")
    with pytest.raises(UsageError, match="empty"):
        spool_stdin(str(tmp_path), io.BytesIO(b""))
    with pytest.raises(UsageError, match="standard input"):
        discover("-")


def test_facts_file_beside_the_traces_is_found(run: Path, tmp_path: Path) -> None:
    assert facts_file(str(run), discover(str(run))) is None
    deep = write(run / "iteration_1" / "run.toml", "tp = 1")
    assert facts_file(str(run), discover(str(run))) == str(deep)
    near = write(run / "run.toml", "tp = 1")
    assert facts_file(str(run), discover(str(run))) == str(near)
    assert facts_file(str(run / "rank10.json"), discover(str(run / "rank10.json"))) == str(near)
    other = tmp_path / "other"
    write(other / "rank0.json", trace_text())
    write(other / "run.toml", "tp = 2")
    both = [str(run), str(other)]
    with pytest.raises(UsageError, match="two facts files"):
        facts_file(both, discover(both))


def test_relative_paths_work(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    assert labels(".") == labels(str(run))
    assert labels("rank10.json") == ["rank10.json"]
    assert labels("../run/iteration_1") == ["rank0.json"]
    write(run / "run.toml", "tp = 1")
    assert facts_file("rank10.json", discover("rank10.json")) == "run.toml"
