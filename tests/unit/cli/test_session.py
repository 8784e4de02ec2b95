"""Opening a run for a command: what reaches the facade, the quality line, progress."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import builders_cli as build
import pytest

import rankscope
from rankscope.cli import session
from rankscope.cli.ingest import report
from rankscope.cli.options import Cut, Output, Source, Thresholds
from rankscope.queries import Query
from rankscope.store.errors import QualityFailure, UsageError


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    given: dict[str, Any] = {}

    def opened(run: list[str], **options: Any) -> build.FakeRun:
        given.update(options, run=run)
        return build.FakeRun()

    monkeypatch.setitem(vars(rankscope), "open", opened)
    return given


def test_options_reach_the_facade_under_its_names(seen: dict[str, Any], tmp_path: Path) -> None:
    rules = tmp_path / "r.toml"
    rules.write_text("")
    source = Source(run=["a", "b"], rules=[str(rules)], set_=["tp=2"], step_regex="S", no_cache=True, jobs=3)
    cut = Cut(steps="3-4", ranks="0,2", window="1", world="w", as_recorded=True)
    with session.opened(source, cut, Output(), Thresholds(kernel_gap_us=5, sync_slack_us=1.5)):
        pass
    assert seen == {
        "run": ["a", "b"],
        "rules": [str(rules)],
        "facts": ["tp=2"],
        "step_regex": "S",
        "cache": False,
        "jobs": 3,
        "progress": None,
        "steps": [3, 4],
        "ranks": [0, 2],
        "windows": [1],
        "world": "w",
        "as_recorded": True,
        "kernel_gap_ns": 5_000,
        "sync_slack_ns": 1_500,
    }


def test_defaults_of_the_thresholds_are_the_facade_s() -> None:
    chosen, limits = Query(), Thresholds()
    assert round(limits.kernel_gap_us * 1000) == chosen.kernel_gap_ns
    assert round(limits.sync_slack_us * 1000) == chosen.sync_slack_ns


def test_a_rule_file_that_cannot_be_read_is_a_usage_error(seen: dict[str, Any], tmp_path: Path) -> None:
    source = Source(run=["a"], rules=[str(tmp_path / "none.toml")])
    with pytest.raises(UsageError, match="rules cannot be read"), session.opened(source, Cut(), Output()):
        pass


def test_standard_input_from_a_terminal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(UsageError, match="terminal"):
        session.check_source(Source(run=["-"]))


def test_the_quality_line_counts_by_severity_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("e", "error", 0), ("w", "warning", 0), ("v", "warning", 1), ("i", "info", None)]
    session.say_quality(build.quality_table(*rows), "traces/")
    session.say_quality(build.quality_table(), "traces/")
    assert capsys.readouterr().err.splitlines() == [
        "quality: 1 error, 2 warnings, 1 note - see rankscope info traces/",
        "quality: nothing to report",
    ]


def test_strict_names_the_codes_that_failed_it() -> None:
    table = build.quality_table(("b", "warning", 0), ("a", "error", 0), ("b", "warning", 1), ("i", "info", 0))
    session.check_strict(table, strict=False)
    with pytest.raises(QualityFailure, match=r"3 quality warnings or errors: a, b\n") as failure:
        session.check_strict(table, strict=True)
    assert failure.value.exit_code == 4


def test_a_run_is_named_as_it_would_be_typed_again() -> None:
    assert session.run_text(Source(run=["my traces", "b"])) == "'my traces' b"
    assert session.run_text(Source(run=["-"])) == "RUN"
    assert session.run_text(Source(run=["x" * 100])) == "RUN"


def test_progress_is_silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with session.progress() as callback:
        assert callback is None
    assert capsys.readouterr().err == ""


def test_progress_redraws_one_line_of_a_terminal_and_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with session.progress() as callback:
        assert callback is not None
        callback(1, 4, "rank0.json\x1b[2J")
    drawn = terminal.getvalue().split("\r")
    assert drawn[1].startswith("reading ...")
    assert drawn[2].startswith("reading [#####               ] 1/4 rank0.json?[2J")
    assert drawn[3] == session.ERASE_LINE
    assert len(session.progress_line(999, 1000, "x" * 300)) <= 79


def test_ingest_says_what_it_wrote_and_the_next_command() -> None:
    class Store:
        def ranks(self) -> list[int]:
            return [0, 1]

    sources = build.sources_table(
        [build.source_row(0), build.source_row(1), build.source_row(2, status="empty", n_events=0)]
    )
    assert report(Store(), sources, "out dir") == [  # type: ignore[arg-type]
        "wrote out dir",
        "  3 files (2 whole, 1 empty), 200 events, ranks 0-1",
        "next: rankscope 'out dir'",
    ]
