"""`simulate`: the simulator's own options, typed, and what the command says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.cli import main as cli
from rankscope.cli import simulate
from rankscope.simulate.options import OPTIONS


def test_every_option_of_the_simulator_is_an_option_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert set(OPTIONS) >= simulate.FLAGS | simulate.REPEATED | simulate.TEXTS | simulate.FRACTIONS
    assert cli.run(["simulate", "--help"]) == 0
    out = capsys.readouterr().out
    for name in OPTIONS:
        assert f"--{name.replace('_', '-')} " in out


def test_it_writes_traces_and_truth_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sim"
    size = [
        "--layers",
        "2",
        "--hidden",
        "128",
        "--heads",
        "2",
        "--kv-heads",
        "2",
        "--ffn",
        "256",
        "--seq",
        "64",
        "--vocab",
        "256",
    ]
    command = [
        "simulate",
        "-o",
        str(out),
        "--dp",
        "2",
        "--steps",
        "2",
        *size,
        "--slow-rank",
        "1:2",
        "--compress",
        "plain",
    ]
    assert cli.run(command) == 0
    shown, err = capsys.readouterr()
    lines = shown.splitlines()
    assert err == ""
    assert lines[0] == f"wrote {out}: 2 traces and truth.json"
    assert lines[1].startswith("  2 ranks, 2 steps of ")
    assert lines[2].startswith("  injected slow rank on rank 1")
    assert lines[-1] == f"next: rankscope {out}"
    assert sorted(p.name for p in out.iterdir()) == ["rank0.json", "rank1.json", "truth.json"]
    assert json.loads((out / "rank0.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    "wrong", [["--tp", "x"], ["--preset", "none"], ["--slow-rank", "9:2"], ["--nonsense"]]
)
def test_a_wrong_option_exits_2(wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", "-o", str(tmp_path / "x"), *wrong]) == 2
    assert capsys.readouterr().err.startswith("rankscope: error: ")
