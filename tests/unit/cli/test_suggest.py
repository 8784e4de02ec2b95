"""What the first word means."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.cli.suggest import looks_like_run, nearest_command, with_default_command

COMMANDS = ("summary", "breakdown", "gaps", "info")
OPTIONS = ("--help", "--version")


def _args(*args: str) -> list[str]:
    return with_default_command(args, commands=COMMANDS, options=OPTIONS, default="summary")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rank0.json").write_text("{}")
    (tmp_path / "rank[1].json").write_text("{}")
    (tmp_path / "gaps").mkdir()
    return tmp_path


@pytest.mark.parametrize("word", ["rank0.json", "rank[1].json", "*.json", "-", "s3://bucket/x", "."])
def test_a_run_alone_means_its_summary(folder: Path, word: str) -> None:
    assert looks_like_run(word)
    assert _args(word, "--strict") == ["summary", word, "--strict"]


def test_a_command_wins_over_a_file_of_its_name(folder: Path) -> None:
    assert _args("gaps", "rank0.json") == ["gaps", "rank0.json"]


@pytest.mark.parametrize("word", ["nothing.json", "*.xyz", "breakdwn", ""])
def test_any_other_word_is_left_for_the_error(folder: Path, word: str) -> None:
    assert not looks_like_run(word)
    assert _args(word) == [word]


def test_options_may_come_before_the_run(folder: Path) -> None:
    assert _args("--format", "json", "rank0.json") == ["summary", "--format", "json", "rank0.json"]
    assert _args("--help") == ["--help"]
    assert _args("--version", "rank0.json") == ["--version", "rank0.json"]
    assert _args("--format", "json", "info", "rank0.json") == ["--format", "json", "info", "rank0.json"]
    assert _args() == []


def test_the_nearest_command_is_named() -> None:
    assert nearest_command("breakdwn", COMMANDS) == "breakdown"
    assert nearest_command("zzz", COMMANDS) in COMMANDS
