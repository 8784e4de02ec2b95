"""The parts of the mean step on the summary screen: bar, ms, percent, worst rank; they visibly add up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import parts, text

LABEL = 29
BAR = 16
EIGHTHS = ("", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589", "\u2588")
"""Bars of none to eight eighths of a character."""
REST = "the rest"
NOTHING_RUNS = "no operator running"
"""What idle time is on a host timeline."""
MOST_BLOCKS = 4
ROOMY = 2
"""Up to so many blocks have empty lines between them and their waiting line."""
Row = Mapping[str, Any]
WHOLE = ("wall_ns", "communication_ns", "bubble_min_ns", "bubble_max_ns", "n")


@dataclass(frozen=True)
class StepBlock:
    """The mean window of one timeline and phase.

    Attributes:
        title: what is averaged.
        total: sums over all windows.
        places: sums per rank and device, `(name, sums)`.
        low, high: shortest and longest window.
        is_host: measured on the host timeline.
    """

    title: str
    total: dict[str, Any]
    places: list[tuple[str, dict[str, Any]]]
    low: int
    high: int
    is_host: bool


def blocks_of(windows: Sequence[Row], *, room: int, bars: bool) -> list[str]:
    """All blocks as lines, at most `room` of them: device before host, one per inference phase.

    Args:
        windows: breakdown rows, one per rank, device, window and step.
        room: most lines.
        bars: whether block characters can be shown.
    """
    groups = grouped(windows)
    if not groups:
        return ["No steps: nothing matches the selection."]
    blocks = [_block(rows, *key) for key, rows in groups.items()]
    is_tight = len(blocks) > ROOMY
    each = (room if is_tight else room - len(blocks) + 1) // len(blocks)
    lines: list[str] = []
    for block in blocks:
        lines += [""] if lines and not is_tight else []
        lines += _block_lines(block, each, bars=bars, waits=not is_tight)
    return lines


def grouped(windows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Windows by timeline and inference phase, device first, at most four groups (the longest)."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in windows:
        groups[(row.get("timeline") or "device", row.get("phase") or "")].append(row)
    longest = sorted(groups, key=lambda k: (-sum(r["wall_ns"] for r in groups[k]), k))[:MOST_BLOCKS]
    return {key: groups[key] for key in sorted(longest)}


def _block(rows: Sequence[Row], timeline: str, phase: str) -> StepBlock:
    by_place: dict[tuple[Any, Any], list[Row]] = defaultdict(list)
    for row in rows:
        by_place[(row["rank"], row["device"])].append(row)
    many = len({d for _, d in by_place}) > len({r for r, _ in by_place}) or len(by_place) > len(
        {r for r, _ in by_place}
    )
    places = [
        (f"r{rank}" + (f".d{device}" if many and device is not None else ""), _sum(by_place[(rank, device)]))
        for rank, device in sorted(by_place, key=lambda p: tuple(-1 if x is None else x for x in p))
    ]
    is_whole = all(row["step"] is None for row in rows)
    what = f"Mean {phase} step" if phase else "Whole run" if is_whole else "Mean step"
    walls = [r["wall_ns"] for r in rows]
    is_host = timeline == "host"
    title = f"{what} (host times)" if is_host else what
    return StepBlock(title, _sum(rows), places, min(walls), max(walls), is_host)


def _sum(rows: Sequence[Row]) -> dict[str, Any]:
    causes = [c for columns in parts.idle_causes().values() for c in columns]
    names = {*parts.PARTS.values(), *parts.EXPOSED.values(), *causes, *WHOLE}
    return {c: sum(r.get(c) or 0 for r in rows) for c in names}


def _block_lines(block: StepBlock, room: int, *, bars: bool, waits: bool) -> list[str]:
    total = block.total
    n = total["n"] or 1
    digits = parts.digits_for(total["wall_ns"] / n)
    shares = _merged(parts.step_parts(total), max(room - (3 if waits else 2), 2))
    values = [v / n for v in shares.values()]
    shown = parts.shown_ms(values, digits=digits)
    percents = parts.shown_percent(values)
    bar_lengths = parts.rounded([v / (sum(values) or 1) * BAR * 8 for v in values], unit=1)
    lines = [_title_line(block, n, digits)]
    for i, label in enumerate(shares):
        worst = _worst(block, label, digits)
        shown_label = label.replace("idle: other", NOTHING_RUNS) if block.is_host else label
        lines.append(_part_line(shown_label, _bar(bar_lengths[i], bars=bars), shown[i], percents[i], worst))
    whole = parts.shown_ms([sum(values)], digits=digits)[0]
    lines.append(
        _part_line("= step", "", whole, "100.0%" if sum(values) else text.UNKNOWN, _worst_wall(block, digits))
    )
    return [*lines, _waits_line(total, n, digits)] if waits else lines


def _title_line(block: StepBlock, n: int, digits: int) -> str:
    low, high = (parts.shown_ms([x], digits=digits)[0] for x in (block.low, block.high))
    spread = f"n {n}, {low}-{high} ms" if n > 1 else "n 1"
    title = f"{block.title} ({spread})"
    head = f"{title:<{LABEL + BAR + 2}}{'ms':>9}{'share':>8}"
    return head + (f"  {'worst':>9}" if len(block.places) > 1 else "")


def _part_line(label: str, bar: str, shown: str, percent: str, worst: str) -> str:
    return f"  {label:<{LABEL - 2}} {text.pad(bar, BAR)} {shown:>9}{percent:>8}{worst}".rstrip()


def _merged(shares: dict[str, int | float], room: int) -> dict[str, int | float]:
    """Parts that are not zero; the smallest become `the rest` where the screen has no room for all."""
    kept = {k: v for k, v in shares.items() if v} or {"compute": 0}
    if len(kept) <= room:
        return kept
    largest = set(sorted(kept, key=lambda k: (-kept[k], k))[: max(room - 1, 1)])
    merged = {k: v for k, v in kept.items() if k in largest}
    return merged | {REST: sum(v for k, v in kept.items() if k not in largest)}


def _worst(block: StepBlock, label: str, digits: int) -> str:
    """The rank with the largest mean of the part, when there are several."""
    if len(block.places) < 2 or label == REST:
        return ""
    return _worst_text(block, [parts.step_parts(s).get(label, 0) for _, s in block.places], digits)


def _worst_wall(block: StepBlock, digits: int) -> str:
    return (
        "" if len(block.places) < 2 else _worst_text(block, [s["wall_ns"] for _, s in block.places], digits)
    )


def _worst_text(block: StepBlock, sums: Sequence[float], digits: int) -> str:
    means = [v / (s["n"] or 1) for v, (_, s) in zip(sums, block.places, strict=True)]
    worst = max(range(len(means)), key=lambda i: (means[i], -i))
    return f"  {block.places[worst][0]:>4} {parts.shown_ms([means[worst]], digits=digits)[0]:>7}"[:16]


def _waits_line(total: Mapping[str, Any], n: int, digits: int) -> str:
    low, high = (parts.shown_ms([total[c] / n], digits=digits)[0] for c in ("bubble_min_ns", "bubble_max_ns"))
    line = f"  waiting or idle: {parts.bubble_text(low, high)} ms in all"
    if total["communication_ns"]:
        line += f"; {text.percent(total['overlap_ns'], total['communication_ns'])} of communication is hidden"
    return text.shorten(line, 80)


def _bar(eighths: int, *, bars: bool) -> str:
    if not bars:
        return "#" * round(eighths / 8)
    full, part = divmod(eighths, 8)
    return EIGHTHS[8] * full + EIGHTHS[part]
