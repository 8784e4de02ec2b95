"""Opening a run for a command: options to the facade, progress, the quality line, `--strict`."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.store.errors import EmptyRun, QualityFailure, UsageError
from rankscope.store.units import NS_PER_US

from . import text
from .options import Cut, Output, Source, Thresholds, numbers, step_choice
from .render import can_redraw, note

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from rankscope.run import Run
    from rankscope.store.reader import RunStore

STDIN = "-"
SEVERITIES = (("error", "error"), ("warning", "warning"), ("info", "note"))
"""Severity and the word for it on screen, worst first."""
BAR = 20
ERASE_LINE = "\x1b[K"
LONG_RUN = 78
"""A list of paths that does not fit on an indented line of its own is `RUN` in the commands we suggest."""


def run_text(source: Source) -> str:
    """The run as it would be typed again."""
    typed = shlex.join(source.run)
    return "RUN" if STDIN in source.run or len(typed) > LONG_RUN else typed


def run_title(source: Source) -> str:
    """The run as a heading."""
    return "standard input" if source.run == [STDIN] else " ".join(source.run)


def say_quality(quality: pa.Table, name: str) -> None:
    """One line on standard error: how many quality rows there are, worst first."""
    counts = Counter(quality.column("severity").to_pylist())
    parts = [text.count(counts[s], word) for s, word in SEVERITIES if counts[s]]
    if parts:
        note(f"quality: {', '.join(parts)} - see rankscope info {name}")
    else:
        note("quality: nothing to report")


def check_strict(quality: pa.Table, *, strict: bool) -> None:
    """With `--strict`, warnings and errors of the data end the command with exit code 4."""
    bad = [
        code
        for code, severity in zip(
            quality.column("code").to_pylist(), quality.column("severity").to_pylist(), strict=True
        )
        if severity != "info"
    ]
    if strict and bad:
        named = ", ".join(sorted(set(bad)))
        raise QualityFailure(
            f"--strict: the data has {text.count(len(bad), 'quality warning or error', 'quality warnings or errors')}: {named}",
            hint="`rankscope info` lists them with their effect.",
        )


@contextmanager
def opened(
    source: Source,
    cut: Cut,
    output: Output,
    thresholds: Thresholds | None = None,
    *,
    may_be_empty: bool = False,
) -> Iterator[Run]:
    """The run, open; when the command is done, the quality line and `--strict`.

    Raises:
        EmptyRun: the files are readable but hold no activity to analyse, unless `may_be_empty`.
    """
    limits = thresholds or Thresholds()
    run = open_run(
        source,
        steps=step_choice(cut.steps),
        ranks=numbers(cut.ranks, option="--ranks"),
        windows=numbers(cut.window, option="--window"),
        world=cut.world,
        as_recorded=cut.as_recorded,
        kernel_gap_ns=round(limits.kernel_gap_us * NS_PER_US),
        sync_slack_ns=round(limits.sync_slack_us * NS_PER_US),
    )
    if not may_be_empty and run.steps_table().num_rows == 0:
        raise EmptyRun(
            "nothing to analyse: no device activity and no host operator with a valid time",
            path=run_title(source),
            hint=f"`rankscope info {run_text(source)}` says what was read.",
        )
    yield run
    finish(run, source, strict=output.strict)


def open_run(source: Source, **selection: Any) -> Run:
    """The run the command line names, ingested where needed, with progress on a terminal."""
    import rankscope

    check_source(source)
    with progress() as report:
        run = rankscope.open(
            source.run,
            rules=source.rules or (),
            facts=source.set_ or (),
            step_regex=source.step_regex,
            cache=not source.no_cache,
            jobs=source.jobs,
            progress=report,
            **selection,
        )
        _ = run.store  # lazy: read here, while the bar is up
    return run


def ingested(source: Source, out: str) -> RunStore:
    """The run store made at `out`, with progress on a terminal.

    Raises:
        UsageError: a rule file that cannot be read, a wrong option or path.
    """
    import rankscope
    from rankscope.ingest.options import IngestOptions

    check_source(source)
    options = IngestOptions(
        rules=tuple(Path(path).read_text(encoding="utf-8") for path in source.rules or ()),
        step_regex=source.step_regex,
        sets=tuple(source.set_ or ()),
    )
    with progress() as report:
        return rankscope.ingest_run(
            source.run, out, options=options, jobs=source.jobs, cache=not source.no_cache, progress=report
        )


def finish(run: Run | RunStore, source: Source, *, strict: bool, name: str | None = None) -> None:
    """What every command ends with: the quality line, then `--strict`."""
    quality = run.table("quality")
    say_quality(quality, name or run_text(source))
    check_strict(quality, strict=strict)


def check_source(source: Source) -> None:
    """Nothing, unless a rule file is no readable text or the command would wait for a person to type a trace."""
    for path in source.rules or ():
        try:
            Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise UsageError(f"the rules cannot be read: {why}", path=path) from error
    if STDIN in source.run and sys.stdin.isatty():
        raise UsageError("standard input is a terminal", hint="Pipe a trace into it, or name a file.")


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None] | None]:
    """A callback `(done, total, name)` that redraws one line on a terminal; None where stderr is none."""
    if not can_redraw(sys.stderr):
        yield None
        return

    def draw(line: str) -> None:
        sys.stderr.write(f"\r{line}{ERASE_LINE}")
        sys.stderr.flush()

    draw("reading ...")
    try:
        yield lambda done, total, name: draw(progress_line(done, total, name))
    finally:
        draw("")


def progress_line(done: int, total: int, name: str) -> str:
    """`reading [#####     ] 4/8 rank3.json`, at most 79 columns."""
    bar = "#" * (BAR * done // max(total, 1))
    return text.shorten(f"reading [{bar:<{BAR}}] {done}/{total} {text.clean(name)}", 79)


def run_start_ns(run: Run) -> int:
    """The earliest event of the run: screens count from it."""
    return min((t for t in run.table("sources").column("start_ns").to_pylist() if t is not None), default=0)
