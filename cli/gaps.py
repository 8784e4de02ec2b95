"""`rankscope gaps`: the longest idle stretches and what stood around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import text
from .explain import option as explained
from .kernel_names import short_kernel
from .options import Cut, Format, Output, Source, Thresholds
from .parts import digits_for, shown_ms
from .render import chosen_format, emit, rows_of
from .table import Block, Col, Pair

if TYPE_CHECKING:
    import pyarrow as pa

QUESTION = "When was the GPU idle longest, and why?"
TOP = 20
TOP_ON_SCREEN = 10
"""A stretch takes three lines on screen."""
NO_GAP = "No idle time of a device in these windows."
NO_DEVICE = "No device activity was recorded: only a device has idle stretches."


@dataclass(frozen=True)
class Top:
    """How many rows."""

    top: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            show_default=f"{TOP_ON_SCREEN} on screen, else {TOP}",
            help="How many idle stretches, longest first.",
        ),
    ] = None
    explain: Annotated[bool, explained("gaps")] = False


def gaps(source: Source, cut: Cut, shown: Top, thresholds: Thresholds, output: Output) -> None:
    """The longest idle stretches, with what stood around them.

    The longest stretches without any device activity, each with its main cause, the innermost host frame or operator
    at that time, the kernels before and after, and how many ranks were idle with it.
    """
    from .session import opened, run_start_ns

    with opened(source, cut, output, thresholds) as run:
        is_for_people = chosen_format(output) in (Format.TABLE, Format.MARKDOWN)
        table = run.gaps_table(top=shown.top or (TOP_ON_SCREEN if is_for_people else TOP))
        timelines = run.steps_table().column("timeline").to_pylist()
        emit(table, lambda: screen(table, run_start_ns(run), has_device="device" in timelines), output)


def screen(table: pa.Table, start_ns: int, *, has_device: bool = True) -> list[Block]:
    """One line of numbers per stretch, then the host frame, then the kernels before and after it.

    Args:
        table: the stretches.
        start_ns: when the run started.
        has_device: whether any window is a device's; without one there is nothing that could be idle.
    """
    rows = list(rows_of(table))
    if not rows:
        return [Block(title=NO_GAP if has_device else NO_DEVICE)]
    has_devices = len({(r["rank"], r["device"]) for r in rows}) > len({r["rank"] for r in rows})
    columns = [Col("rank"), *([Col("dev")] if has_devices else []), Col("step"), Col("at ms"), Col("idle ms")]
    columns += [Col("cause", right=False), Col("on ranks")]
    cells = [_cells(r, start_ns, has_devices=has_devices) for r in rows]
    return [
        Block(
            title="The longest idle stretches (at: since the start of the run)",
            columns=columns,
            rows=cells,
            detail="in: what the host did; kernel before -> kernel after",
            details=[_around(r) for r in rows],
        )
    ]


def _cells(row: Mapping[str, Any], start_ns: int, *, has_devices: bool) -> list[str]:
    keys: Sequence[str] = ("rank", "device", "step") if has_devices else ("rank", "step")
    cells = [text.UNKNOWN if row[k] is None else str(row[k]) for k in keys]
    length = row["end_ns"] - row["start_ns"]
    cells += [text.ms(row["start_ns"] - start_ns), *shown_ms([length], digits=digits_for(length))]
    shared = text.UNKNOWN if row["on_ranks"] is None else str(row["on_ranks"])
    return [*cells, cause_text(row["cause"]), shared]


def cause_text(cause: str | None) -> str:
    """A cause column's name in words."""
    if cause is None:
        return text.UNKNOWN
    return cause.removesuffix("_ns").replace("_", " ")


def _around(row: Mapping[str, Any]) -> tuple[str | Pair, ...]:
    before, after = (short_kernel(row[k]) if row[k] else None for k in ("previous_kernel", "next_kernel"))
    kernels = Pair(before or "start of the window", after or "end of the window")
    return (f"in: {row['host_frame']}" if row["host_frame"] else "", kernels)
