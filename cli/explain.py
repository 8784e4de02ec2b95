"""`--explain`: the definition of a table, in the words that stand beside the code that computes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer

from . import text

WIDTH = 80


def option(table: str) -> Any:
    """The option `--explain` of the command that prints this table; it needs no RUN."""
    return typer.Option(
        "--explain",
        callback=_printer(table),
        is_eager=True,
        help="Print how the numbers are defined and stop; needs no RUN.",
    )


def _printer(table: str) -> Callable[[bool], None]:
    def callback(wanted: bool) -> None:
        if wanted:
            typer.echo("\n".join(definition(table)))
            raise typer.Exit

    return callback


def definition(table: str) -> list[str]:
    """The table's columns as the schema means them (where it is in the schema), then how it is computed."""
    from rankscope.analysis import catalog
    from rankscope.store import schema

    lines: list[str] = []
    if table == schema.BREAKDOWN.name:
        for column in schema.BREAKDOWN.columns:
            lines += text.wrap(f"{column.name}: {column.meaning}", WIDTH, indent="    ")
        lines.append("")
    return lines + inspect.cleandoc(catalog.ENTRIES[table].formula).splitlines()
