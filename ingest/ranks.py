"""Which rank each trace is: from distributedInfo, else the name, else an assumption that is stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rankscope.store.schema import Quality, Severity

from .names import NameFacts, distinct_numbers, numbered
from .probe import Probe

DISTRIBUTED_INFO = "distributed_info"
NAME = "name"
ASSUMED = "assumed"


@dataclass(frozen=True)
class Capture:
    """One trace of one rank on its way to a place in the run.

    A file that fuses several ranks gives one capture per rank, all of the same `index`.
    """

    index: int
    label: str
    name: NameFacts
    probe: Probe
    rank: int | None = None
    rank_source: str | None = None
    world: str = "0"
    window: int | None = None

    @property
    def range_ns(self) -> tuple[int, int] | None:
        """First and last time seen, or None."""
        first, last = self.probe.first_ns, self.probe.last_ns
        return None if first is None or last is None else (first, last)


def with_ranks(captures: Sequence[Capture]) -> tuple[list[Capture], list[Quality]]:
    """Every capture with a rank and where it came from; fused files give one capture per rank.

    Order of evidence: distributedInfo; process names of a fused file; the file's name, its folder's; names
    whose parallel indices or one running number tell it over the whole set; else assumed: 0 for a single
    trace, free numbers in natural order of names for several. One process (host and pid in the name), one
    file name in several capture folders, names that count steps (`trace_step_100`), or that differ in one
    number and were taken one after the other (`trace_4`, `trace_8`), are one rank.

    Args:
        captures: in natural order of their labels, without rank.

    Returns:
        Captures in the same order, and quality rows `rank_assumed`, `rank_from_name`, `rank_differs`.
    """
    settled = [_evident(capture) for capture in captures]
    settled = _by_indices(settled)
    settled = _by_number(settled)
    settled = _by_assumption(settled)
    expanded = [one for capture in settled for one in _expanded(capture)]
    return expanded, _quality(expanded)


def _evident(capture: Capture) -> Capture:
    if capture.probe.fused_ranks:
        return replace(capture, rank=capture.probe.fused_ranks[0], rank_source=NAME)
    if capture.probe.rank is not None:
        return replace(capture, rank=capture.probe.rank, rank_source=DISTRIBUTED_INFO)
    if capture.name.rank is not None:
        return replace(capture, rank=capture.name.rank, rank_source=NAME)
    return capture


def _expanded(capture: Capture) -> list[Capture]:
    return [replace(capture, rank=rank) for rank in capture.probe.fused_ranks] or [capture]


def _by_indices(captures: list[Capture]) -> list[Capture]:
    """SGLang's names: rank = pp * tp_size + tp, with tp_size from the set of files when pp > 0.

    DP and EP indices lie inside the tensor-parallel index (attention data parallelism), or count engines.
    """
    open_ones = [c for c in captures if c.rank is None and dict(c.name.indices).keys() & {"tp"}]
    sizes = _tp_sizes(open_ones)
    result = []
    for capture in captures:
        indices = dict(capture.name.indices)
        if capture.rank is None and "tp" in indices:
            stage, size = indices.get("pp", 0), sizes.get(capture.name.place)
            if stage == 0 or size is not None:
                capture = replace(capture, rank=stage * (size or 0) + indices["tp"], rank_source=NAME)
        result.append(capture)
    return result


def _tp_sizes(captures: Iterable[Capture]) -> dict[tuple[str, ...], int]:
    """Tensor-parallel size per folder, where every stage has the same whole set of indices."""
    stages: dict[tuple[str, ...], dict[int, set[int]]] = {}
    for capture in captures:
        indices = dict(capture.name.indices)
        stages.setdefault(capture.name.place, {}).setdefault(indices.get("pp", 0), set()).add(indices["tp"])
    sizes = {}
    for place, of_stage in stages.items():
        sets = list(of_stage.values())
        is_whole = all(s == set(range(len(s))) for s in sets) and len({len(s) for s in sets}) == 1
        if is_whole and sorted(of_stage) == list(range(len(of_stage))):
            sizes[place] = len(sets[0])
    return sizes


def _by_number(captures: list[Capture]) -> list[Capture]:
    """Names of one folder that differ only in a running number 0 .. n-1 (`trace.0.json`)."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, capture in enumerate(captures):
        if capture.rank is None and capture.name.process is None and capture.name.capture is None:
            groups.setdefault((capture.name.place, capture.name.window), []).append(i)
    taken = {c.rank for c in captures if c.rank is not None}
    result = list(captures)
    for members in groups.values():
        numbers = numbered([captures[i].name.stem for i in members])
        if numbers is not None and taken.isdisjoint(numbers):
            for i, number in zip(members, numbers, strict=True):
                result[i] = replace(captures[i], rank=number, rank_source=NAME)
    return result


def _by_assumption(captures: list[Capture]) -> list[Capture]:
    taken = {c.rank for c in captures if c.rank is not None}
    given: dict[tuple[object, ...], int] = {}
    series = _series(captures)
    result = []
    for capture in captures:
        if capture.rank is None:
            who = (capture.name.place, capture.name.process or series[capture.index])
            if capture.name.process is None and capture.name.capture is not None:
                window = (*capture.name.window, capture.name.capture)
                capture = replace(capture, name=replace(capture.name, window=window))
            if who not in given:
                given[who] = next(r for r in range(len(captures) + len(taken) + 1) if r not in taken)
                taken.add(given[who])
            capture = replace(capture, rank=given[who], rank_source=ASSUMED)
        result.append(capture)
    return result


