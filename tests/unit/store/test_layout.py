"""Names in a store: stable, and unable to lead out of it."""

from __future__ import annotations

import pytest

from rankscope.store import layout


def test_a_part_lies_in_the_folder_of_its_rank() -> None:
    source = "0123456789ab"
    assert layout.part_path("events", 3, source) == f"events/rank=3/{source}.parquet"
    assert layout.part_path("events", None, source) == f"events/rank={layout.NO_RANK}/{source}.parquet"


@pytest.mark.parametrize("bad", ["../../etc/passwd", "", "0123456789ABCDEF", "0" * 11, "0" * 65, None, 5])
def test_what_is_no_source_id_names_no_file(bad: object) -> None:
    assert not layout.is_source_id(bad)
    with pytest.raises(ValueError, match="source id"):
        layout.part_path("events", 0, bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="source id"):
        layout.receipt_path(bad)  # type: ignore[arg-type]


def test_tables_are_either_partitioned_or_single() -> None:
    with pytest.raises(ValueError, match="not partitioned"):
        layout.part_path("sources", 0, "0123456789ab")
    with pytest.raises(ValueError, match="partitioned"):
        layout.single_path("events")
    assert layout.single_path("quality") == "quality.parquet"
    assert {"manifest.json", "_receipts", "events", "sources.parquet"} <= layout.own_entries()
