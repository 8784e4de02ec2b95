"""A run as Python sees it: tables lazily from the store, analyses as thin methods."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from rankscope.ingest.options import IngestOptions
from rankscope.ingest.pipeline import Progress, ingest_run
from rankscope.ingest.workers import ExecutorLike
from rankscope.store.errors import UnreadableFile
from rankscope.store.reader import RunStore

from . import _analyses, _overview
from ._frames import frame
from .queries import Query, Where

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyarrow.dataset import Dataset

__all__ = ["Run", "ingest_run", "open"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def open(  # noqa: A001 - `rankscope.open` is the public name
    run: Paths,
    *,
    rules: Sequence[str | os.PathLike[str]] = (),
    facts: Sequence[str] = (),
    step_regex: str | None = None,
    cache: bool = True,
    jobs: int | None = None,
    executor: ExecutorLike | None = None,
    progress: Progress | None = None,
    storage_options: dict[str, Any] | None = None,
    **where: Unpack[Where],
) -> Run:
    """A run, from its traces or its store. Nothing is read before something is asked for.

    Args:
        run: a trace file, folder, glob, URL, several of these, or a run store.
        rules: files of kernel-name rules (TOML) that go before the shipped ones, first wins.
        facts: what you know of the run, as `key=value`, over a `run.toml` beside the traces.
        step_regex: take steps from annotations and operators whose name matches.
        cache: keep what was read in the user's cache and use it next time.
        jobs: worker processes for reading traces; one per core when there is enough to read.
        executor: instead of worker processes of our own, anything with `submit` (Dask's `get_executor()`).
        progress: called with (files done, files in all, name of the one just done).
        storage_options: for fsspec (credentials, endpoint).
        **where: selection that holds for every analysis of this run unless it says otherwise; see
            `rankscope.queries.Where`.

    Raises:
        UsageError: a wrong argument. What is wrong with the files is raised when they are first read.

    Example:
        >>> run = rankscope.open("traces/")  # doctest: +SKIP
        >>> run.breakdown(by=["rank", "step"])  # doctest: +SKIP
    """
    options = IngestOptions(
        rules=tuple(_text(path) for path in rules),
        step_regex=step_regex,
        sets=tuple(facts),
        storage_options=storage_options,
    )
    how: dict[str, Any] = {"cache": cache, "jobs": jobs, "executor": executor, "progress": progress}
    return Run(run, options=options, how=how, query=Query().but(where))


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise UnreadableFile(f"rules cannot be read: {why}", path=os.fspath(path)) from error


class Run:
    """A run: its stored tables, and the analyses of them.

    Every analysis has two methods: `name(...)` gives a pandas DataFrame, `name_table(...)` the same rows as a
    `pyarrow.Table`. In DataFrames integers are `Int64`, floats `Float64`, booleans `boolean`: exact, and
    unknown is `pandas.NA`. Keyword arguments of `rankscope.queries.Where` select steps, ranks, windows and
    world; those given to `rankscope.open` hold where a method is not told otherwise.
    """

    def __init__(self, run: Paths, *, options: IngestOptions, how: dict[str, Any], query: Query) -> None:
        self._run = run
        self._options = options
        self._how = how
        self._query = query

    def __repr__(self) -> str:
        return f"Run({self._run!r})"

    @cached_property
    def store(self) -> RunStore:
        """The run store; the first use reads the traces.

        Raises:
            TraceError: the run cannot be read; see `ingest_run`.
        """
        return ingest_run(self._run, options=self._options, **self._how)

    # -- stored tables -----------------------------------------------------------------------------------

    def table(self, name: str, *, columns: Sequence[str] | None = None) -> pa.Table:
        """A stored table of the whole run, every world and window, in memory.

        Args:
            name: `events`, `activities`, `host_activities`, `launches`, `steps`, `sources` or `quality`.
            columns: wanted columns; all when None.

        Raises:
            UsageError: no such table. MissingColumn: no such column.
        """
        return self.store.table(name, columns=columns)

    def scan(self, name: str) -> Dataset:
        """A stored table as a `pyarrow.dataset.Dataset` over exactly the files of the manifest.

        For what is too large for memory: `run.scan("events").to_table(filter=...)`, or DuckDB over it. The
        column `rank` comes from the folders.

        Raises:
            UsageError: no such table.
        """
        return _overview.dataset_of(self.store, name)

    def sources_table(self) -> pa.Table:
        """The files of the run and what became of each (`store.schema.SOURCES`)."""
        return self.table("sources")

    def quality_table(self) -> pa.Table:
        """Whatever was repaired, dropped, clipped, guessed or unmatched, worst first."""
        return self.table("quality")

    def steps_table(self, **where: Unpack[Where]) -> pa.Table:
        """The step windows an analysis of this selection uses (`store.schema.STEPS`)."""
        return _analyses.windows_table(self.store, self._query.but(where))

    def steps_note(self, **where: Unpack[Where]) -> str:
        """One sentence: which steps are used, where they come from and what was left out."""
        return _analyses.steps_note(self.store, self._query.but(where))

    def info_table(self) -> pa.Table:
        """One row per world: ranks, missing ranks, windows, steps, devices and versions."""
        return _overview.info(self.store)

    def sources(self) -> pd.DataFrame:
        """`sources_table` as a DataFrame."""
        return frame(self.sources_table())

    def quality(self) -> pd.DataFrame:
        """`quality_table` as a DataFrame."""
        return frame(self.quality_table())

    def steps(self, **where: Unpack[Where]) -> pd.DataFrame:
        """`steps_table` as a DataFrame."""
        return frame(self.steps_table(**where))

    def info(self) -> pd.DataFrame:
        """`info_table` as a DataFrame."""
        return frame(self.info_table())

    # -- analyses ----------------------------------------------------------------------------------------
