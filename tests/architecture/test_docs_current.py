"""Generated pages say what the code says."""

from __future__ import annotations

import importlib.util
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


def test_every_public_analysis_has_a_docstring_with_its_source() -> None:
    from rankscope.analysis import catalog

    for name, function in catalog.functions().items():
        doc = function.__doc__ or ""
        assert "Returns:" in doc and "Source:" in doc, f"{name}: docstring lacks Returns or Source"
