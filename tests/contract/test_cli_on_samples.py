"""The commands on the shipped samples, from the files to the screen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.cli import main as cli
from rankscope.store.schema import PARTS

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
CPU, GPU = SAMPLES / "rec_tp_w2", SAMPLES / "sim_pp4_1f1b"
COMMANDS = ("summary", "breakdown", "gaps", "kernels", "info")


@pytest.mark.parametrize("sample", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_screen_fits_80_columns(command: str, sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, str(sample)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert err.startswith("quality: ")
    if command == "summary":
        assert len(lines) <= 30


def test_the_rows_of_the_breakdown_close_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["breakdown", str(GPU), "--by", "rank,step", "--steps", "all", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {r["rank"] for r in rows} == {0, 1, 2, 3}
    for row in rows:
        assert sum(row[p] for p in PARTS) == row["wall_ns"]


def test_a_store_gives_what_its_traces_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "run.rankscope")
    assert cli.run(["ingest", str(CPU), "-o", store]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: rankscope {store}"
    assert cli.run(["breakdown", store, "--format", "json"]) == 0
    from_store = capsys.readouterr().out
    assert cli.run(["breakdown", str(CPU), "--format", "json"]) == 0
    assert capsys.readouterr().out == from_store


def test_no_command_imports_pandas_datasets_or_drawing(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\nfrom rankscope.cli.main import main\n"
        "bad = ('pandas', 'pyarrow.dataset', 'holoviews', 'bokeh', 'rich')\n"
        "atexit.register(lambda: print('BAD', [m for m in bad if m in sys.modules]))\n"
        f"main(['summary', {str(CPU)!r}, '--no-cache', '--jobs', '1'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("BAD []")


def test_a_step_or_rank_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["breakdown", str(CPU), "--steps", "99"]) == 2
    assert cli.run(["breakdown", str(CPU), "--ranks", "99"]) == 2
    assert cli.run(["breakdown", str(CPU), "--by", "nonsense"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_what_is_no_trace_exits_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("hello")
    assert cli.run([str(tmp_path / "x.json")]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) <= 2
