"""The part of a run that a query means: its world, ranks and windows, and the step windows in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rankscope.analysis.tables import rows_by
from rankscope.analysis.windows import NONE, Selection, as_recorded, select_windows
from rankscope.store.errors import EmptyRun, UsageError
from rankscope.store.reader import RunStore
from rankscope.store.schema import ACTIVITIES, STEPS, empty
from rankscope.store.units import number_ranges

from .queries import Query

ACTIVITY_COLUMNS = (
    "rank", "host", "local_rank", "device", "gpu", "coords", "world", "window", "stream", "class", "start_ns",
    "end_ns", "recorded_end_ns", "correlation", "graph_id", "launch_id", "launch_start_ns", "launch_tid", "valid",
    "group_size",
)  # fmt: skip
"""Columns of `activities` that the partition and the idle causes need."""


@dataclass(frozen=True)
class Scope:
    """A query against a store, checked.

    Attributes:
        store: the run.
        query: what was asked.
        world: the world meant; None in a store without ranks.
        ranks: ranks meant, ascending.
        windows: captures meant, None for all.
        note: what was chosen without being asked for, or "".
    """

    store: RunStore
    query: Query
    world: str | None
    ranks: tuple[int, ...]
    windows: tuple[int, ...] | None
    note: str

    @classmethod
    def of(cls, store: RunStore, query: Query) -> Scope:
        """The query's scope.

        Raises:
            UsageError: no such world, rank or window.
            EmptyRun: the run has no rank at all.
        """
        world = _world(store, query)
        have = store.ranks(world=world)
        if not have:
            raise EmptyRun("the run holds no rank to analyse", path=store.path)
        windows, note = _windows(store, query, world)
        ranks = have if query.ranks is None else [r for r in have if r in query.ranks]
        absent = [] if query.ranks is None else sorted(set(query.ranks) - set(have))
        if absent:
            raise UsageError(
                f"no data of rank {number_ranges(absent)}", hint=f"ranks with data: {number_ranges(have)}"
            )
        return cls(store, query, world, tuple(ranks), windows, note)

    def read(self, table: str, columns: Any = None, *, ranks: Any = None) -> pa.Table:
        """A stored table within the scope, of these ranks (all of the world when None)."""
        return self.store.table(table, columns=columns, **self.place(ranks))

    def place(self, ranks: Any = None) -> dict[str, Any]:
        """Arguments of `RunStore.table` that keep within the scope."""
        worlds = None if self.world is None else [self.world]
        return {"ranks": ranks, "worlds": worlds, "windows": self.windows}

    def activities(self, rank: int) -> pa.Table:
        """Device activities of a rank, ends as the query wants them."""
        return self.ended(self.read("activities", ACTIVITY_COLUMNS, ranks=[rank]))

    def ended(self, activities: pa.Table) -> pa.Table:
        """Activities with their ends as the query wants them: clipped, or as recorded."""
        return as_recorded(activities) if self.query.as_recorded else activities

    @cached_property
    def selection(self) -> Selection:
        """The windows in use, of the ranks meant; whether a step is steady is decided over all ranks."""
        if self.query.steps == NONE:
            return self._whole()
        steps = self.read("steps")
        which = self.query.steps if isinstance(self.query.steps, str) else list(self.query.steps)
        found = select_windows(steps, empty(ACTIVITIES), which=which)
        kept = self._mine(found.windows)
        n_left_out = found.n_left_out
        return Selection(kept, self._mine(found.tiling), found.note, n_left_out)

    def _whole(self) -> Selection:
        """One window per device or host timeline, rank by rank so that one rank's activities are in memory."""
        found = []
        for rank in self.ranks:
            hosts = self.read("host_activities", ranks=[rank])
            found.append(select_windows(empty(STEPS), self.activities(rank), hosts, which=NONE))
        if not found:
            return Selection(empty(STEPS), empty(STEPS), "no steps", 0)
        windows = pa.concat_tables([f.windows for f in found]).unify_dictionaries()
        return Selection(windows, windows, found[0].note, 0)

    def _mine(self, windows: pa.Table) -> pa.Table:
        if len(self.ranks) == len(self.store.ranks(world=self.world)):
            return windows
        return windows.filter(pc.is_in(windows.column("rank"), value_set=pa.array(self.ranks, pa.int64())))

    def by_rank(self) -> Iterator[tuple[int, pa.Table, pa.Table]]:
        """Each rank with its windows in use and its whole timeline, ranks without windows left out."""
        windows, tiling = _split(self.selection.windows), _split(self.selection.tiling)
        for rank in self.ranks:
            if rank in windows:
                yield rank, windows[rank], tiling[rank]

    def note_text(self) -> str:
        """Which steps are used and what was chosen or left out, one line."""
        return "; ".join(n for n in (self.selection.note, self.note) if n)


def _split(windows: pa.Table) -> dict[int, pa.Table]:
    """Rows of each rank, in their order."""
    windows = windows.combine_chunks()  # a thousand small chunks make every take slow
    groups = rows_by(windows, ("rank",))
    return {
        int(str(key[0])): windows.take(pa.array(rows)) for key, rows in groups.items() if key[0] is not None
    }


def _world(store: RunStore, query: Query) -> str | None:
    worlds = store.worlds()
    if query.world is None:
        return store.default_world if store.default_world in worlds else (worlds[0] if worlds else None)
    if query.world not in worlds:
        raise UsageError(f"no world {query.world!r} in this run", hint=f"worlds: {', '.join(worlds)}")
    return query.world


def _windows(store: RunStore, query: Query, world: str | None) -> tuple[tuple[int, ...] | None, str]:
    """Captures meant; of captures whose steps are no one sequence, the one with most ranks."""
    parts = [p for p in store.parts("steps") if p.world == world and p.window is not None]
    have = sorted({p.window for p in parts if p.window is not None})
    if query.windows is not None:
        absent = sorted(set(query.windows) - set(have))
        if absent:
            raise UsageError(
                f"no window {number_ranges(absent)} in this run", hint=f"windows: {number_ranges(have)}"
            )
        return query.windows, ""
    if len(have) < 2 or _is_pooled(store, world):
        return None, ""
    n_ranks = {w: len({p.rank for p in parts if p.window == w}) for w in have}
    chosen = min(have, key=lambda w: (-n_ranks[w], w))
    return (chosen,), f"window {chosen} of {number_ranges(have)}, which are no one sequence of steps"


def _is_pooled(store: RunStore, world: str | None) -> bool:
    stated = [w for w in store.manifest.get("worlds") or [] if w.get("label") == world]
    return all(w.get("is_pooled", True) for w in stated)
