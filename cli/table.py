"""Plain-text tables that never wrap: columns shrink where they may, then stack in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import text

GAP = "  "
DETAIL_BESIDE = 40
"""Fewest columns a detail needs to stand beside its row."""
DETAIL_INDENT = "    "


@dataclass(frozen=True)
class Col:
    """One column on screen.

    Attributes:
        header: its title; a line break in it is one on screen.
        right: numbers stand at the right edge.
        shrink: the fewest characters it may be shortened to (names), 0 = never.
        key: repeated at the left of every block when the table is too wide for one.
        wrap: sentences: a shrunk cell continues on the next line instead of losing its middle.
    """

    header: str
    right: bool = True
    shrink: int = 0
    key: bool = False
    wrap: bool = False


@dataclass(frozen=True)
class Pair:
    """Two names on one line of their own, each shortened only where both do not fit.

    Attributes:
        left, right: the names, untrusted.
        between: what stands between them.
    """

    left: str
    right: str
    between: str = " -> "

    def fit(self, columns: int) -> str:
        """The line in at most `columns`: a short name leaves its room to the other."""
        left, right = text.clean(self.left), text.clean(self.right)
        room = columns - text.width(self.between)
        right = text.shorten(right, max(room - text.width(left), room // 2))
        return text.shorten(left, room - text.width(right)) + self.between + right


Detail = str | tuple[str | Pair, ...]
"""More about a row: one text, or several lines that always stand below it."""


@dataclass(frozen=True)
class Block:
    """A titled table or paragraph of the screen.

    Attributes:
        title: one line above it.
        columns: may be empty, then only the notes are printed.
        rows: cells as text, one list per row, as many as columns.
        detail: title of one more, long text per row; it stands beside the row where the
            screen is wide enough, else on a line of its own below it.
        details: the long texts, one per row; several lines of one row always stand below it.
        notes: lines below the table.
    """

    title: str = ""
    columns: Sequence[Col] = ()
    rows: Sequence[Sequence[str]] = ()
    detail: str = ""
    details: Sequence[Detail] = ()
    notes: Sequence[str] = field(default=())


def render_blocks(blocks: Sequence[Block], *, columns: int) -> str:
    """The blocks as text, no line wider than `columns`, one empty line between blocks."""
    return "\n\n".join("\n".join(_block_lines(b, columns)) for b in blocks) + "\n"


def render_markdown(blocks: Sequence[Block]) -> str:
    """The blocks as GitHub tables, names escaped and never shortened."""
    return "\n\n".join("\n".join(_markdown_lines(b)) for b in blocks) + "\n"


def _block_lines(block: Block, columns: int) -> list[str]:
    lines = text.wrap(block.title, columns) if block.title else []
    if block.columns:
        lines += _table_lines(block, columns)
    for note in block.notes:
        lines += text.wrap(note, columns, indent="  ")
    return lines


def _table_lines(block: Block, columns: int) -> list[str]:
    rows = [[text.clean(cell) for cell in row] for row in block.rows]
    cols = list(block.columns)
    details = [(d,) if isinstance(d, str) else d for d in block.details]
    beside = [text.clean(d) for d in block.details if isinstance(d, str)]
    if beside and len(beside) == len(rows) and columns - _table_width(cols, rows) >= DETAIL_BESIDE:
        cols.append(Col(block.detail, right=False, shrink=DETAIL_BESIDE - len(GAP)))
        rows = [[*row, d] for row, d in zip(rows, beside, strict=True)]
        details = []
    widths = [_natural_width(c, [r[i] for r in rows]) for i, c in enumerate(cols)]
    _shrink(cols, widths, columns)
    lines: list[str] = []
    for chosen in _stacks(cols, widths, columns):
        if lines:
            lines.append("")
        lines += _header_lines(cols, widths, chosen)
        for k, row in enumerate(rows):
            lines += _row_lines([(row[i], widths[i], cols[i]) for i in chosen])
            lines += [_detail_line(d, columns) for d in (details[k] if details else ()) if d]
    return lines


def _detail_line(detail: str | Pair, columns: int) -> str:
    room = columns - len(DETAIL_INDENT)
    fitted = detail.fit(room) if isinstance(detail, Pair) else text.shorten(text.clean(detail), room)
    return DETAIL_INDENT + fitted


def _detail_text(detail: Detail) -> str:
    """All of a detail as one text, nothing shortened."""
    if isinstance(detail, str):
        return detail
    return "; ".join(f"{d.left}{d.between}{d.right}" if isinstance(d, Pair) else d for d in detail)


def _table_width(cols: Sequence[Col], rows: Sequence[Sequence[str]]) -> int:
    return sum(_natural_width(c, [r[i] for r in rows]) + len(GAP) for i, c in enumerate(cols))


def _natural_width(col: Col, cells: Sequence[str]) -> int:
    return max(text.width(part) for part in [*col.header.split("\n"), *cells])


def _shrink(cols: Sequence[Col], widths: list[int], columns: int) -> None:
    """Take the excess from the columns that may shrink, always from the widest."""
    excess = sum(widths) + len(GAP) * (len(cols) - 1) - columns
    while excess > 0:
        able = [
            (w, -i) for i, (c, w) in enumerate(zip(cols, widths, strict=True)) if c.shrink and w > c.shrink
        ]
        if not able:
            return
        widths[-max(able)[1]] -= 1
        excess -= 1


def _stacks(cols: Sequence[Col], widths: Sequence[int], columns: int) -> list[list[int]]:
    """Column numbers of each stacked part: the key columns, then as many others as fit."""
    keys = [i for i, c in enumerate(cols) if c.key]
    base = sum(widths[i] + len(GAP) for i in keys)
    stacks: list[list[int]] = []
    used = columns + 1
    for i, col in enumerate(cols):
        if col.key:
            continue
        if used + widths[i] > columns:
            stacks.append([*keys])
            used = base
        stacks[-1].append(i)
        used += widths[i] + len(GAP)
    return stacks or [keys]


def _header_lines(cols: Sequence[Col], widths: Sequence[int], chosen: Sequence[int]) -> list[str]:
    parts = {i: cols[i].header.split("\n") for i in chosen}
    height = max(len(p) for p in parts.values())
    padded = {i: [""] * (height - len(p)) + p for i, p in parts.items()}
    return [_line([(padded[i][k], widths[i], cols[i].right) for i in chosen]) for k in range(height)]


def _row_lines(cells: Sequence[tuple[str, int, Col]]) -> list[str]:
    """The row; as many lines as its longest wrapped cell needs."""
    split = [text.wrap(t, w) or [""] if col.wrap else [t] for t, w, col in cells]
    height = max(len(parts) for parts in split)
    padded = [parts + [""] * (height - len(parts)) for parts in split]
    return [
        _line([(padded[i][k], w, col.right) for i, (_, w, col) in enumerate(cells)]) for k in range(height)
    ]


def _line(cells: Sequence[tuple[str, int, bool]]) -> str:
    return GAP.join(text.pad(text.shorten(t, w), w, right=right) for t, w, right in cells).rstrip()


def _markdown_lines(block: Block) -> list[str]:
    lines = [f"**{_escape(block.title)}**", ""] if block.title else []
    if block.columns:
        cols = [*block.columns, *([Col(block.detail, right=False)] if block.details else [])]
        lines.append(_markdown_row([c.header.replace("\n", " ") for c in cols]))
        lines.append("|" + "|".join("---:" if c.right else "---" for c in cols) + "|")
        rows = (
            [[*row, _detail_text(d)] for row, d in zip(block.rows, block.details, strict=True)]
            if block.details
            else block.rows
        )
        lines += [_markdown_row(row) for row in rows]
    if block.notes and block.columns:
        lines.append("")
    return lines + [_escape(note) for note in block.notes]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(c) for c in cells) + " |"


def _escape(cell: str) -> str:
    """Names are untrusted: nothing in a cell may end it or become markup."""
    cell = text.clean(cell)
    for char in "\\|<>*_`[]":
        cell = cell.replace(char, f"&#{ord(char)};" if char in "<>" else "\\" + char)
    return cell
