"""A row whose parts do not add up is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from builders_analysis import act, activities, window, windows

from rankscope.analysis.breakdown import breakdown
from rankscope.analysis.closure import check_closure
from rankscope.store.errors import ClosureError

COLUMNS = (
    "wall_ns",
    "overlap_ns",
    "transfer_ns",
    "tail_ns",
    "bubble_max_ns",
    "graph_gap_ns",
    "communication_ns",
)


@pytest.mark.parametrize("column", COLUMNS)
def test_one_nanosecond_too_many_is_found(column: str) -> None:
    table = breakdown(activities(act("compute", 0, 5), act("comm", 5, 8)), windows(window(0, 10, 3)))
    check_closure(table)
    at = table.column_names.index(column)
    wrong = table.set_column(at, column, pa.array([table.column(column)[0].as_py() + 1]))
    with pytest.raises(ClosureError, match="rank 0, device 0, window 0, step 3") as caught:
        check_closure(wrong)
    assert caught.value.exit_code == 70


def test_a_negative_part_is_found_even_when_sums_close() -> None:
    table = breakdown(activities(act("compute", 0, 5)), windows(window(0, 10)))
    for column, by in (("unattributed_ns", -1 - 5), ("tail_ns", 6)):
        values = [table.column(column)[0].as_py() + by]
        table = table.set_column(table.column_names.index(column), column, pa.array(values))
    with pytest.raises(ClosureError, match="unattributed_ns is not negative"):
        check_closure(table)


def test_no_rows_close() -> None:
    check_closure(breakdown(activities(), windows()))
