"""Process groups of the layout: members, names, roles, and the link they run over."""

from __future__ import annotations

from dataclasses import dataclass

from .model import Layout, SimulationConfig

_MEGATRON = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
    "dp_cp": "DATA_PARALLEL_GROUP_WITH_CP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "edp": "EXPERT_DATA_PARALLEL_GROUP",
}
_ROLE = {"tp": "TP", "cp": "CP", "pp": "PP", "ep": "EP", "edp": "DP", "world": "other"}


@dataclass(frozen=True, eq=False)
class Group:
    """One process group.

    Attributes:
        axis: world, tp, cp, dp (or dp_cp when context parallelism shares gradients), pp, ep, edp.
        index: ordinal among the groups of its axis.
        pg_name: name as PyTorch gives it: the ordinal of its creation.
        hosts: hosts its members are on.
    """

    axis: str
    index: int
    pg_name: str
    pg_desc: str
    role: str
    ranks: tuple[int, ...]
    hosts: frozenset[int]

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ranks)

    @property
    def is_inter_host(self) -> bool:
        """Whether members are on different hosts."""
        return len(self.hosts) > 1


def build_groups(config: SimulationConfig) -> list[Group]:
    """All groups with more than one member (and the world), in order of creation."""
    lay = config.layout
    keys = _axis_keys(lay)
    out = [_group(config, "world", 0, 0, tuple(range(lay.world)))]
    for axis, fixed in keys.items():
        lines: dict[tuple[int, ...], list[int]] = {}
        for rank in range(lay.world):
            place = lay.place(rank)
            place["edp"], place["ep_block"] = place["dp"] // lay.ep, place["dp"] // lay.ep
            lines.setdefault(tuple(place[k] for k in fixed), []).append(rank)
        members = sorted(tuple(r) for r in lines.values())
        if len(members[0]) > 1:
            out += [_group(config, axis, i, len(out) + i, r) for i, r in enumerate(members)]
    return out


def _axis_keys(lay: Layout) -> dict[str, tuple[str, ...]]:
    """Which coordinates are fixed along each axis."""
    grads = "dp_cp" if lay.cp > 1 else "dp"
    keys: dict[str, tuple[str, ...]] = {
        "tp": ("cp", "dp", "pp"),
        "cp": ("tp", "dp", "pp"),
        grads: ("tp", "pp") if lay.cp > 1 else ("tp", "cp", "pp"),
        "pp": ("tp", "cp", "dp"),
    }
    if lay.ep > 1:
        keys["ep"] = ("tp", "cp", "pp", "ep_block")
        keys["edp"] = ("tp", "pp", "ep")
    return keys


def _group(config: SimulationConfig, axis: str, index: int, number: int, ranks: tuple[int, ...]) -> Group:
    lay = config.layout
    mesh = {"dp": "dp_shard" if lay.fsdp else "dp", "dp_cp": "dp_shard_cp" if lay.fsdp else "dp_cp"}
    desc = {
        "mesh": f"mesh_{mesh.get(axis, axis)}",
        "megatron": _MEGATRON.get(axis, axis),
        "undefined": "undefined",
    }[config.group_names]
    return Group(
        axis,
        index,
        str(number),
        "default_pg" if axis == "world" else desc,
        _ROLE.get(axis, "FSDP" if lay.fsdp else "DP"),
        ranks,
        frozenset(config.host_of(r) for r in ranks),
    )


def groups_by_rank(groups: list[Group], world: int) -> list[dict[str, Group]]:
    """Per rank, its group on each axis."""
    out: list[dict[str, Group]] = [{} for _ in range(world)]
    for group in groups:
        for rank in group.ranks:
            out[rank][group.axis] = group
    return out


def grad_axis(layout: Layout) -> str:
    """The axis along which gradients are reduced."""
    return "dp_cp" if layout.cp > 1 else "dp"