def _series(captures: Sequence[Capture]) -> dict[int, str]:
    """By file: its name without the number that counts captures, so that the captures of a rank share it."""
    groups: dict[tuple[object, ...], list[Capture]] = {}
    for capture in captures:
        if capture.rank is None and capture.name.process is None and capture.name.capture is None:
            groups.setdefault((capture.name.place, capture.name.window), []).append(capture)
    names = {c.index: c.name.series for c in captures}
    for members in groups.values():
        if distinct_numbers([c.name.stem for c in members]) is not None and _is_successive(members):
            names.update({c.index: members[0].name.stem for c in members})
    return names


def _is_successive(captures: Sequence[Capture]) -> bool:
    """Whether all times are known for certain and no two captures share a moment."""
    ranges = sorted(c.range_ns for c in captures if c.range_ns is not None and c.probe.is_deep)
    return len(ranges) == len(captures) and all(a[1] < b[0] for a, b in pairwise(ranges))


def _quality(captures: Sequence[Capture]) -> list[Quality]:
    rows = []
    named = [c for c in captures if c.rank_source == NAME]
    if named:
        example = f"{named[0].label} is rank {compact(named[0].probe.fused_ranks or (named[0].rank or 0,))}"
        effect = "no distributedInfo in the file; the name decides"
        n_files = len({c.index for c in named})
        rows.append(Quality("rank_from_name", Severity.INFO, None, n_files, example, effect))
    assumed = [c for c in captures if c.rank_source == ASSUMED]
    if assumed:
        is_only = len({c.index for c in captures}) == 1 and (captures[0].probe.world_size or 1) == 1
        severity = Severity.INFO if is_only else Severity.WARNING
        example = f"{assumed[0].label} taken as rank {assumed[0].rank}"
        effect = (
            "the only trace is rank 0" if is_only else "ranks are numbered in order of names and may be wrong"
        )
        rows.append(Quality("rank_assumed", severity, None, len(assumed), example, effect))
    differ = [
        c
        for c in captures
        if c.rank_source == DISTRIBUTED_INFO and c.name.rank is not None and c.name.rank != c.rank
    ]
    if differ:
        example = f"{differ[0].label}: distributedInfo says rank {differ[0].rank}"
        rows.append(
            Quality(
                "rank_differs",
                Severity.INFO,
                None,
                len(differ),
                example,
                "distributedInfo decides, not the name",
            )
        )
    return rows


def missing_ranks(
    world: str, world_size: int | None, present: Iterable[int], *, n_worlds: int = 1
) -> list[Quality]:
    """Ranks of a world that have no file, and ranks outside of it.

    Args:
        world: its label. world_size: None when unknown, then nothing is missing.
        present: ranks with a file, whatever its state.
        n_worlds: with several the label is part of the text.

    Returns:
        Rows `rank_missing` and `rank_out_of_range`, at most one each.
    """
    if world_size is None:
        return []
    have = set(present)
    where = f"world {world}: " if n_worlds > 1 else ""
    absent = _absent(have, world_size)
    rows = []
    if absent[1]:
        effect = "waits for them cannot be told from transfer: time lost waiting is a range"
        text = f"{where}no file for {absent[0]} of {world_size}"
        rows.append(Quality("rank_missing", Severity.WARNING, None, absent[1], text, effect))
    beyond = sorted(r for r in have if r >= world_size)
    if beyond:
        text = f"{where}{compact(beyond)} in a world of {world_size}"
        effect = "the world size of the files, or the ranks, are wrong"
        rows.append(Quality("rank_out_of_range", Severity.WARNING, None, len(beyond), text, effect))
    return rows


def _absent(have: set[int], world_size: int) -> tuple[str, int]:
    """Text and number of absent ranks, without listing a world that may be huge."""
    edges = [-1, *sorted(r for r in have if r < world_size), world_size]
    runs = [(a + 1, b - 1) for a, b in pairwise(edges) if b - a > 1]
    return _runs_text(runs), sum(last - first + 1 for first, last in runs)


def compact(ranks: Iterable[int]) -> str:
    """Ranks as people write them: `0-3,7,9-11`."""
    runs: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if runs and runs[-1][1] == rank - 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return _runs_text(runs)


def _runs_text(runs: Sequence[tuple[int, int]], most: int = 20) -> str:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:most]]
    more = f" and {len(runs) - most} more ranges" if len(runs) > most else ""
    return ",".join(texts) + more


def hosts_of(captures: Sequence[Capture]) -> dict[int, str]:
    """Host name by position in `captures`, from metadata, else from names.

    Text in front of the rank (`h100-07-rank12`) is a host when it varies over the set with the ranks: at
    least two prefixes, each with a digit, and no rank under two of them.
    """
    known = {i: host for i, c in enumerate(captures) if (host := c.probe.host or c.name.host)}
    open_ones = [
        i for i, c in enumerate(captures) if i not in known and c.name.prefix and c.rank_source != ASSUMED
    ]
    pairs = {(captures[i].rank, captures[i].name.prefix) for i in open_ones}
    prefixes = {prefix for _, prefix in pairs if prefix is not None}
    once = max(Counter(rank for rank, _ in pairs).values(), default=0) == 1
    is_like_hosts = len(prefixes) > 1 and once and all(any(ch.isdigit() for ch in p) for p in prefixes)
    for i in open_ones:
        prefix = captures[i].name.prefix
        if prefix is not None and (is_like_hosts or prefix in known.values()):
            known[i] = prefix
    return known
