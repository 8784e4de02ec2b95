"""The command line as a whole: exit codes, what goes to which stream, start-up, help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import builders_cli as build
import pytest

import rankscope
from rankscope.cli import main as cli
from rankscope.store.errors import ClosureError, EmptyRun, UnreadableFile

COMMANDS = ("summary", "breakdown", "gaps", "kernels", "info", "ingest", "simulate")
LATER = (
    "collect",
    "diff",
    "report",
    "hang",
    "collectives",
    "pipeline",
    "stragglers",
    "critical-path",
    "whatif",
)
HEAVY = ("pandas", "pyarrow", "numpy", "holoviews", "bokeh", "rich", "numba", "fsspec")
BIG = 2**53 + 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> build.FakeRun:
    run = build.FakeRun()
    monkeypatch.setitem(vars(rankscope), "open", lambda *_a, **_k: run)
    return run


def _rankscope(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rankscope.cli.main", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
        timeout=60,
    )


def test_help_names_exactly_the_commands_that_exist_under_their_headings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["--help"]) == 0
    out = capsys.readouterr().out
    headings = [out.index(h) for h in ("Start here", "Look closer", "The data", "Automation")]
    assert headings == sorted(headings)
    assert all(f"\n  {c} " in out for c in COMMANDS)
    assert not any(f"\n  {c} " in out for c in LATER)
    assert all("?" in line for line in out.splitlines() if line.strip().split(" ")[0] in COMMANDS)
    assert max(map(len, out.splitlines())) <= 80


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 0
    assert "Start here" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert command in out
    assert err == ""


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["breakdwn"], ["breakdown"], ["gaps", "--help"], ["gaps", "--no"]]
)
def test_help_version_and_usage_errors_import_nothing_heavy(args: list[str]) -> None:
    code = (
        "import sys\nfrom rankscope.cli.main import run\n"
        f"run({args!r})\nprint('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.rstrip().endswith("HEAVY []"), out


def test_help_takes_less_than_150_ms_of_cpu() -> None:
    times = []
    for _ in range(3):
        before = os.times()
        assert _rankscope("--help").returncode == 0
        after = os.times()
        times.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    assert min(times) < 0.150, times


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"rankscope {rankscope.__version__}\n"


def test_an_unknown_word_is_a_usage_error_that_names_the_nearest_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["breakdwn", "x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "'breakdown'" in err
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    "args",
    [
        ["gaps"],
        ["gaps", "x", "--nonsense"],
        ["breakdown", "x", "--format", "xml"],
        ["breakdown", "x", "--ranks", "a"],
        ["breakdown", "x", "--steps", "last"],
        ["breakdown", "x", "--format", "parquet"],
        ["kernels", "x", "--top", "many"],
        ["x-no-such-command"],
    ],
)
def test_a_wrong_command_line_exits_2_with_a_message_and_no_traceback(
    args: list[str], fake: build.FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rankscope: error: ")
    assert "Traceback" not in err


def test_a_run_alone_is_its_summary(
    fake: build.FakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([str(tmp_path)]) == 0
    alone = capsys.readouterr()
    assert cli.run(["summary", str(tmp_path)]) == 0
    assert capsys.readouterr() == alone
    assert alone.out.startswith("rankscope: ")


@pytest.mark.parametrize("command", ["summary", "breakdown", "gaps", "kernels", "info"])
def test_json_alone_is_on_stdout_and_the_quality_count_on_stderr(
    command: str, fake: build.FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.quality = build.quality_table(("rank_missing", "warning", None), ("a", "info", 0), ("b", "info", 0))
    assert cli.run([command, "x", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert isinstance(json.loads(out), list)
    assert err == "quality: 1 warning, 2 notes - see rankscope info x\n"


def test_integers_beyond_a_double_are_exact_in_json(
    fake: build.FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.rows = [build.window(wall_ns=BIG, overlap_ratio=float("nan"))]
    assert cli.run(["breakdown", "x", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["wall_ns"] == BIG
    assert row["overlap_ratio"] is None
    assert row["bubble_ns"] is None


@pytest.mark.parametrize("command", ["summary", "breakdown", "gaps", "kernels", "info"])
def test_no_screen_is_wider_than_80_columns(
    command: str, fake: build.FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([command, "x"]) == 0
    out, _ = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert " bubble " not in out


@pytest.mark.parametrize(("severity", "code"), [("info", 0), ("warning", 4), ("error", 4)])
def test_strict_fails_on_warnings_and_errors_and_never_on_notes(
    severity: str, code: int, fake: build.FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.quality = build.quality_table(("some_code", severity, 0))
    assert cli.run(["gaps", "x", "--format", "json", "--strict"]) == code
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert ("some_code" in err) == bool(code)


def _raising(error: BaseException) -> Callable[..., object]:
    def fail(*_a: object, **_k: object) -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EmptyRun("nothing to analyse", path="x", hint="Give a trace."), 3),
        (UnreadableFile("permission denied", path="x"), 3),
        (PermissionError(13, "Permission denied", "x"), 3),
        (ClosureError("the parts do not sum"), 70),
        (ZeroDivisionError("division by zero"), 70),
        (BrokenPipeError(32, "Broken pipe"), 0),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_kind_of_error_has_its_exit_code_and_at_most_two_lines(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(vars(rankscope), "open", _raising(error))
    assert cli.run(["gaps", "x"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) <= 2
    assert "Traceback" not in err
    assert ("--debug" in err) == (code == 70)


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(vars(rankscope), "open", _raising(ZeroDivisionError("x")))
    assert cli.run(["gaps", "x", "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_closed_pipe_is_silent() -> None:
    code = "import sys\nfrom rankscope.cli.main import main\nmain(['breakdown', '--explain'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, b"")


def test_a_path_that_does_not_exist_exits_2() -> None:
    done = _rankscope("breakdown", "/no/such/place")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "/no/such/place" in done.stderr
    assert "Traceback" not in done.stderr


def test_explain_prints_the_words_of_the_schema_and_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    from rankscope.analysis import catalog
    from rankscope.store.schema import BREAKDOWN

    for table in ("breakdown", "gaps", "kernels"):
        assert cli.run([table, "--explain"]) == 0
        out = capsys.readouterr().out
        assert catalog.ENTRIES[table].formula in out
        for column in BREAKDOWN.columns if table == "breakdown" else ():
            assert " ".join(f"{column.name}: {column.meaning}".split()) in " ".join(out.split())


def test_shell_completion_completes_commands() -> None:
    done = _rankscope(_RANKSCOPE_COMPLETE="complete_bash", COMP_WORDS="rankscope br", COMP_CWORD="1")
    assert done.stdout.split() == ["breakdown"]
    # Typer otherwise asks which shell started the test, and `make` starts `sh`.
    named = _rankscope("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "rankscope" in named.stdout


@pytest.mark.parametrize("command", ["summary", "breakdown", "gaps", "kernels", "info"])
@pytest.mark.parametrize("shape", ["table", "json"])
def test_no_command_imports_pandas_datasets_or_holoviews(command: str, shape: str) -> None:
    code = (
        "import atexit, sys\nsys.path.insert(0, 'tests')\n"
        "from rankscope.store.keep_out import keep_out\nkeep_out('pandas')\nimport builders_cli, rankscope\n"
        "from rankscope.cli.main import main\nrankscope.open = lambda *a, **k: builders_cli.FakeRun()\n"
        "bad = ('pandas', 'pyarrow.dataset', 'holoviews')\n"
        "atexit.register(lambda: print('BAD', [m for m in bad if m in sys.modules]))\n"
        f"main(['{command}', 'x', '--format', '{shape}'])\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.rstrip().endswith("BAD []")
