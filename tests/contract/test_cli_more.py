"""The command line under misuse: every option, every format, pipes, closed streams, caches and broken stores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders_command as build
import pytest
from builders_command import KNOWN, PARTS, command, parts, rows, trace
from builders_trace import write

TABLES = ("summary", "breakdown", "gaps", "kernels", "info")
N_STEPS = 6


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, six steps of 1 ms each."""
    folder = tmp_path_factory.mktemp("run")
    for rank in (0, 1):
        write(folder / f"rank{rank}.json", trace(rank, 2, found=_steps()))
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path / "cache"))


def _steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for step in range(N_STEPS):
        at = step * 1000
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1}
        found.append(mark | {"ts": at + 50, "dur": 950})
        for i, event in enumerate(build.events(at)):
            event["args"]["correlation"] = step * 10 + i
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
            call |= {"ts": at + 60 + 10 * i, "dur": 5, "args": {"correlation": step * 10 + i}}
            found += [event, call]
    return found


def _process(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "rankscope.cli.main", *map(str, args)]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60, env=os.environ | env
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_table_comes_in_every_format_to_the_screen_and_to_a_file(
    run: Path, tmp_path: Path, name: str
) -> None:
    import pyarrow.parquet as pq

    for shape in ("table", "json", "csv", "markdown"):
        ran = command(name, run, "--format", shape)
        assert ran.code == 0
        file = tmp_path / f"out.{shape}"
        written = command(name, run, "--format", shape, "-o", file)
        assert (written.code, written.out) == (0, "")
        assert file.read_text() == ran.out
    found = json.loads(command(name, run, "--format", "json").out)
    assert command(name, run, "-o", tmp_path / "t.parquet").code == 0
    assert pq.read_table(tmp_path / "t.parquet").num_rows == len(found)
    assert command(name, run, "--format", "parquet").code == 2
    assert command(name, run, "-o", tmp_path / "no" / "such.json").code == 2


@pytest.mark.parametrize("name", [*TABLES, "ingest"])
@pytest.mark.parametrize("args", [["--frobnicate"], ["--format", "xml"], []])
def test_a_wrong_option_or_a_missing_run_is_two_lines_with_exit_2(
    run: Path, name: str, args: list[str]
) -> None:
    ran = command(name, *([run] if args else []), *args)
    assert (ran.code, ran.out) == (2, "")
    assert 1 <= len(ran.err.splitlines()) <= 2


WRONG = [
    ["--steps", "2-"],
    ["--steps", "x"],
    ["--steps", "5-2"],
    ["--steps", "0-99999999999"],
    ["--steps", "99"],
    ["--steps", ""],
    ["--ranks", "0-"],
    ["--ranks", "7"],
    ["--ranks", ""],
    ["--window", "5"],
    ["--world", "nope"],
    ["--jobs", "0"],
    ["--step-regex", "("],
    ["--by", "rnak"],
    ["--causes", "some"],
    ["--rules", "/no/such.toml"],
    ["--rules", "/"],
    ["--set", "tp"],
    ["--set", "tq=2"],
    ["--set", "tp=-1"],
    ["--set", "order=tp-zz"],
    ["--kernel-gap-us", "inf"],
    ["--kernel-gap-us", "nan"],
    ["--kernel-gap-us", "-1"],
    ["--sync-slack-us", "1e300"],
]


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_a_wrong_value_is_a_usage_error_that_names_it(run: Path, args: list[str]) -> None:
    ran = command("breakdown", run, *args)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("steady", [1, 2, 3, 4]),
        ("all", [0, 1, 2, 3, 4, 5]),
        ("3", [3]),
        ("0,2-3", [0, 2, 3]),
        ("none", [None]),
    ],
)
def test_steps_are_chosen_by_word_number_and_range(run: Path, steps: str, expected: list[int | None]) -> None:
    ran = command("breakdown", run, "--by", "step", "--steps", steps, "--format", "json")
    found = json.loads(ran.out)
    assert [r["step"] for r in found] == expected
    assert all(sum(r[p] for p in PARTS) == r["wall_ns"] for r in found)


@pytest.mark.parametrize(
    "by", ["rank", "device", "step", "window", "world", "host", "coords", "phase", "run"]
)
def test_sums_over_any_key_add_up_to_the_same_total(run: Path, by: str) -> None:
    found = json.loads(command("breakdown", run, "--by", by, "--format", "json").out)
    assert sum(r["n"] for r in found) == 2 * (N_STEPS - 2)
    assert sum(r["wall_ns"] for r in found) == 2 * (N_STEPS - 2) * 1_000_000
    assert sum(r["compute_only_ns"] for r in found) == 2 * (N_STEPS - 2) * KNOWN[0]
    assert command("breakdown", run, "--by", by, "--mean").code == 0


def test_a_regular_expression_gives_the_steps_and_no_match_falls_back(run: Path) -> None:
    regex = ("--step-regex", r"ProfilerStep#(\d+)")
    found = json.loads(
        command("breakdown", run, "--by", "step", "--steps", "all", "--format", "json", *regex).out
    )
    assert [r["step"] for r in found] == list(range(N_STEPS))
    assert command("breakdown", run, "--step-regex", "no such name").code == 0


def test_strict_fails_on_warnings_and_never_on_notes(tmp_path: Path) -> None:
    alone = write(tmp_path / "whole" / "a.json", trace(None))
    assert command("breakdown", alone, "--strict").code == 0
    lacking = write(tmp_path / "lacking" / "rank0.json", trace(0, 4))
    ran = command("breakdown", lacking, "--strict", "--format", "json")
    assert ran.code == 4
    assert json.loads(ran.out)
    assert "rank_missing" in ran.err


