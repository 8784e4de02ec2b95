"""Which files make up the run and whose they are: every source with kind, rank, world, window and host.

A plan is a pure function of names, probes and facts. It never depends on the order in which files were
given, and never merges two files that might be the same rank at the same time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rankscope.store.schema import Quality, Severity

from .coords import coordinates, coords_text, host_of_rank, local_ranks
from .discover import Source, natural_key
from .facts import NO_FACTS, RunFacts, contradictions
from .names import is_frontend_text, read_name
from .planned import EMPTY, FRONTEND, REFUSED, SKIPPED, WHOLE, Plan, PlannedSource
from .probe import Probe, probe
from .ranks import NAME, Capture, hosts_of, missing_ranks, with_ranks
from .sniff import OTHER, TORCH_PROFILER
from .verify import verify_windows
from .windows import Windowed, duplicate_row, with_windows
from .worlds import World, default_world, several_worlds, with_worlds, world_size_of

FRONTEND_NAMED = "a front end's or scheduler's CPU trace, not a rank"
FRONTEND_GUESSED = "no rank and no GPU work while other traces have both: taken for a front end"
_DEVICE_BACKENDS = ("nccl", "mtia", "hccl", "xccl", "ucc")

__all__ = ["Plan", "PlannedSource", "identify", "needs_times", "plan", "source_id", "verify_windows"]


def identify(
    sources: Sequence[Source],
    facts: RunFacts = NO_FACTS,
    *,
    storage_options: dict[str, Any] | None = None,
    mapper: Callable[..., Iterable[Probe]] = map,
) -> Plan:
    """Probe all sources and plan the run; compressed files are read to their end only where time decides.

    Args:
        sources: from `discover`.
        facts: what the user stated.
        storage_options: for fsspec.
        mapper: `map`, or an executor's `map`.
    """
    look = partial(probe, storage_options=storage_options)
    probes = list(mapper(look, sources))
    again = needs_times(sources, probes)
    deeper = mapper(partial(look, deep=True), [sources[i] for i in again])
    for i, found in zip(again, deeper, strict=True):
        probes[i] = found
    return plan(sources, probes, facts)


def needs_times(sources: Sequence[Source], probes: Sequence[Probe]) -> list[int]:
    """Positions of traces whose rank another file claims too and whose end was not seen yet."""
    captures = [_capture(i, s, p) for i, (s, p) in enumerate(zip(sources, probes, strict=True)) if p.is_trace]
    ranked, _ = with_ranks(sorted(captures, key=lambda c: natural_key(c.label)))
    times = Counter(c.rank for c in ranked)
    return sorted({c.index for c in ranked if times[c.rank] > 1 and not c.probe.is_deep})


def plan(sources: Sequence[Source], probes: Sequence[Probe], facts: RunFacts = NO_FACTS) -> Plan:
    """The place of every source in the run.

    Args:
        sources: from `discover`, any order. probes: of each, same order.
        facts: what the user stated.
    """
    pairs = sorted(zip(sources, probes, strict=True), key=lambda pair: natural_key(pair[0].label))
    captures = [_capture(i, s, p) for i, (s, p) in enumerate(pairs) if p.is_trace]
    fronts = _frontends(captures)
    ranked, quality = with_ranks([c for c in captures if c.index not in fronts])
    placed = with_worlds(ranked)
    worlds: list[World] = []
    windowed: list[Windowed] = []
    for label in sorted({c.world for c in placed}, key=natural_key):
        own = [c for c in placed if c.world == label]
        found = with_windows(own)
        windowed.append(found)
        worlds.append(_world(label, own, found))
    planned = [_unplaced(s, p, frontend=fronts.get(i)) for i, (s, p) in enumerate(pairs)]
    for found in windowed:
        _place(planned, found)
    seen = hosts_of(placed)
    planned = _with_identity(planned, placed, worlds, facts, seen)
    quality += [row for found in windowed for row in (*found.quality, *_duplicates(found))]
    quality += _unread_quality(planned, [_is_expected(s) for s, _ in pairs])
    quality += _world_quality(planned, worlds, facts)
    for world in worlds:
        if world.label == default_world(worlds):
            hosts = _seen_hosts(placed, seen, world.label)
            quality += contradictions(facts, world.world_size, {r: h for r, h in hosts.items() if h})
    return Plan(tuple(planned), tuple(quality), tuple(worlds), default_world(worlds), facts)


def _capture(index: int, source: Source, found: Probe) -> Capture:
    above = source.path[: -len(source.rel)] if source.path.endswith(source.rel) else ""
    parent = above.rstrip("/").rpartition("/")[2]
    return Capture(index, source.label, read_name(source.rel, source.member, parent=parent), found)


def _frontends(captures: Sequence[Capture]) -> dict[int, str]:
    """Traces of a front end or scheduler, with the reason: no rank, no device work, beside traces of ranks.

    The name of the file or of its process says so, or the file has neither GPU records nor calls while
    others have them.
    """
    device = {c.index for c in captures if _has_device(c)}
    candidates = [c for c in captures if not _claims_rank(c) and not c.probe.has_device_activity]
    if len(candidates) == len(captures):
        return {}
    found = {}
    for capture in candidates:
        if _says_frontend(capture):
            found[capture.index] = FRONTEND_NAMED
        elif device - {capture.index} and not capture.probe.has_device_calls:
            found[capture.index] = FRONTEND_GUESSED
    return found


def _has_device(capture: Capture) -> bool:
    found = capture.probe
    is_device_backend = any(word in (found.backend or "") for word in _DEVICE_BACKENDS)
    return found.has_device_activity or found.has_device_calls or is_device_backend


def _claims_rank(capture: Capture) -> bool:
    found = capture.probe
    stated = (found.rank, found.world_size, found.backend, capture.name.rank)
    return any(value is not None for value in stated) or bool(found.fused_ranks or capture.name.indices)


def _says_frontend(capture: Capture) -> bool:
    return capture.name.is_frontend or any(map(is_frontend_text, capture.probe.process_names))


def _world(label: str, captures: Sequence[Capture], found: Windowed) -> World:
    ranks = tuple(sorted({c.rank for c in found.captures if c.rank is not None}))
    return World(label, world_size_of(captures), ranks, found.n_windows, found.is_pooled)


def _unplaced(source: Source, found: Probe, *, frontend: str | None) -> PlannedSource:
    """The record of a file before it has a place; final for all that are not read as ranks."""
    name = read_name(source.rel, source.member)
    kind, status, reason = found.kind, found.status, found.reason
    if frontend is not None:
        kind, status, reason = FRONTEND, SKIPPED, frontend
    elif found.is_trace:
        reason = None
    elif found.kind != TORCH_PROFILER and status == WHOLE:
        status = SKIPPED
    rank = name.rank if status != WHOLE and frontend is None else None
    return PlannedSource(
        source_id=source_id(source.rel, source.member),
        path=source.path,
        rel=source.rel,
        member=source.member,
        kind=kind,
        rank=rank,
        rank_source=NAME if rank is not None else None,
        world_size=found.world_size,
        backend=found.backend,
        status=status,
        reason=reason,
        size=source.size,
        mtime_ns=source.mtime_ns,
        etag=source.etag,
    )


def source_id(rel: str, member: str | None) -> str:
    """Twelve hex digits that name a source wherever the run lies."""
    return hashlib.sha256(f"{rel}\0{member or ''}".encode()).hexdigest()[:12]


def _place(planned: list[PlannedSource], found: Windowed) -> None:
    fused: dict[int, list[int]] = {}
    for capture in (*found.captures, *(c for c, _ in found.refused)):
        fused.setdefault(capture.index, []).append(capture.rank or 0)
    for capture, reason in (*((c, None) for c in found.captures), *found.refused):
        ranks = sorted(fused[capture.index])
        planned[capture.index] = replace(
            planned[capture.index],
            rank=ranks[0] if len(ranks) == 1 else None,
            ranks=tuple(ranks) if len(ranks) > 1 else (),
            rank_source=capture.rank_source,
            world=capture.world,
            window=capture.window,
            window_name="/".join(map(str, capture.name.window)) or None,
            status=WHOLE if reason is None else REFUSED,
            reason=reason,
        )


def _with_identity(
    planned: list[PlannedSource],
    captures: Sequence[Capture],
    worlds: Sequence[World],
    facts: RunFacts,
    seen: Mapping[int, str],
) -> list[PlannedSource]:
    """Hosts, local ranks and coordinates."""
    result = list(planned)
    for world in worlds:
        size = world.world_size or facts.world_size
        of_rank = _seen_hosts(captures, seen, world.label)
        hosts = {rank: host_of_rank(rank, facts, size) or of_rank[rank] for rank in of_rank}
        local = local_ranks(hosts, size, facts)
        for i, capture in enumerate(captures):
            source = result[capture.index]
            if capture.world == world.label and source.rank is not None:
                grid = coordinates(source.rank, size, facts)
                result[capture.index] = replace(
                    source,
                    host=host_of_rank(source.rank, facts, size) or seen.get(i) or hosts[source.rank],
                    local_rank=local.get(source.rank),
                    coords=coords_text(grid if grid is not None else dict(capture.name.indices)),
                )
    return result


def _seen_hosts(captures: Sequence[Capture], seen: Mapping[int, str], world: str) -> dict[int, str | None]:
    """Host the files give each rank of a world; None where they give none, or several."""
    hosts: dict[int, set[str]] = {}
    for i, capture in enumerate(captures):
        if capture.world == world and capture.rank is not None:
            hosts.setdefault(capture.rank, set()).update([seen[i]] if i in seen else [])
    return {rank: next(iter(names)) if len(names) == 1 else None for rank, names in hosts.items()}


def _duplicates(found: Windowed) -> list[Quality]:
    """One row for each set of files that claim a rank."""
    by_rank: dict[int | None, list[str]] = {}
    for capture, _ in found.refused:
        by_rank.setdefault(capture.rank, []).append(capture.label)
    return [duplicate_row(rank, sorted(labels, key=natural_key)) for rank, labels in by_rank.items()]


def _is_expected(source: Source) -> bool | None:
    """Whether leaving a file out is expected: True by its name's ending, False when it was asked for."""
    if source.skipped is not None:
        return source.size is not None  # a folder that cannot be listed has none
    return False if source.is_named else None


