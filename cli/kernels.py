"""`rankscope kernels`: the kernels that take the time, and how each name was classified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import text
from .explain import option as explained
from .options import Cut, Output, Source
from .render import emit, rows_of
from .table import Block, Col, Pair

if TYPE_CHECKING:
    import pyarrow as pa

QUESTION = "Which kernels take the time, and how was each one classified?"
TOP = 15
TITLE = "Kernels and copies by total time; below each: name [rule that gave the class]"
HOST_TITLE = "Host ranges by total time [rule]: no device activity recorded, no GPU times"


@dataclass(frozen=True)
class Top:
    """How many rows."""

    top: Annotated[
        int, typer.Option(metavar="N", min=0, help="Kernels shown on screen, costliest first; 0 shows all.")
    ] = TOP
    explain: Annotated[bool, explained("kernels")] = False


def kernels(source: Source, cut: Cut, shown: Top, output: Output) -> None:
    """Kernels, copies and memsets by name.

    One row per name: class (compute, comm, memcpy) and the rule that decided it, count, times and its share of
    all device time. json, csv and parquet hold every name whatever --top says.
    """
    from .session import opened

    with opened(source, cut, output) as run:
        table = run.kernels_table()
        emit(table, lambda: screen(table, shown.top), output)


def screen(table: pa.Table, top: int) -> list[Block]:
    """The costliest kernels; name and rule stand below the numbers."""
    rows = list(rows_of(table))
    some = rows[:top] if top else rows
    if not some:
        return [Block(title="No kernels: nothing matches the selection.")]
    has_spread = any(r.get("rank_spread_ratio") is not None for r in some)
    columns = [Col("share"), Col("total\nms"), Col("count"), Col("mean\nus"), Col("p50\nus"), Col("p99\nus")]
    columns += [Col("rank\nspread")] if has_spread else []
    columns += [Col("class", right=False)]
    cells = []
    for r in some:
        line = [text.ratio(r["share_ratio"]), text.ms(r["total_ns"]), str(r["count"])]
        line += [text.us(r[c]) for c in ("mean_ns", "p50_ns", "p99_ns")]
        line += [text.ratio(r["rank_spread_ratio"])] if has_spread else []
        cells.append([*line, r["class"] or text.UNKNOWN])
    left = len(rows) - len(some)
    notes = [f"{text.count(left, 'more name')} not shown: --top 0 shows all."] if left else []
    return [
        Block(
            title=HOST_TITLE if some[0].get("timeline") == "host" else TITLE,
            columns=columns,
            rows=cells,
            detail="name [rule]",
            details=[(_named(r),) for r in some],
            notes=notes,
        )
    ]


def _named(row: Mapping[str, Any]) -> Pair:
    return Pair(row["name"] or text.UNKNOWN, f"[{row['rule'] or text.UNKNOWN}]", between="  ")