def test_user_rules_go_before_the_shipped_ones_and_are_shown(run: Path, tmp_path: Path) -> None:
    rules = write(tmp_path / "r.toml", '[[rule]]\nid = "mine"\npattern = "^gemm$"\nclass = "comm"\n')
    found = json.loads(command("kernels", run, "--rules", rules, "--format", "json").out)
    assert {r["class"] for r in found if r["name"] == "gemm"} == {"comm"}
    assert "mine" in next(r["rule"] for r in found if r["name"] == "gemm")
    for text in ("[[rule\n", "[[rule]]\nfoo = 1\n", '[[rule]]\nid = "x"\npattern = "("\nclass = "comm"\n'):
        assert command("kernels", run, "--rules", write(tmp_path / "bad.toml", text)).code == 2


def test_a_closed_pipe_is_silent_and_a_full_disk_is_not(run: Path) -> None:
    rankscope = (
        f"{sys.executable} -m rankscope.cli.main breakdown {run} --by rank,step --steps all --format csv"
    )
    head = subprocess.run(f"{rankscope} | head -1", shell=True, capture_output=True, text=True, check=False)
    assert head.stdout.startswith("rank,")
    assert "rror" not in head.stderr
    full = subprocess.run(f"{rankscope} > /dev/full", shell=True, capture_output=True, text=True, check=False)
    assert full.returncode == 3
    assert "No space left" in full.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_closed_streams_are_no_defect(run: Path, closed: str) -> None:
    words = f"{sys.executable} -m rankscope.cli.main breakdown {run} {closed}"
    ran = subprocess.run(words, shell=True, capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr + ran.stdout
    assert "error" not in ran.stderr


def test_a_cache_that_cannot_be_written_is_said_and_does_no_harm(run: Path, tmp_path: Path) -> None:
    blocked = write(tmp_path / "file", "x")
    ran = _process("breakdown", run, "--format", "json", RANKSCOPE_CACHE=str(blocked))
    assert ran.returncode == 0
    assert "cannot be written" in ran.stderr
    assert len(json.loads(ran.stdout)) == 2


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", trace())
    assert parts(file) == [(0, 0, KNOWN)]
    write(file, trace(found=build.events()[:1]))
    os.utime(file, ns=(1, 5))
    assert parts(file) == [(0, 0, (100_000, 0, 0, 0, 0))]


def test_several_processes_may_fill_one_cache_at_once(run: Path) -> None:
    words = [sys.executable, "-m", "rankscope.cli.main", "breakdown", str(run), "--format", "json"]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    answers = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(answers) == 1


def _part(store: Path) -> Path:
    return min((store / "activities").rglob("*.parquet"))


def _renamed(store: Path) -> None:
    manifest = store / "manifest.json"
    manifest.write_text(manifest.read_text().replace("activities/", "../other/activities/"))


def _version(store: Path) -> None:
    manifest = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 999}))


BREAK: dict[str, Callable[[Path], object]] = {
    "manifest missing": lambda s: (s / "manifest.json").unlink(),
    "manifest garbage": lambda s: (s / "manifest.json").write_text("{garbage"),
    "manifest of something else": lambda s: (s / "manifest.json").write_text("[]"),
    "part missing": lambda s: _part(s).unlink(),
    "part cut": lambda s: _part(s).write_bytes(_part(s).read_bytes()[:50]),
    "part outside": _renamed,
    "other version": _version,
}


@pytest.mark.parametrize("damage", BREAK)
def test_a_broken_store_is_one_clear_error(run: Path, tmp_path: Path, damage: str) -> None:
    store = tmp_path / "s.rankscope"
    assert command("ingest", run, "-o", store).code == 0
    BREAK[damage](store)
    for name in ("breakdown", "info"):
        ran = command(name, store)
        assert (ran.code, ran.out) == (3, ""), damage
        assert len(ran.err.splitlines()) <= 2


def test_a_moved_store_gives_the_same_bytes_and_foreign_folders_are_left_alone(
    run: Path, tmp_path: Path
) -> None:
    store = tmp_path / "s.rankscope"
    assert command("ingest", run, "-o", store).code == 0
    shutil.move(store, tmp_path / "moved")
    assert rows(tmp_path / "moved") == rows(run)
    foreign = write(tmp_path / "foreign" / "precious.txt", "x").parent
    assert command("ingest", run, "-o", foreign).code == 2
    assert command("ingest", run, "-o", run).code == 2
    assert [p.name for p in foreign.iterdir()] == ["precious.txt"]
    assert sorted(p.name for p in run.iterdir()) == ["rank0.json", "rank1.json"]


def test_standard_input_may_be_packed_and_must_not_be_empty() -> None:
    import gzip

    packed = gzip.compress(json.dumps(trace()).encode())
    words = [
        sys.executable,
        "-m",
        "rankscope.cli.main",
        "breakdown",
        "-",
        "--steps",
        "none",
        "--format",
        "json",
    ]
    ran = subprocess.run(words, input=packed, capture_output=True, check=False)
    assert [tuple(r[p] for p in PARTS) for r in json.loads(ran.stdout)] == [KNOWN]
    assert subprocess.run(words, input=b"", capture_output=True, check=False).returncode == 2
    assert subprocess.run(words, input=b"hello", capture_output=True, check=False).returncode == 3


def test_storage_that_cannot_be_reached_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankscope.cli import main

    kind = type("NoCredentialsError", (Exception,), {"__module__": "botocore.exceptions"})

    def fail(*_: object, **__: object) -> None:
        raise kind("Unable to locate credentials")

    import rankscope

    monkeypatch.setitem(vars(rankscope), "open", fail)
    assert main.run(["breakdown", "s3://bucket/run"]) == 3
