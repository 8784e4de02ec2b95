"""Several worlds in one directory: replicas, inference engines, trainer and rollout.

Two captures clash when they cannot belong to one run: the same rank at the same time. Captures of different
world size never share a world; clashing ones are told apart by the shallowest folder that separates them,
then by data-parallel engine, process groups, host, or the name's rank. What still clashes afterwards is a duplicate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from rankscope.store.schema import Quality, Severity

from .names import NameFacts
from .ranks import Capture
from .walk import natural_key

SINGLE = "0"
_JOBS = re.compile(
    r"(?<![a-z])(?:trainer|rollout|actor|critic|reward|policy|learner|generator|sampler|prefill|decode)(?![a-z])"
)
"""Folders of reinforcement learning and of disaggregated serving: one job each."""


@dataclass(frozen=True)
class World:
    """One job of the run.

    Attributes:
        label: `0` when it is the only one, else a folder's name or another short word.
        world_size: as the files say; None when they do not.
        ranks: ranks with a trace in it.
        n_windows: captures in time order.
        is_pooled: whether the steps of its windows are one sequence (CONTRACT section 2).
    """

    label: str
    world_size: int | None
    ranks: tuple[int, ...]
    n_windows: int = 1
    is_pooled: bool = True


@dataclass(frozen=True)
class _Group:
    """Captures of one world while it is being found, and the words that set it apart."""

    captures: tuple[Capture, ...]
    marks: tuple[str, ...] = ()


def overlap(a: tuple[int, int] | None, b: tuple[int, int] | None) -> bool | None:
    """Whether two closed ranges of time share a moment; None when one is unknown."""
    if a is None or b is None:
        return None
    return a[0] <= b[1] and b[0] <= a[1]


def clash(a: Capture, b: Capture) -> bool:
    """Whether two captures of one rank cannot be successive windows of one world.

    Replica folders, data-parallel engines and folders of other jobs always separate, capture folders (`iteration_10/`) never clash; else time decides, and
    unknown times are taken to overlap, so that nothing is ever merged on a guess.
    """
    if a.index == b.index or a.rank != b.rank:
        return False
    if a.name.replica != b.name.replica or _is_other_engine(a, b) or _is_other_job(a, b):
        return True
    if a.name.window != b.name.window and a.name.window and b.name.window:
        return False
    return overlap(a.range_ns, b.range_ns) is not False


def _is_other_engine(a: Capture, b: Capture) -> bool:
    """Whether the names say that one rank number belongs to two data-parallel engines (`dp0_...`, `dp1_...`)."""
    return _engine(a) != _engine(b) and None not in (_engine(a), _engine(b))


def _is_other_job(a: Capture, b: Capture) -> bool:
    """Whether folders give the captures different jobs, which take turns and so share no moment."""
    return _JOBS.findall("/".join(a.name.place)) != _JOBS.findall("/".join(b.name.place))


def clashes(captures: Sequence[Capture]) -> list[tuple[Capture, Capture]]:
    """Clashing pairs."""
    by_rank: dict[int | None, list[Capture]] = {}
    for capture in captures:
        by_rank.setdefault(capture.rank, []).append(capture)
    return [(a, b) for same in by_rank.values() for a, b in combinations(same, 2) if clash(a, b)]


def with_worlds(captures: Sequence[Capture]) -> list[Capture]:
    """Every capture with the label of its world, in the same order.

    The label is `0` when there is one world; else the folder that sets the world apart (`.` is the run's own
    folder), `w8` for a world size, or further marks joined by `-`.
    """
    groups = [
        final
        for size_group in _by_size(captures)
        for folder_group in _by_folder(size_group, depth=0)
        for final in _by_marks(folder_group)
    ]
    labels = _labels(groups)
    world_of = {
        (capture.index, capture.rank): label
        for group, label in zip(groups, labels, strict=True)
        for capture in group.captures
    }
    return [replace(c, world=world_of[c.index, c.rank]) for c in captures]


def _split(
    group: _Group, key: Callable[[Capture], Hashable], mark: Callable[[Capture], str | None]
) -> list[_Group]:
    parts: dict[Hashable, list[Capture]] = {}
    for capture in group.captures:
        parts.setdefault(key(capture), []).append(capture)
    return [_Group(tuple(part), (*group.marks, mark(part[0]) or "")) for part in parts.values()]


def _by_size(captures: Sequence[Capture]) -> list[_Group]:
    """Groups of one world size; a capture that states none joins the only size of its folder, or of all."""
    everywhere = {c.probe.world_size for c in captures} - {None}
    in_place: dict[tuple[str, ...], set[int | None]] = {}
    for capture in captures:
        in_place.setdefault(capture.name.place, set()).add(capture.probe.world_size)

    def size_of(capture: Capture) -> int | None:
        if capture.probe.world_size is not None:
            return capture.probe.world_size
        known = in_place[capture.name.place] - {None} or everywhere
        size = next(iter(known)) if len(known) == 1 else None
        return size if size is not None and (capture.rank or 0) < size else None

    if not captures:
        return []
    return _split(_Group(tuple(captures)), size_of, lambda c: f"w{size_of(c) or '?'}")


def _by_folder(group: _Group, *, depth: int) -> list[_Group]:
    """Split at the shallowest folder level that separates clashing captures, each branch on its own."""
    if not clashes(group.captures):
        return [group]
    if all(len(c.name.place) <= depth for c in group.captures):
        return [group]
    parts: dict[str, list[Capture]] = {}
    for capture in group.captures:
        place = capture.name.place
        parts.setdefault(place[depth] if len(place) > depth else "", []).append(capture)
    return [
        final
        for part in parts.values()
        for final in _by_folder(replace(group, captures=tuple(part)), depth=depth + 1)
    ]


def _by_marks(group: _Group) -> list[_Group]:
    """Captures of one folder that clash: by engine, groups, host or the name's rank, if one of these settles it.

    What a clashing capture does not state cannot tell it apart.
    """
    pairs = clashes(group.captures)
    involved = [c for pair in pairs for c in pair]
    keys = [_engine, _pg_count, _backend, _groups_key, _host]
    if all(c.probe.world_size == 1 for c in involved):
        keys.append(_name_rank)
    for key in keys if pairs else ():
        if any(key(c) is None for c in involved):
            continue
        parts = _split(group, key, key)
        if len(parts) > 1 and not any(clashes(part.captures) for part in parts):
            return parts
    return [group]


def _engine(c: Capture) -> str | None:
    index = dict(c.name.indices).get("dp")
    return None if index is None else f"dp{index}"


def _pg_count(c: Capture) -> str | None:
    return None if c.probe.pg_count is None else f"pg{c.probe.pg_count}"


def _backend(c: Capture) -> str | None:
    return c.probe.backend


def _groups_key(c: Capture) -> str | None:
    return None if c.probe.groups_key is None else f"pg{c.probe.groups_key}"


def _host(c: Capture) -> str | None:
    return c.probe.host or c.name.host


def _name_rank(c: Capture) -> str | None:
    return None if c.name.rank is None else f"rank{c.name.rank}"


def _labels(groups: Sequence[_Group]) -> list[str]:
    """Shortest words that tell the worlds apart: a folder, else the folder with marks, else a number."""
    if len(groups) == 1:
        return [SINGLE]
    folders = [_common([c.name for c in group.captures]) for group in groups]
    shared = len(_prefix(folders))
    plain = ["/".join(folder[shared:]) for folder in folders]
    times = Counter(plain)
    labels = [
        text or "." if times[text] == 1 else "-".join(filter(None, (text, *_telling(group, groups))))
        for text, group in zip(plain, groups, strict=True)
    ]
    times = Counter(labels)
    seen: Counter[str] = Counter()
    result = []
    for label in labels:
        result.append(label if times[label] == 1 and label else f"{label}-{seen[label]}".lstrip("-"))
        seen[label] += 1
    return result


def _telling(group: _Group, groups: Sequence[_Group]) -> list[str]:
    """Marks that not all worlds share."""
    return [mark for mark in group.marks if any(mark not in other.marks for other in groups)]


def _common(names: Sequence[NameFacts]) -> tuple[str, ...]:
    return _prefix([name.place for name in names])


def _prefix(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    shortest = min(paths, key=len, default=())
    n = next((i for i, part in enumerate(shortest) if any(p[i] != part for p in paths)), len(shortest))
    return shortest[:n]


def world_size_of(captures: Sequence[Capture]) -> int | None:
    """World size the captures of one world state; None when they do not."""
    return next((c.probe.world_size for c in captures if c.probe.world_size is not None), None)


def default_world(worlds: Sequence[World]) -> str | None:
    """The only world, or the largest: by world size, then by ranks with a trace; ties go to the first label.

    A world of which no trace is left counts only when no world has any.
    """
    usable = [w for w in worlds if w.ranks] or list(worlds)
    order = sorted(
        usable, key=lambda w: (-(w.world_size or len(w.ranks)), -len(w.ranks), natural_key(w.label))
    )
    return order[0].label if order else None


def several_worlds(worlds: Sequence[World]) -> list[Quality]:
    """The row that names the worlds besides the default one."""
    if len(worlds) < 2:
        return []
    default = default_world(worlds)
    others = [w.label for w in worlds if w.label != default]
    more = f" and {len(others) - 8} more" if len(others) > 8 else ""
    example = f"{default}; others: {', '.join(others[:8])}{more}"
    return [
        Quality(
            "several_worlds",
            Severity.INFO,
            None,
            len(worlds),
            example,
            "only the first is shown unless --world asks",
        )
    ]
