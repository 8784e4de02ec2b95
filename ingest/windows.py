"""Several captures of one rank: successive windows of one run, or duplicates.

Windows are numbered in time order over the ranks of a world, so that captures of different ranks taken at
the same time share a number. Folders that name a capture (`iteration_10/`) decide where there are any, else
overlapping time does. Times are those of `probe`: never outside the true range, so captures that are truly
apart are never taken for duplicates; `overlapping` checks again once the exact ranges are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from rankscope.store.schema import Quality, Severity

from .ranks import Capture
from .worlds import clashes, overlap

Range = tuple[int, int]


@dataclass(frozen=True)
class Windowed:
    """Captures of one world with windows.

    Attributes:
        captures: kept ones, with window. refused: (capture, why) of duplicates.
        n_windows: how many. is_pooled: whether they are one sequence of steps.
        quality: rows `window_cut`, `windows_disjoint`, `windows_apart`.
    """

    captures: list[Capture]
    refused: list[tuple[Capture, str]]
    n_windows: int
    is_pooled: bool
    quality: list[Quality]


def with_windows(captures: Sequence[Capture]) -> Windowed:
    """Windows of one world's captures; duplicates are refused, every one of them.

    Args:
        captures: of one world, any order.
    """
    doubled = _doubled(captures)
    kept = [c for c in captures if c.index not in doubled]
    groups = _clusters(kept)
    numbered = [replace(c, window=w) for w, group in enumerate(groups) for c in group]
    rank_sets = [{c.rank for c in group} for group in groups]
    why_apart = _why_apart(numbered, rank_sets)
    quality = [*_cuts(rank_sets), *_disjoint(groups)]
    if why_apart is not None:
        quality.append(apart_row(len(groups), why_apart))
    refused = [(c, doubled[c.index]) for c in captures if c.index in doubled]
    return Windowed(numbered, refused, len(groups), why_apart is None, quality)


def _why_apart(captures: Sequence[Capture], rank_sets: Sequence[set[int | None]]) -> str | None:
    """Why windows cannot be one sequence of steps; None when they can."""
    if any(a.isdisjoint(b) for a, b in combinations(rank_sets, 2)):
        return "two captures share no rank"
    for own in _per_rank(captures).values():
        for a, b in combinations(own, 2):
            if a.index != b.index and overlap(a.range_ns, b.range_ns):
                return f"{a.label} and {b.label} overlap in time"
    return None


def apart_row(n_windows: int, why: str) -> Quality:
    """The quality row of windows that are not pooled."""
    effect = "their steps are not counted together; choose one with --window"
    return Quality("windows_apart", Severity.WARNING, None, n_windows, why, effect)


def _doubled(captures: Sequence[Capture]) -> dict[int, str]:
    """Why each duplicate is refused, by file."""
    partners: dict[int, set[str]] = {}
    ranks: dict[int, int | None] = {}
    for a, b in clashes(captures):
        partners.setdefault(a.index, set()).add(b.label)
        partners.setdefault(b.index, set()).add(a.label)
        ranks[a.index] = ranks[b.index] = a.rank
    return {i: duplicate_reason(ranks[i], sorted(labels)) for i, labels in partners.items()}


def duplicate_reason(rank: int | None, others: Sequence[str]) -> str:
    """Why a file is refused: the rank and the other files that claim it."""
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f"rank {rank} at the same time as {', '.join(others[:3])}{more}"


def duplicate_row(rank: int | None, labels: Sequence[str]) -> Quality:
    """The quality row of files that claim one rank at one time."""
    more = f" and {len(labels) - 4} more" if len(labels) > 4 else ""
    example = ", ".join(labels[:4]) + more
    effect = "none of them is used; keep one, or separate the runs into folders"
    return Quality("duplicate_rank", Severity.ERROR, rank, len(labels), example, effect, labels[0])


def _clusters(captures: Sequence[Capture]) -> list[list[Capture]]:
    """Captures of each window, in order."""
    named: dict[tuple[int, ...], list[Capture]] = {}
    for capture in captures:
        named.setdefault(capture.name.window, []).append(capture)
    if len(named) > 1 and () in named:
        return _by_time(captures)
    return [window for key in sorted(named) for window in _by_time(named[key])]


def _by_time(captures: Sequence[Capture]) -> list[list[Capture]]:
    per_rank = _per_rank(captures)
    most = max((len(own) for own in per_rank.values()), default=0)
    if most <= 1:
        return [list(captures)] if captures else []
    found = [part for group in _touching(captures) for part in _aligned(group)]
    counts = {len(own) for own in per_rank.values()}
    is_apart = all(len({c.rank for c in group}) == 1 for group in found)
    if len(per_rank) > 1 and is_apart and len(counts) == 1:
        # Clocks so far apart that nothing coincides: the n-th capture of every rank is the n-th window.
        return [[own[i] for own in per_rank.values()] for i in range(most)]
    return found


def _start(capture: Capture) -> tuple[int, int, str]:
    known = capture.range_ns
    return (1, 0, capture.label) if known is None else (0, known[0], capture.label)


def _per_rank(captures: Sequence[Capture]) -> dict[int | None, list[Capture]]:
    per_rank: dict[int | None, list[Capture]] = {}
    for capture in sorted(captures, key=_start):
        per_rank.setdefault(capture.rank, []).append(capture)
    return dict(sorted(per_rank.items(), key=lambda item: item[0] or 0))


def _touching(captures: Sequence[Capture]) -> list[list[Capture]]:
    """Groups of captures connected by overlapping time; those of unknown time stand alone, last."""
    groups: list[list[Capture]] = []
    end: int | None = None
    for capture in sorted(captures, key=_start):
        known = capture.range_ns
        if known is None or end is None or known[0] > end:
            groups.append([])
            end = None
        groups[-1].append(capture)
        if known is not None:
            end = known[1] if end is None else max(end, known[1])
    return groups


def _aligned(group: list[Capture]) -> list[list[Capture]]:
    """Windows inside a group in which a rank has several captures (one begins before another's last ends).

    The rank with most captures sets the windows; the captures of the others go, in order, to the window
    they overlap most.
    """
    per_rank = _per_rank(group)
    marks = max(per_rank.values(), key=len)
    windows: list[list[Capture]] = [[] for _ in marks]
    for own in per_rank.values():
        at = 0
        for i, capture in enumerate(own):
            last = len(marks) - (len(own) - i)
            at = max((_shared(capture, marks[w]), -w, w) for w in range(at, last + 1))[2]
            windows[at].append(capture)
            at += 1
    return windows


def _shared(a: Capture, b: Capture) -> int:
    """Length of the time two captures share; negative for a gap."""
    if a.range_ns is None or b.range_ns is None:
        return 0
    return min(a.range_ns[1], b.range_ns[1]) - max(a.range_ns[0], b.range_ns[0])


def _cuts(rank_sets: Sequence[set[int | None]]) -> list[Quality]:
    rows = []
    for rank in sorted({r for ranks in rank_sets for r in ranks if r is not None}):
        lacking = [w for w, ranks in enumerate(rank_sets) if rank not in ranks]
        if lacking:
            more = " ..." if len(lacking) > 8 else ""
            example = f"no capture in window {', '.join(map(str, lacking[:8]))}{more}"
            effect = "the rank is cut there: waits for it are unknown"
            rows.append(Quality("window_cut", Severity.WARNING, rank, len(lacking), example, effect))
    return rows


def _disjoint(groups: Sequence[Sequence[Capture]]) -> list[Quality]:
    """Windows in which two ranks share no moment."""
    for window, group in enumerate(groups):
        known = [(c, c.range_ns) for c in group if c.range_ns is not None]
        if len(known) < 2:
            continue
        latest = max(known, key=lambda item: (item[1][0], item[0].label))
        earliest = min(known, key=lambda item: (item[1][1], item[0].label))
        if latest[1][0] > earliest[1][1]:
            gap_ms = (latest[1][0] - earliest[1][1]) / 1e6
            example = (
                f"window {window}: {earliest[0].label} ends {gap_ms:.1f} ms before {latest[0].label} begins"
            )
            effect = "not the same moment of the run, or clocks far apart; waits between them mean nothing"
            return [Quality("windows_disjoint", Severity.WARNING, None, 1, example, effect)]
    return []


def overlapping(ranges: Mapping[str, Range | None]) -> list[tuple[str, str]]:
    """Pairs of names whose exact time ranges share a moment, in order; unknown ranges share none."""
    known = sorted((r, name) for name, r in ranges.items() if r is not None)
    return [(a, b) for (ra, a), (rb, b) in combinations(known, 2) if overlap(ra, rb)]
