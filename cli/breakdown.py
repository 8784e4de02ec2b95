"""`rankscope breakdown`: where every nanosecond went, per rank and device or by any key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import parts, text
from .explain import option as explained
from .options import Cut, Output, Source, Thresholds, words
from .render import emit, rows_of
from .table import Block, Col

if TYPE_CHECKING:
    import pyarrow as pa

QUESTION = "Where did every nanosecond of each rank go, and why was it idle?"
NAMED_KEYS = {"device": "dev", "window": "win"}
TITLES = {
    "device": "Where a window goes on the device: mean ms and share",
    "host": "Host times (no device activity recorded), no GPU times: mean ms and share",
}
Row = Mapping[str, Any]


class Causes(StrEnum):
    """How finely idle time is split."""

    STANDARD = "standard"
    FULL = "full"


@dataclass(frozen=True)
class Shape:
    """How the rows are summed."""

    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEYS",
            show_default="rank,device; with phases rank,device,phase",
            help="One row per: rank, device, step, window, world, host, coords, phase, run; several with commas.",
        ),
    ] = None
    mean: Annotated[
        bool,
        typer.Option(
            "--mean", help="Means per window in *_ms columns, not exact sums in *_ns (json, csv, parquet)."
        ),
    ] = False
    causes: Annotated[
        Causes, typer.Option(help="full shows allocator, compile and host communication waits apart.")
    ] = Causes.STANDARD
    explain: Annotated[bool, explained("breakdown")] = False


def breakdown(source: Source, cut: Cut, shape: Shape, thresholds: Thresholds, output: Output) -> None:
    """The exact account of every window, per rank and device or by any key.

    Five parts sum to the window exactly: compute without communication, compute with hidden communication,
    exposed communication, exposed memory copies, idle. The screen shows means per window;
    json, csv and parquet give exact int64 sums over `n` windows unless --mean is given.
    """
    from rankscope.analysis.aggregate import default_keys

    from .session import opened

    with opened(source, cut, output, thresholds) as run:
        by = words(shape.by) or default_keys(run.steps_table())
        full = shape.causes is Causes.FULL
        sums = run.breakdown_table(by=by, causes=shape.causes.value)
        table = run.breakdown_table(by=by, mean=True, causes=shape.causes.value) if shape.mean else sums
        emit(table, lambda: screen(sums, by, full=full), output)


def screen(sums: pa.Table, by: Sequence[str], *, full: bool = False) -> list[Block]:
    """The breakdown's blocks: device rows, then host rows under a title that says so.

    Args:
        sums: rows of exact sums, one per key, with the shortest and longest window of each.
        by: the keys.
        full: sums hold the columns of `--causes full`.
    """
    rows = list(rows_of(sums))
    blocks: list[Block] = []
    for timeline, title in TITLES.items():
        chosen = [r for r in rows if (r.get("timeline") or "device") == timeline]
        if chosen:
            blocks += _timeline_blocks(chosen, title, by, full=full)
    return blocks or [Block(title="No windows: nothing matches the selection.")]


def _timeline_blocks(rows: Sequence[Row], title: str, by: Sequence[str], *, full: bool) -> list[Block]:
    keys = _shown_keys(rows, by)
    digits = parts.digits_for(max(r["wall_ns"] / (r["n"] or 1) for r in rows))
    blocks = [_parts_block(rows, title, keys, digits)]
    blocks.append(_times_block(rows, keys, digits))
    if rows[0].get("timeline") == "host":
        return blocks  # nothing tells why no operator ran
    blocks.append(_idle_block(rows, keys, digits))
    if full:
        blocks.append(_full_block(rows, keys, digits))
    return blocks


def _shown_keys(rows: Sequence[Row], by: Sequence[str]) -> list[str]:
    """The keys worth a column: the device only where a rank has several, coordinates where known."""
    keys = [
        k
        for k in by
        if k != "device"
        or "rank" not in by
        or len({(r["rank"], r["device"]) for r in rows}) > len({r["rank"] for r in rows})
    ]
    keys = [k for k in keys if k != "device" or any(r["device"] is not None for r in rows)]
    if "step" in keys and "phase" not in keys and any(r.get("phase") for r in rows):
        keys.insert(keys.index("step") + 1, "phase")
    return keys


def _key_columns(rows: Sequence[Row], keys: Sequence[str]) -> list[Col]:
    return [
        Col(
            NAMED_KEYS.get(k, k),
            key=True,
            right=not any(isinstance(r.get(k), str) for r in rows),
            shrink=8 if k in ("host", "coords") else 0,
        )
        for k in keys
    ]


def _key_cells(row: Row, keys: Sequence[str]) -> list[str]:
    return ["all" if k == "run" else text.UNKNOWN if row.get(k) is None else str(row[k]) for k in keys]


def _mean(row: Row, column: str) -> float:
    return (row.get(column) or 0) / (row["n"] or 1)


def _parts_block(rows: Sequence[Row], title: str, keys: Sequence[str], digits: int) -> Block:
    """The five parts with their shares; they add up to the window as shown."""
    heads = ["compute\nalone", "compute +\nhidden", "exposed\ncomm", "memory\ncopies", "idle"]
    if rows[0].get("timeline") == "host":
        heads[-1] = "no\noperator"
    columns = [*_key_columns(rows, keys), Col("window\nms"), *(Col(h) for h in heads)]
    shown = []
    for row in rows:
        values = [_mean(row, c) for c in parts.PARTS.values()]
        shown.append((_five(row, digits), parts.shown_percent(values), _ms(sum(values), digits)))
    wide = [max(len(percents[i]) for _, percents, _ in shown) for i in range(len(heads))]
    cells = [
        [*_key_cells(row, keys), wall, *(f"{m} {p:>{w}}" for m, p, w in zip(ms, percents, wide, strict=True))]
        for row, (ms, percents, wall) in zip(rows, shown, strict=True)
    ]
    return Block(title=title, columns=columns, rows=cells)


def _five(row: Row, digits: int) -> list[str]:
    """The five parts as shown; the finer blocks add up to these."""
    return parts.shown_ms([_mean(row, c) for c in parts.PARTS.values()], digits=digits)


def _ms(ns: float, digits: int) -> str:
    return parts.shown_ms([ns], digits=digits)[0]


def _times_block(rows: Sequence[Row], keys: Sequence[str], digits: int) -> Block:
    """Windows averaged and their spread, and what exposed communication did; all-zero columns are left out."""
    if "rank" in keys and not {"step", "coords"} & set(keys) and any(r.get("coords") for r in rows):
        keys = [k2 for k in keys for k2 in ((k, "coords") if k == "rank" else (k,))]
    several = any(row["n"] != 1 for row in rows)
    exposed = {name: c for name, c in parts.EXPOSED.items() if any(r.get(c) for r in rows)}
    columns = [*_key_columns(rows, keys), *([Col("n"), Col("min-max\nms")] if several else [])]
    columns += [Col("comm\nms"), Col("of it\nhidden"), *(Col(name.replace(" ", "\n")) for name in exposed)]
    cells = []
    for row in rows:
        cell = [*_key_cells(row, keys)]
        if several:
            cell += [str(row["n"]), "-".join(_ms(row[c], digits) for c in ("wall_min_ns", "wall_max_ns"))]
        cell.append(
            text.UNKNOWN
            if row.get("communication_ns") is None
            else _ms(_mean(row, "communication_ns"), digits)
        )
        cell.append(text.ratio(row.get("overlap_ratio")))
        split = [_mean(row, c) for c in exposed.values()]
        cells.append(
            [*cell, *(parts.shown_ms(split, digits=digits, total=_five(row, digits)[2]) if split else [])]
        )
    notes = []
    if any(row.get("is_comm_recorded") is False for row in rows):
        notes.append(
            "comm -: communication was issued in these windows, but none was recorded on the device."
        )
    title = (
        "Windows, and what exposed communication did (ms)"
        if several
        else "Communication, and what its exposed part did (ms)"
    )
    return Block(title=title, columns=columns, rows=cells, notes=notes)


def _idle_block(rows: Sequence[Row], keys: Sequence[str], digits: int) -> Block:
    names = [
        g for g in parts.idle_causes() if g != parts.GRAPH_GAP or any(r.get("graph_gap_ns") for r in rows)
    ]
    columns = [*_key_columns(rows, keys), Col("idle")]
    columns += [Col(n.replace(" ", "\n", 1)) for n in names] + [Col("waits + idle\n(bubble)", right=True)]
    cells = []
    for row in rows:
        groups = parts.idle_groups(row)
        values = [groups[n] / (row["n"] or 1) for n in names]
        idle = _five(row, digits)[4]
        low, high = (_ms(_mean(row, c), digits) for c in ("bubble_min_ns", "bubble_max_ns"))
        low = idle if row["bubble_min_ns"] == row["idle_ns"] else low
        high = low if row["bubble_max_ns"] == row["bubble_min_ns"] else high
        shown = [idle, *parts.shown_ms(values, digits=digits, total=idle)]
        cells.append([*_key_cells(row, keys), *shown, parts.bubble_text(low, high)])
    notes = []
    if any(row.get("unsplit_comm_ns") for row in rows):
        notes.append(
            "waits + idle is a range while it is unknown how much of the exposed communication was waiting."
        )
    return Block(
        title="Why idle; and all the time that neither computed nor moved data (ms)",
        columns=columns,
        rows=cells,
        notes=notes,
    )


def _full_block(rows: Sequence[Row], keys: Sequence[str], digits: int) -> Block:
    """Every cause with its share; causes that are zero everywhere are left out."""
    causes = [c for group in parts.idle_causes().values() for c in group]
    used = [c for c in causes if any(r.get(c) for r in rows)]
    columns = [*_key_columns(rows, keys), *(Col(c[:-3].replace("_", "\n")) for c in used)]
    cells = [
        [*_key_cells(r, keys), *parts.shown_ms([_mean(r, c) for c in used], digits=digits)] for r in rows
    ]
    return (
        Block(title="Idle time by cause (ms)", columns=columns, rows=cells)
        if used
        else Block(title="No idle time.")
    )
