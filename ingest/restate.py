"""Facts stated about a run after it was stored: the identity of its ranks under them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from rankscope.store.reader import RunStore
from rankscope.store.schema import Quality

from .coords import coordinates, coords_text, host_of_rank, local_ranks
from .facts import NO_FACTS, RunFacts, contradictions, load_facts

CONTRADICTED = "fact_contradicted"
"""Quality code of facts the traces contradict; such rows are made anew."""

Identity = dict[str, Any]


def facts_of(manifest: dict[str, Any], sets: tuple[str, ...]) -> RunFacts:
    """What was stated when the store was made, and over it what is stated now.

    Raises:
        UsageError: a text is no `key=value`, or the key or value is wrong.
    """
    known = {f.name for f in fields(RunFacts)}
    before = {k: _frozen(v) for k, v in (manifest.get("facts") or {}).items() if k in known}
    now = {k: _frozen(v) for k, v in load_facts(None, sets).stated().items()}
    return replace(NO_FACTS, **(before | now))


def _frozen(value: Any) -> Any:
    """Lists, as JSON has them, as the tuples of `RunFacts`."""
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value


def identities(store: RunStore, facts: RunFacts) -> dict[tuple[str | None, int], Identity]:
    """Host, local rank and coordinates of every (world, rank); what the facts do not say stays as stored."""
    found: dict[tuple[str | None, int], Identity] = {}
    for world in store.manifest.get("worlds") or []:
        label, size = world["label"], world["world_size"] or facts.world_size
        old = {rank: _stored(store, label, rank) for rank in store.ranks(world=label)}
        hosts = {rank: host_of_rank(rank, facts, size) or i["host"] for rank, i in old.items()}
        local = local_ranks(hosts, size, facts)
        for rank, before in old.items():
            grid = coordinates(rank, size, facts)
            found[label, rank] = {
                "host": hosts[rank],
                "local_rank": local.get(rank, before["local_rank"]),
                "coords": before["coords"] if grid is None else coords_text(grid),
            }
    return found


def _stored(store: RunStore, world: str, rank: int) -> Identity:
    """Identity as the rank's files hold it, the same in every row."""
    names = ["host", "local_rank", "coords"]
    for piece in store.pieces("events", columns=names, worlds=[world], ranks=[rank]):
        first: Identity = piece.slice(0, 1).to_pylist()[0]
        return first
    return dict.fromkeys(names)


def contradicted(
    store: RunStore, facts: RunFacts, hosts: dict[tuple[str | None, int], str | None]
) -> list[Quality]:
    """Where the facts and the traces of the default world disagree.

    Args:
        store: the run.
        facts: what is stated.
        hosts: host of every (world, rank) as the traces say.
    """
    label = store.default_world
    sizes = [w["world_size"] for w in store.manifest.get("worlds") or [] if w["label"] == label]
    own = {rank: host for (world, rank), host in hosts.items() if world == label and host is not None}
    return contradictions(facts, sizes[0] if sizes else None, own)
