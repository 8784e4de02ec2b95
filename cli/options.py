"""Options shared by the commands, as typed groups, and the decorator that turns groups into a command.

A command is a function of a few frozen groups (`def gaps(source: Source, cut: Cut, output: Output)`);
`command_of` shows Typer one flat signature and hands the groups back filled.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer

from rankscope.analysis.thresholds import KERNEL_GAP_NS, SYNC_SLACK_NS
from rankscope.store.units import NS_PER_US

LONGEST_US = 1e9
"""Largest threshold: a quarter of an hour is no gap between kernels."""

DEBUG = typer.Option("--debug", help="Show the traceback of an error.")


class Format(StrEnum):
    """Shapes of the printed result."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    PARQUET = "parquet"


@dataclass(frozen=True)
class Source:
    """Which files, and how they are read."""

    run: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            show_default=False,
            help="Trace file, folder, glob, URL, several of these, a run store, or - for standard input.",
        ),
    ]
    rules: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="TOML file of kernel-name rules that go before the shipped ones."),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="State a fact of the run, as run.toml would."),
    ] = None
    step_regex: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Take steps from annotations and operators whose name matches."),
    ] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Read the traces anew and keep nothing.")] = (
        False
    )
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, show_default="one per core", help="Read N files at a time."),
    ] = None
    debug: Annotated[bool, DEBUG] = False


@dataclass(frozen=True)
class Cut:
    """Which part of the run is looked at."""

    steps: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help="steady (first and last left out when there are four), all, none (whole run), or 3,5-7.",
        ),
    ] = "steady"
    ranks: Annotated[
        str | None, typer.Option(metavar="LIST", show_default="all", help="Only these ranks, such as 0-3,8.")
    ] = None
    window: Annotated[
        str | None,
        typer.Option(metavar="LIST", show_default="all", help="Only these captures of the run, such as 0,2."),
    ] = None
    world: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default="the largest", help="Which of several jobs in one folder."),
    ] = None
    as_recorded: Annotated[
        bool, typer.Option("--as-recorded", help="Keep late completion stamps instead of clipping them.")
    ] = False


@dataclass(frozen=True)
class Output:
    """What is printed, and where."""

    format: Annotated[
        Format | None,
        typer.Option(
            show_default="table, or by the suffix of -o",
            help="json is one array of rows with exact integers.",
        ),
    ] = None
    out: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the result to FILE, not to the screen."),
    ] = None
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 4 when the data has a quality warning or error.")
    ] = False


@dataclass(frozen=True)
class Thresholds:
    """Limits of the idle causes."""

    kernel_gap_us: Annotated[
        float,
        typer.Option(
            metavar="US", min=0, max=LONGEST_US, help="Queued work up to this far apart counts as kernel gap."
        ),
    ] = KERNEL_GAP_NS / NS_PER_US
    sync_slack_us: Annotated[
        float,
        typer.Option(
            metavar="US",
            min=0,
            max=LONGEST_US,
            help="A sync that ended up to this long before the gap is still its cause.",
        ),
    ] = SYNC_SLACK_NS / NS_PER_US


Body = Callable[..., None]


def command_of(body: Body) -> Body:
    """The function of option groups as a function Typer understands: one flat parameter per field."""
    groups = {name: kind for name, kind in get_type_hints(body).items() if name != "return"}
    owner: dict[str, str] = {}
    parameters: list[inspect.Parameter] = []
    for group, kind in groups.items():
        for parameter in _parameters(kind):
            owner[parameter.name] = group
            parameters.append(parameter)

    @functools.wraps(body)
    def flat(**values: Any) -> None:
        filled: dict[str, dict[str, Any]] = {group: {} for group in groups}
        for name, value in values.items():
            filled[owner[name]][name] = value
        body(**{group: groups[group](**filled[group]) for group in groups})

    return with_parameters(flat, parameters)


def with_parameters(function: Body, parameters: Sequence[inspect.Parameter]) -> Body:
    """The function with a signature of these annotated keywords, as Typer reads it."""
    function.__dict__.pop("__wrapped__", None)
    function.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return function


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if f.default is MISSING else f.default,
            annotation=hints[f.name],
        )
        for f in fields(group)
    ]


def numbers(value: str | None, *, option: str) -> list[int] | None:
    """`0-3,8` as a sorted list of integers; None stays None.

    Raises:
        typer.BadParameter: not such a list.
    """
    if value is None:
        return None
    found: set[int] = set()
    for part in value.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise typer.BadParameter(f"{value!r} is no list of numbers such as 0-3,8", param_hint=option)
        last = int(high) if dash else int(low)
        if last < int(low) or last - int(low) > 10_000_000:
            raise typer.BadParameter(f"{part.strip()!r} is no range of numbers", param_hint=option)
        found.update(range(int(low), last + 1))
    return sorted(found)


def step_choice(value: str) -> str | list[int]:
    """`steady`, `all` and `none` as they are, else the listed step numbers."""
    if value in ("steady", "all", "none"):
        return value
    listed = numbers(value, option="--steps")
    return listed if listed is not None else "steady"


def words(values: Sequence[str] | None) -> list[str] | None:
    """Comma-separated and repeated options as one list, None when the option was not given."""
    if values is None:
        return None
    return [word.strip() for value in values for word in value.split(",") if word.strip()]
