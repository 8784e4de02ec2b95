"""The breakdown against a count of single ticks that shares no code with it."""

from __future__ import annotations

from builders_analysis import Act, Program, programs
from hypothesis import given, settings

from rankscope.analysis.breakdown import breakdown


def owner(running: list[Act]) -> list[Act]:
    """The communications that end last among those in flight."""
    last = max(a.end for a in running)
    return [a for a in running if a.end == last]


def tick_columns(acts: list[Act], t: int) -> list[str]:
    """The columns tick t counts in."""
    here = [a for a in acts if a.valid and a.start <= t < a.end]
    classes = {a.cls for a in here}
    columns = [
        {"compute": "compute_ns", "comm": "communication_ns", "memcpy": "memcpy_ns"}[c] for c in classes
    ]
    if classes >= {"compute", "comm"}:
        columns.append("overlap_ns")
    elif "compute" in classes:
        columns.append("compute_only_ns")
    elif "comm" in classes:
        owners = owner([a for a in here if a.cls == "comm"])
        is_alone = all(a.group_size == 1 for a in owners)
        columns += ["exposed_comm_ns", "transfer_ns" if is_alone else "unsplit_comm_ns"]
    elif "memcpy" in classes:
        columns.append("exposed_memcpy_ns")
    else:
        columns += ["idle_ns", "unattributed_ns", "bubble_min_ns"]
    return columns


def expected(program: Program) -> list[dict[str, int]]:
    rows = []
    for low, high in zip(program.cuts, program.cuts[1:], strict=False):
        row: dict[str, int] = {"wall_ns": high - low}
        for t in range(low, high):
            for column in tick_columns(list(program.acts), t):
                row[column] = row.get(column, 0) + 1
        row["bubble_max_ns"] = row.get("bubble_min_ns", 0) + row.get("unsplit_comm_ns", 0)
        rows.append(row)
    return rows


@settings(max_examples=300, deadline=None)
@given(programs())
def test_every_column_is_the_number_of_its_ticks(program: Program) -> None:
    table = breakdown(program.activities(), program.windows())
    for row, wanted in zip(table.to_pylist(), expected(program), strict=True):
        got = {c: v for c, v in row.items() if c.endswith("_ns") and c != "bubble_ns" and v}
        assert got == {c: v for c, v in wanted.items() if v}
        if wanted.get("unsplit_comm_ns"):
            assert row["bubble_ns"] is None
        else:
            assert row["bubble_ns"] == row["bubble_min_ns"] == row["bubble_max_ns"]
