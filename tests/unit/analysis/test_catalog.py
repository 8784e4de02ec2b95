"""The catalogue of tables."""

from __future__ import annotations

from rankscope.analysis.catalog import ENTRIES


def test_every_table_has_a_definition_with_arguments_and_source() -> None:
    assert {"breakdown", "gaps", "kernels", "summary"} <= set(ENTRIES)
    for entry in ENTRIES.values():
        assert "Args:" in entry.formula
        assert "Returns:" in entry.formula
        assert "Source:" in entry.formula
        assert entry.columns
        assert entry.inputs
