"""The result of planning: one record per source, and the plan of the whole run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rankscope.store.schema import Quality

from .facts import NO_FACTS, RunFacts
from .sniff import OTHER
from .worlds import SINGLE, World

FRONTEND = "frontend"
WHOLE, EMPTY, SKIPPED, REFUSED = "whole", "empty", "skipped", "refused"


@dataclass(frozen=True)
class PlannedSource:
    """One file and its place in the run. Plain values: picklable, JSON-able with `as_json`.

    Attributes:
        source_id: short hash of rel and member; the same wherever the run lies.
        path: where to open it. rel: relative to the run. member: file inside a zip.
        kind: `torch_profiler`, `frontend`, or what `sniff` calls it.
        rank: None without one, and for a file of several ranks, which then are in `ranks`.
        rank_source: `distributed_info`, `name` or `assumed`.
        world, window: its place; window None when it is not read.
        window_name: folders that name the capture, such as `10` for `iteration_10/`.
        host, local_rank, coords: None where not certain.
        world_size, backend: as the file says.
        status: `whole` (to be read), `empty`, `skipped` or `refused`; `reason` says why.
    """

    source_id: str
    path: str
    rel: str
    member: str | None = None
    kind: str = OTHER
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    rank_source: str | None = None
    world: str = SINGLE
    window: int | None = None
    window_name: str | None = None
    host: str | None = None
    local_rank: int | None = None
    coords: str | None = None
    world_size: int | None = None
    backend: str | None = None
    status: str = SKIPPED
    reason: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    etag: str | None = None

    @property
    def label(self) -> str:
        """Name shown to people; the `path` column of the `sources` table."""
        return self.rel if self.member is None else f"{self.rel}!{self.member}"

    @property
    def is_read(self) -> bool:
        """Whether the file is to be ingested."""
        return self.status == WHOLE

    def as_json(self) -> dict[str, Any]:
        """Plain values for a manifest."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """All sources in natural order of their names, what was found out about the set, and the worlds."""

    sources: tuple[PlannedSource, ...]
    quality: tuple[Quality, ...] = ()
    worlds: tuple[World, ...] = ()
    default_world: str | None = None
    facts: RunFacts = NO_FACTS

    def to_read(self) -> list[PlannedSource]:
        """Sources to ingest."""
        return [source for source in self.sources if source.is_read]
