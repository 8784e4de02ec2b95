"""Where a rank's steps come from: host ranges that name or end them, in the order of the public contract."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rankscope.store.errors import UsageError
from rankscope.store.schema import Quality, Severity

from .columns import I64, Flags
from .frame import Frame
from .link import operator_ranges
from .nesting import enclosing, parents
from .phases import iteration

_PROFILER_STEP = re.compile(r"^ProfilerStep\s?#\s?(\d{1,18})$")
_OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")

TRAILING_SHARE = 0.25
"""Work after the last optimizer range is a further, unfinished step when it launches at least this share of
a usual step; less is clean-up (zero_grad, logging) and stays in the last step."""


@dataclass(frozen=True)
class HostSteps:
    """Steps as the host sees them, in order of time; step n is entered at `start[n]` and lasts until
    `start[n + 1]`, the last one until `end[-1]`.
    """

    source: str
    number: I64
    phase: tuple[str | None, ...]
    start: I64
    end: I64

    def index(self, at: I64) -> I64:
        """Position of the step in whose window each instant lies, -1 outside all of them."""
        place = np.searchsorted(self.start, at, side="right").astype(np.int64) - 1
        return np.where((place >= 0) & (at < self.end[-1]), place, -1)


def host_steps(frame: Frame, launches: I64, step_regex: str | None) -> tuple[HostSteps | None, list[Quality]]:
    """The first source that finds a step: the user's pattern, ProfilerStep#N, inference iterations,
    optimizer ranges.

    Args:
        frame: the events.
        launches: event rows of the launch calls, used to choose among threads.
        step_regex: the user's pattern, None without.

    Raises:
        UsageError: the pattern is no regular expression.
    """
    quality: list[Quality] = []
    if step_regex is not None:
        steps = _by_pattern(frame, launches, step_regex)
        if steps:
            return _numbered(steps)
        effect = "steps are taken from the next source"
        quality.append(Quality("step_regex_unmatched", Severity.WARNING, None, 1, step_regex, effect))
    for source in (_profiler_steps, _inference_steps, _optimizer_steps):
        steps = source(frame, launches)
        if steps:
            found, renumbered = _numbered(steps)
            return found, quality + renumbered
    return None, quality


def _numbered(steps: HostSteps) -> tuple[HostSteps, list[Quality]]:
    """The steps under distinct numbers: ordinals when the source repeats one."""
    distinct, counts = np.unique(steps.number, return_counts=True)
    if len(distinct) == len(steps.number):
        return steps, []
    repeated = int(distinct[counts > 1][0])
    quality = Quality(
        "step_renumbered",
        Severity.INFO,
        None,
        int((counts - 1).sum()),
        f"step {repeated} occurs more than once",
        "steps are numbered by their order in time",
    )
    return replace(steps, number=np.arange(len(steps.number), dtype=np.int64)), [quality]


def _by_pattern(frame: Frame, launches: I64, step_regex: str) -> HostSteps | None:
    try:
        pattern = re.compile(step_regex)
    except re.error as error:
        raise UsageError(f"--step-regex is no regular expression: {error}", hint="see Python's re") from error
    found = {n: m for n in frame.name.values if (m := pattern.search(n))}
    numbers = {n: m.group(1) if pattern.groups else None for n, m in found.items()}
    rows = _chosen(frame, launches, lambda n: n in found)
    return _steps(frame, rows, "regex", [numbers[_name(frame, r)] for r in rows.tolist()])


def _profiler_steps(frame: Frame, launches: I64) -> HostSteps | None:
    rows = _chosen(frame, launches, lambda n: bool(_PROFILER_STEP.match(n)))
    numbers = [m.group(1) if (m := _PROFILER_STEP.match(_name(frame, r))) else None for r in rows.tolist()]
    return _steps(frame, rows, "profiler_step", numbers)


def _inference_steps(frame: Frame, launches: I64) -> HostSteps | None:
    rows = _chosen(frame, launches, lambda n: iteration(n) is not None)
    steps = _steps(frame, rows, "inference", [None] * len(rows))
    if not steps:
        return None
    found = [iteration(_name(frame, r)) for r in rows.tolist()]
    return replace(steps, phase=tuple(i.phase if i else None for i in found))


def _name(frame: Frame, row: int) -> str:
    code = int(frame.name.codes[row])
    return frame.name.values[code] if code >= 0 else ""


def _steps(frame: Frame, rows: I64, source: str, numbers: list[str | None]) -> HostSteps | None:
    """Steps of ranges in order of time; ordinals unless every one has an integer."""
    if not len(rows):
        return None
    values = [int(n) for n in numbers if n and re.fullmatch(r"-?\d{1,18}", n)]
    if len(values) < len(rows):
        values = list(range(len(rows)))
    return HostSteps(
        source=source,
        number=np.array(values, dtype=np.int64),
        phase=(None,) * len(rows),
        start=frame.start[rows],
        end=np.maximum.accumulate(frame.end[rows]),
    )


def _chosen(frame: Frame, launches: I64, test: Callable[[str], bool]) -> I64:
    """Host ranges whose name passes, of the thread that launches most inside them, without nested ones, in
    order of time.

    A single range around several others (a profiler around a profiler) is left out in favour of those.
    """
    candidates = frame.named(test) & (frame.is_annotation | frame.is_operator)
    if not candidates.any():
        return np.empty(0, dtype=np.int64)
    candidates &= frame.thread.codes == _busiest(frame, launches, candidates)
    among = operator_ranges(frame, candidates)
    rows = among.rows
    up = parents(replace(among, rows=np.arange(len(rows), dtype=np.int64)))
    outermost = np.flatnonzero(up < 0)
    if len(outermost) == 1:
        inner = np.flatnonzero(up == outermost[0])
        outermost = inner if len(inner) > 1 else outermost
    return rows[outermost]


def _busiest(frame: Frame, launches: I64, candidates: Flags) -> int:
    """Code of the thread with most launch calls inside its candidate ranges (without launches: operators);
    ties: most ranges, then the first by name.
    """
    threads, n_ranges = np.unique(frame.thread.codes[candidates], return_counts=True)
    if len(threads) == 1:
        return int(threads[0])
    among = operator_ranges(frame, candidates)
    inside = np.zeros(len(frame.thread.values), dtype=np.int64)
    for rows in (launches, np.flatnonzero(frame.is_operator)):
        around = enclosing(among, frame.thread.codes[rows], frame.start[rows])
        inside = np.bincount(frame.thread.codes[rows[around >= 0]], minlength=len(inside))
        if inside.any():
            break
    best = np.lexsort((threads, -n_ranges, -inside[threads]))[0]
    return int(threads[best])


def _optimizer_steps(frame: Frame, launches: I64) -> HostSteps | None:
    """Steps that end with an optimizer range: the first begins with the first host event, each other where
    the one before ended.

    Ranges with no backward operator between them are one optimizer phase of several optimizers.
    """
    rows = _chosen(frame, launches, lambda n: bool(_OPTIMIZER_STEP.match(n)))
    if not len(rows):
        return None
    rows = rows[_last_of_phase(frame, rows)]
    ends = frame.end[rows]
    host = frame.is_operator | frame.is_annotation | frame.is_runtime
    starts = np.append(frame.start[host].min(), ends[:-1])
    at = np.sort(frame.start[launches])
    per_step = np.diff(np.searchsorted(at, np.append(starts, ends[-1])))
    trailing = len(at) - int(np.searchsorted(at, ends[-1]))
    if trailing and trailing >= TRAILING_SHARE * float(np.median(per_step)):
        starts, ends = np.append(starts, ends[-1]), np.append(ends, frame.end[host].max())
    n = len(starts)
    return HostSteps("optimizer", np.arange(n, dtype=np.int64), (None,) * n, starts, ends)


def _last_of_phase(frame: Frame, rows: I64) -> Flags:
    """Which optimizer ranges end a step: the last one, and those that a backward operator follows before the
    next; all of them where the file has no backward operator.
    """
    backward = np.sort(frame.start[frame.is_operator & frame.named(lambda n: bool(_BACKWARD.search(n)))])
    if not len(backward):
        return np.ones(len(rows), dtype=np.bool_)
    before = np.searchsorted(backward, frame.end[rows])
    until = np.searchsorted(backward, frame.start[rows])
    return np.append(before[:-1] < until[1:], True)
