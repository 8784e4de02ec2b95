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
from ._scope import Scope
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
        self._scopes: dict[Query, Scope] = {}
        self._computed: dict[tuple[Query, str], pa.Table] = {}

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
        return self._scope(self._query.but(where)).selection.windows

    def steps_note(self, **where: Unpack[Where]) -> str:
        """One sentence: which steps are used, where they come from and what was left out."""
        return self._scope(self._query.but(where)).note_text()

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

    def _rows(self, query: Query, causes: str) -> pa.Table:
        """Breakdown rows of single windows; computed once per selection."""
        if (query, causes) not in self._computed:
            self._computed[query, causes] = _analyses.breakdown_rows(self._scope(query), causes=causes)
        return self._computed[query, causes]

    def _scope(self, query: Query) -> Scope:
        if query not in self._scopes:
            self._scopes[query] = Scope.of(self.store, query)
        return self._scopes[query]

    def breakdown_table(
        self,
        by: str | Sequence[str] | None = None,
        *,
        mean: bool = False,
        causes: str | None = None,
        **where: Unpack[Where],
    ) -> pa.Table:
        """Where every nanosecond went: compute, hidden and exposed communication, copies, idle and why.

        compute_only + overlap + exposed_comm + exposed_memcpy + idle = wall, exactly, on every row; the
        definitions are those of `analysis.breakdown.breakdown`.

        Args:
            by: one row per these keys (`rank, device, step, window, world, host, coords, phase, run`);
                default rank and device, and phase where the steps are inference iterations.
            mean: float64 means per window in `*_ms` columns instead of exact int64 sums in `*_ns`.
            causes: `full` shows allocator, compile and host communication waits in columns of their own.
            **where: which part of the run; see `rankscope.queries.Where`.

        Returns:
            Rows of `store.schema.BREAKDOWN`, sorted by the keys; `n` windows are summed in each.

        Raises:
            UsageError: an unknown key, step, rank, window or world. EmptyRun: nothing to analyse.
        """
        rows = self._rows(self._query.but(where), causes or "standard")
        return _analyses.breakdown_table(rows, by, mean=mean)

    def kernels_table(self, **where: Unpack[Where]) -> pa.Table:
        """Kernels, copies and memsets by name, costliest first, with the rule that gave each its class.

        See `analysis.kernels.kernels` for the columns. A run without any device activity gives its host
        ranges instead; `timeline` says which.

        Raises:
            UsageError: an unknown step, rank, window or world. EmptyRun: nothing to analyse.
        """
        return _analyses.kernels_table(self._scope(self._query.but(where)))

    def gaps_table(self, *, top: int = 20, **where: Unpack[Where]) -> pa.Table:
        """The longest idle stretches: when, why, in which host frame, between which kernels, on how many ranks.

        See `analysis.gaps.gaps` for the columns.

        Args:
            top: how many.
            **where: which part of the run; see `rankscope.queries.Where`.

        Raises:
            UsageError: an unknown step, rank, window or world. EmptyRun: nothing to analyse.
        """
        return _analyses.gaps_table(self._scope(self._query.but(where)), top=top)

    def summary_table(self, **where: Unpack[Where]) -> pa.Table:
        """The findings, costliest first: what it is, its cost per step, why, and the next command.

        See `analysis.findings.findings` for the columns.

        Raises:
            UsageError: an unknown step, rank, window or world. EmptyRun: nothing to analyse.
        """
        return _analyses.summary_table(self._rows(self._query.but(where), "standard"))

    def breakdown(
        self,
        by: str | Sequence[str] | None = None,
        *,
        mean: bool = False,
        causes: str | None = None,
        **where: Unpack[Where],
    ) -> pd.DataFrame:
        """`breakdown_table` as a DataFrame."""
        return frame(self.breakdown_table(by, mean=mean, causes=causes, **where))

    def kernels(self, **where: Unpack[Where]) -> pd.DataFrame:
        """`kernels_table` as a DataFrame."""
        return frame(self.kernels_table(**where))

    def gaps(self, *, top: int = 20, **where: Unpack[Where]) -> pd.DataFrame:
        """`gaps_table` as a DataFrame."""
        return frame(self.gaps_table(top=top, **where))

    def summary(self, **where: Unpack[Where]) -> pd.DataFrame:
        """`summary_table` as a DataFrame."""
        return frame(self.summary_table(**where))
