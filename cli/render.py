"""Tables out: screen text, JSON, CSV, Markdown or Parquet, to standard output or a file.

Only the result goes to standard output; everything else goes through `note`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import typer

from rankscope.store.errors import UsageError

from .options import Format, Output
from .table import Block, render_blocks, render_markdown
from .text import clean

if TYPE_CHECKING:
    import pyarrow as pa

SCREEN = 80
SUFFIXES = {
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".md": Format.MARKDOWN,
    ".parquet": Format.PARQUET,
}
ROWS_AT_ONCE = 4096


def chosen_format(output: Output) -> Format:
    """The format asked for, else the one the suffix of `-o` names, else the screen's.

    Raises:
        typer.BadParameter: Parquet without a file to write it to.
    """
    suffix = PurePosixPath(output.out).suffix.lower() if output.out else ""
    chosen = output.format or SUFFIXES.get(suffix, Format.TABLE)
    if chosen is Format.PARQUET and not output.out:
        raise typer.BadParameter("parquet is binary: name a file with -o FILE", param_hint="--format")
    return chosen


def emit(table: pa.Table, screen: Callable[[], Sequence[Block]], output: Output) -> None:
    """Print or write a result: `table` for machines, `screen()` for people (called only when needed)."""
    chosen = chosen_format(output)
    if chosen is Format.PARQUET:
        _write_parquet(table, str(output.out))
    elif chosen is Format.JSON:
        _write_text(json_chunks(table), output.out)
    elif chosen is Format.CSV:
        _write_text(csv_chunks(table), output.out)
    elif chosen is Format.MARKDOWN:
        _write_text([render_markdown(screen())], output.out)
    else:
        _write_text([render_blocks(screen(), columns=SCREEN if output.out else screen_width())], output.out)
    if output.out:
        note(f"wrote {output.out}")


def emit_text(text: str, output: Output) -> None:
    """Print or write a finished screen; Markdown gets it as a fenced block."""
    fenced = chosen_format(output) is Format.MARKDOWN
    _write_text(["```text\n", text, "```\n"] if fenced else [text], output.out)
    if output.out:
        note(f"wrote {output.out}")


def note(line: str) -> None:
    """A line for the person at the terminal, on standard error; names in it are untrusted."""
    typer.echo(clean(line), err=True)


def screen_width() -> int:
    """The terminal's width, 80 where the output is no terminal (same input, same bytes)."""
    if not sys.stdout.isatty():
        return SCREEN
    return max(60, shutil.get_terminal_size((SCREEN, 24)).columns)


def is_unicode_terminal() -> bool:
    """Whether standard output can show block characters."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return encoding.startswith("utf")


def can_redraw(stream: Any) -> bool:
    """Whether a line can be drawn over: a terminal that is not dumb."""
    return bool(stream.isatty()) and os.environ.get("TERM", "dumb") != "dumb"


def rows_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows as plain Python values: integers exact, unknown None, no NaN or infinity."""
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield {name: _finite(value) for name, value in row.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return value


def json_chunks(table: pa.Table) -> Iterator[str]:
    """One JSON array of row objects, a row a line."""
    separator = "[\n"
    for row in rows_of(table):
        yield separator + json.dumps(row, allow_nan=False)
        separator = ",\n"
    yield "[]\n" if separator == "[\n" else "\n]\n"


def csv_chunks(table: pa.Table) -> Iterator[str]:
    """Comma-separated values with a header line; unknown is empty, lists are JSON."""
    yield _csv_line(table.column_names)
    for row in rows_of(table):
        yield _csv_line([_csv_cell(v) for v in row.values()])


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _write_text(chunks: Sequence[str] | Iterator[str], path: str | None) -> None:
    if path is None:
        for chunk in chunks:
            sys.stdout.write(chunk)
        sys.stdout.flush()
        return
    with _opened(path) as file:
        for chunk in chunks:
            file.write(chunk.encode("utf-8", errors="backslashreplace"))


def _write_parquet(table: pa.Table, path: str) -> None:
    import pyarrow.parquet as pq

    with _opened(path) as file:
        pq.write_table(table, file, compression="zstd")


def _opened(path: str) -> Any:
    """The file or URL opened for writing bytes; a place that cannot be written is a usage error."""
    try:
        if "://" in path:
            import fsspec

            return fsspec.open(path, "wb").open()
        return open(path, "wb")
    except (OSError, ValueError, ImportError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot write the result: {reason}", path=path, hint="Choose another -o FILE."
        ) from error
