"""Generated pages say what the code says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _generator():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current() -> None:
    stale = [p.name for p, text in _generator().pages().items() if not p.exists() or p.read_text() != text]
    assert not stale, f"run `python docs/generate.py`: {stale} differ from the code"


def test_every_column_says_what_it_means() -> None:
    from rankscope.store import schema

    for table in (*schema.STORED.values(), schema.BREAKDOWN, schema.RAW_EVENTS):
        assert table.meaning
        names = [c.name for c in table.columns]
        assert len(names) == len(set(names)), table.name
        assert all(c.meaning.strip() for c in table.columns), table.name


def test_the_screen_in_the_readme_is_what_the_command_prints() -> None:
    run = "sample_traces/sim_slow_rank"
    (shown,) = re.findall(rf"\$ rankscope {run}\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    command = [sys.executable, "-m", "rankscope.cli.main", run]
    env = os.environ | {"PYTHONIOENCODING": "utf-8"}
    ran = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert ran.stdout == shown
