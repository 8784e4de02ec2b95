"""`rankscope ingest`: traces to a run store."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from . import text
from .options import Source

if TYPE_CHECKING:
    import pyarrow as pa

    from rankscope.store.reader import RunStore

QUESTION = "How do I convert the traces once, into Parquet that anything reads?"


@dataclass(frozen=True)
class Destination:
    """Where the store goes."""

    out: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder or URL of the run store.")]
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 4 when the data has a quality warning or error.")
    ] = False


def ingest(source: Source, destination: Destination) -> None:
    """Convert the traces into a run store.

    Writes Parquet tables by rank and a manifest.json; every command takes the folder as RUN, and pandas,
    DuckDB or Spark read its files as they are. An ingest that was interrupted is resumed by repeating the
    command.
    """
    from . import session

    store = session.ingested(source, destination.out)
    typer.echo("\n".join(report(store, store.table("sources"), destination.out)))
    session.finish(store, source, strict=destination.strict, name=destination.out)


def report(store: RunStore, sources: pa.Table, out: str) -> list[str]:
    """What was written, and the next command."""
    statuses = Counter(s or "whole" for s in sources.column("status").to_pylist())
    read = ", ".join(f"{n} {status}" for status, n in sorted(statuses.items(), key=lambda i: (-i[1], i[0])))
    events = sum(n or 0 for n in sources.column("n_events").to_pylist())
    ranks = store.ranks()
    what = f"{text.count(sources.num_rows, 'file')} ({read}), {text.count(events, 'event')}"
    which = f"{'rank' if len(ranks) == 1 else 'ranks'} {text.ranges(ranks) or 'none'}"
    return [
        f"wrote {text.clean(out)}",
        f"  {what}, {which}",
        f"next: rankscope {text.clean(shlex.quote(out))}",
    ]