def _unread_quality(planned: Sequence[PlannedSource], is_expected: Sequence[bool | None]) -> list[Quality]:
    """Rows of empty files, of files that are no trace, and of front ends; expected ones in one row a kind."""
    rows = []
    expected: dict[str, list[PlannedSource]] = {}
    for source, known in zip(planned, is_expected, strict=True):
        reason = source.reason or ""
        if source.status == EMPTY:
            effect = "nothing of this file enters the run"
            rows.append(Quality("file_empty", Severity.WARNING, source.rank, 1, reason, effect, source.label))
        elif source.status == SKIPPED:
            if source.kind != OTHER or (known if known is not None else source.rank is None):
                expected.setdefault(reason, []).append(source)
                continue
            effect = "the file is left out"
            rows.append(
                Quality("not_a_trace", Severity.WARNING, source.rank, 1, reason, effect, source.label)
            )
    for reason, members in expected.items():
        code = "frontend_trace" if members[0].kind == FRONTEND else "not_a_trace"
        severity = Severity.WARNING if reason == FRONTEND_GUESSED else Severity.INFO
        example = f"{members[0].label}: {reason}"
        effect = "left out of the sums of the ranks"
        rows.append(Quality(code, severity, None, len(members), example, effect, members[0].label))
    return rows


def _world_quality(
    planned: Sequence[PlannedSource], worlds: Sequence[World], facts: RunFacts
) -> list[Quality]:
    rows = several_worlds(worlds)
    for world in worlds:
        own = [s for s in planned if s.world == world.label and s.status in (WHOLE, REFUSED)]
        present = {r for s in own for r in (s.ranks or (s.rank,)) if r is not None}
        if len(worlds) == 1:
            present |= {s.rank for s in planned if s.status == EMPTY and s.rank is not None}
        rows += missing_ranks(
            world.label, world.world_size or facts.world_size, present, n_worlds=len(worlds)
        )
    return rows
