"""Which part of a run an analysis looks at."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from rankscope.analysis.thresholds import KERNEL_GAP_NS, SYNC_SLACK_NS
from rankscope.analysis.windows import ALL, NONE, STEADY
from rankscope.store.errors import UsageError


class Where(TypedDict, total=False):
    """Keyword arguments of every analysis: which part of the run it looks at.

    steps: `steady` (with four or more steps that every rank of the world has, the first and last of each
        window are left out), `all`, `none` (one window per device, first activity to last), or step numbers.
    ranks: wanted ranks; one, several, or None for all.
    window, windows: wanted captures of the run; one, several, or None for all (two names of one argument).
    world: which of several jobs; None for the run's default, the only one or the largest.
    as_recorded: keep late completion stamps instead of clipping them to the next activity's start.
    kernel_gap_ns: longest idle time between queued activities that counts as a kernel gap.
    sync_slack_ns: how long before a gap a host synchronization may have ended and still be its cause.
    """

    steps: str | int | Iterable[int]
    ranks: int | Iterable[int] | None
    window: int | Iterable[int] | None
    windows: int | Iterable[int] | None
    world: str | None
    as_recorded: bool
    kernel_gap_ns: int
    sync_slack_ns: int


@dataclass(frozen=True)
class Query:
    """A checked selection; see `Where`. Hashable, so that what was computed for it can be kept."""

    steps: str | tuple[int, ...] = STEADY
    ranks: tuple[int, ...] | None = None
    windows: tuple[int, ...] | None = None
    world: str | None = None
    as_recorded: bool = False
    kernel_gap_ns: int = KERNEL_GAP_NS
    sync_slack_ns: int = SYNC_SLACK_NS

    def but(self, where: Where) -> Query:
        """The selection with these changes.

        Raises:
            UsageError: an unknown name, or a value of the wrong kind.
        """
        changes: dict[str, Any] = dict(where)
        if "window" in changes:
            if changes.get("windows") is not None:
                raise UsageError("window and windows are one argument: give one of them")
            changes["windows"] = changes.pop("window")
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                near = difflib.get_close_matches(name, [*known, "window"], n=1, cutoff=0)
                raise UsageError(f"unknown argument {name!r}", hint=f"did you mean {near[0]!r}?")
        return replace(self, **{name: _CHECKS[name](value) for name, value in changes.items()})


def _steps(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, str):
        if value not in (STEADY, ALL, NONE):
            raise UsageError(f"steps={value!r}", hint="steady, all, none or a list of step numbers")
        return value
    chosen = _numbers("steps", value)
    return STEADY if chosen is None else chosen


def _numbers(name: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        listed = [value] if isinstance(value, int) else list(value)
        return tuple(sorted({_whole(v) for v in listed}))
    except (TypeError, ValueError):
        raise UsageError(f"{name}={value!r}", hint="a whole number, or several") from None


def _whole(value: Any) -> int:
    number = int(value)
    if isinstance(value, bool | str) or number != value:
        raise ValueError(value)
    return number


def _length(name: str, value: Any) -> int:
    chosen = _numbers(name, value)
    if chosen is None or len(chosen) != 1 or chosen[0] < 0:
        raise UsageError(f"{name}={value!r}", hint="nanoseconds, a whole number from 0")
    return chosen[0]


def _world(value: Any) -> str | None:
    return None if value is None else str(value)


_CHECKS: dict[str, Any] = {
    "steps": _steps,
    "ranks": lambda v: _numbers("ranks", v),
    "windows": lambda v: _numbers("windows", v),
    "world": _world,
    "as_recorded": bool,
    "kernel_gap_ns": lambda v: _length("kernel_gap_ns", v),
    "sync_slack_ns": lambda v: _length("sync_slack_ns", v),
}
