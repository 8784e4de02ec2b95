"""Parallelism coordinates and local ranks of a rank: stated by the user or by names, never guessed."""

from __future__ import annotations

from collections.abc import Mapping

from .facts import RunFacts, world_product

SHOWN = ("tp", "cp", "ep", "pp", "fsdp", "dp")
"""Order of the parts of a coordinate text such as tp1.pp0.dp3."""


def coords_text(indices: Mapping[str, int]) -> str | None:
    """`tp1.pp0.dp3` from indices by dimension; None when there is none."""
    return ".".join(f"{dim}{indices[dim]}" for dim in SHOWN if dim in indices) or None


def coordinates(rank: int, world_size: int | None, facts: RunFacts) -> dict[str, int] | None:
    """Indices of a rank in the grid the user stated.

    Rank = sum of index x stride over the dimensions in `order`, the first fastest (Megatron's
    `tp-cp-ep-dp-pp`). An unstated data dimension takes what is left of the world. Expert indices come from
    the second grid, etp-ep-(rest)-pp. Dimensions of size 1 are left out.

    Returns:
        Index by dimension; None when nothing is stated, the world size is unknown or does not fit.
    """
    product = world_product(facts)
    size = world_size if world_size is not None else (product if facts.dp is not None else None)
    if product is None or size is None or size % product or not 0 <= rank < size:
        return None
    if facts.dp is not None and product != size:
        return None
    sizes = {dim: facts.size(dim) or 1 for dim in facts.dims() if dim != "ep"}
    if facts.dp is None:
        sizes["dp"] = size // product
    indices = _digits(rank, sizes)
    if facts.ep is not None and facts.ep > 1:
        expert = _expert(rank, size, facts)
        if expert is None:
            return None
        indices["ep"] = expert
    return {dim: index for dim, index in indices.items() if dim == "ep" or sizes[dim] > 1}


def _digits(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    indices = {}
    for dim, size in sizes.items():
        indices[dim], rank = rank % size, rank // size
    return indices


def _expert(rank: int, world_size: int, facts: RunFacts) -> int | None:
    """Expert index in the expert grid, whose dimensions keep the stated order; etp defaults to tp."""
    inner, stages, experts = facts.etp or facts.tp or 1, facts.pp or 1, facts.ep or 1
    if world_size % (inner * experts * stages):
        return None
    known = {"tp": inner, "ep": experts, "pp": stages, "dp": world_size // (inner * experts * stages)}
    return _digits(rank, {dim: known[dim] for dim in facts.dims() if dim in known})["ep"]


def host_of_rank(rank: int, facts: RunFacts, world_size: int | None) -> str | None:
    """Host the user stated for a rank: of the table, else of the list in blocks of `gpus_per_host`."""
    stated = dict(facts.host_of)
    if rank in stated:
        return stated[rank]
    per_host = facts.gpus_per_host
    if per_host is None and facts.hosts and world_size and world_size % len(facts.hosts) == 0:
        per_host = world_size // len(facts.hosts)
    if per_host is None or rank // per_host >= len(facts.hosts):
        return None
    return facts.hosts[rank // per_host]


def local_ranks(hosts: Mapping[int, str | None], world_size: int | None, facts: RunFacts) -> dict[int, int]:
    """Local rank by rank, where it is certain.

    From `gpus_per_host`, else when every rank of the world is here, each with a host, and every host holds
    one unbroken block of the same length: local rank = rank - first rank of its block.

    Args:
        hosts: host by rank of one world. world_size: None when unknown.
        facts: what the user stated.
    """
    if facts.gpus_per_host is not None:
        return {rank: rank % facts.gpus_per_host for rank in hosts}
    if world_size != len(hosts) or set(hosts) != set(range(len(hosts))) or None in hosts.values():
        return {}
    blocks: dict[str | None, list[int]] = {}
    for rank in sorted(hosts):
        blocks.setdefault(hosts[rank], []).append(rank)
    is_even = len({len(block) for block in blocks.values()}) == 1
    if not is_even or any(block[-1] - block[0] + 1 != len(block) for block in blocks.values()):
        return {}
    return {rank: rank - block[0] for block in blocks.values() for rank in block}
