"""A second look at the plan once every file was read and its exact range of time is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rankscope.store.schema import Quality

from .planned import REFUSED, Plan, PlannedSource
from .windows import Range, apart_row, duplicate_reason, duplicate_row, overlapping
from .worlds import World, default_world


def verify_windows(
    plan: Plan,
    exact_ranges: Mapping[str, Range | None],
    *,
    step_sources: Mapping[str, str] | None = None,
) -> Plan:
    """The plan with overlaps that the probe could not see refused, and windows kept apart where they must be.

    Two files of one rank whose exact times overlap are duplicates, both refused, unless folders name them as
    different captures; then they stay, but windows are not pooled. Neither are windows whose steps come from
    different sources.

    Args:
        plan: from `plan`.
        exact_ranges: first start and last end of each file by `source_id`, None when nothing valid is in it.
        step_sources: where the steps of each file come from (`steps.source`), by `source_id`.

    Returns:
        A new plan; quality gains `duplicate_rank` and `windows_apart` rows.
    """
    by_id = {source.source_id: source for source in plan.sources}
    refused: dict[str, tuple[int, set[str]]] = {}
    apart: dict[str, str] = {}
    for (world, rank), ids in _by_rank(plan).items():
        for a, b in overlapping({i: exact_ranges.get(i) for i in ids}):
            if _are_named_apart(by_id[a], by_id[b]):
                apart.setdefault(world, f"{by_id[a].label} and {by_id[b].label} overlap in time")
                continue
            refused.setdefault(a, (rank, set()))[1].add(b)
            refused.setdefault(b, (rank, set()))[1].add(a)
    for world, why in _mixed_steps(plan, step_sources or {}).items():
        apart.setdefault(world, why)
    sources = tuple(_refused(source, refused, by_id) for source in plan.sources)
    worlds = tuple(_narrowed(world, sources, is_apart=world.label in apart) for world in plan.worlds)
    rows = [*_duplicate_rows(refused, by_id), *_apart_rows(plan, apart)]
    return replace(
        plan,
        sources=sources,
        worlds=worlds,
        quality=(*plan.quality, *rows),
        default_world=default_world(worlds),
    )


def _by_rank(plan: Plan) -> dict[tuple[str, int], list[str]]:
    """Source ids by world and rank, of files that are read."""
    found: dict[tuple[str, int], list[str]] = {}
    for source in plan.to_read():
        for rank in source.ranks or (source.rank,):
            if rank is not None:
                found.setdefault((source.world, rank), []).append(source.source_id)
    return found


def _are_named_apart(a: PlannedSource, b: PlannedSource) -> bool:
    return a.window_name is not None and b.window_name is not None and a.window_name != b.window_name


def _mixed_steps(plan: Plan, step_sources: Mapping[str, str]) -> dict[str, str]:
    """Why windows of a world are apart: their steps have different sources."""
    found: dict[str, dict[int | None, set[str]]] = {}
    for source in plan.to_read():
        if source.source_id in step_sources:
            windows = found.setdefault(source.world, {})
            windows.setdefault(source.window, set()).add(step_sources[source.source_id])
    reasons = {}
    for world, windows in found.items():
        kinds = {kind for of_window in windows.values() for kind in of_window}
        if len(windows) > 1 and len(kinds) > 1:
            reasons[world] = f"steps come from different sources: {', '.join(sorted(kinds))}"
    return reasons


def _refused(
    source: PlannedSource, refused: Mapping[str, tuple[int, set[str]]], by_id: Mapping[str, PlannedSource]
) -> PlannedSource:
    if source.source_id not in refused:
        return source
    rank, others = refused[source.source_id]
    reason = duplicate_reason(rank, sorted(by_id[i].label for i in others))
    return replace(source, status=REFUSED, reason=reason)


def _narrowed(world: World, sources: tuple[PlannedSource, ...], *, is_apart: bool) -> World:
    ranks = {r for s in sources if s.is_read and s.world == world.label for r in (s.ranks or (s.rank,))}
    return replace(
        world,
        ranks=tuple(sorted(r for r in ranks if r is not None)),
        is_pooled=world.is_pooled and not is_apart,
    )


def _duplicate_rows(
    refused: Mapping[str, tuple[int, set[str]]], by_id: Mapping[str, PlannedSource]
) -> list[Quality]:
    """One row per world and rank."""
    labels: dict[tuple[str, int], set[str]] = {}
    for source_id, (rank, _) in refused.items():
        labels.setdefault((by_id[source_id].world, rank), set()).add(by_id[source_id].label)
    return [duplicate_row(rank, sorted(names)) for (_, rank), names in sorted(labels.items())]


def _apart_rows(plan: Plan, apart: Mapping[str, str]) -> list[Quality]:
    """Rows for worlds that were pooled until now."""
    return [
        apart_row(world.n_windows, apart[world.label])
        for world in plan.worlds
        if world.label in apart and world.is_pooled
    ]
