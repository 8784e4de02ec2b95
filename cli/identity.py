"""What run this is, read off the sources and the breakdown: GPUs, hosts, layout, versions, ranks."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import text

VERSION_KEYS = {
    "torch": ("pytorch_version", "torch_version", "pytorch"),
    "nccl": ("nccl_version",),
    "cuda": ("cuda_runtime_version", "cuda_version"),
    "driver": ("cuda_driver_version",),
    "hip": ("hip_version", "hip_runtime_version"),
    "cupti": ("cupti_version",),
    "roctracer": ("roctracer_version", "rocprofiler-sdk_version"),
}
"""Top-level keys of a trace that name a version, by the word on screen."""
PACKED_CUDA = re.compile(r"^\d{5}$")
PACKED_HIP = re.compile(r"^\d{8}$")
AXIS = re.compile(r"^([a-z]+)(\d+)$")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Identity:
    """The run in a few facts.

    Attributes:
        gpus: device names with the number of (rank, device) pairs that have each; unknown names under `GPU`.
        host_ranks: ranks analysed on their host timeline (no device activity).
        hosts: host names known.
        layout: sizes of the parallel axes seen in the coordinates, such as `tp2 pp2 dp2`.
        versions: word and version, for instance `("nccl", "2.21.5")`; several values are joined by a slash.
        ranks: ranks with data.
        world_size: ranks the run has in all, None where no file says it.
        windows: captures.
        backends: communication backends the files name.
        other_worlds: worlds in the same place that are not looked at.
    """

    gpus: dict[str, int]
    host_ranks: int
    hosts: list[str]
    layout: str
    versions: list[tuple[str, str]]
    ranks: list[int]
    world_size: int | None
    windows: int
    backends: list[str]
    other_worlds: list[str]


def identity(sources: Sequence[Row], windows: Sequence[Row]) -> Identity:
    """The run's facts from its sources and its breakdown rows (any order of either)."""
    seen = {(r["rank"], r["device"]): r for r in windows if r.get("timeline") != "host"}
    host_ranks = {r["rank"] for r in windows if r.get("timeline") == "host"}
    used = {r["world"] for r in windows if r.get("world") is not None}
    ranked = [s for s in sources if s["rank"] is not None]
    read = [s for s in ranked if not used or s["world"] in used]
    metadata = [metadata_of(s) for s in read]
    return Identity(
        gpus=dict(sorted(Counter(str(r.get("gpu") or "GPU") for r in seen.values()).items())),
        host_ranks=len(host_ranks),
        hosts=sorted({s["host"] for s in read if s.get("host")}),
        layout=layout(r.get("coords") for r in windows),
        versions=_versions(metadata),
        ranks=sorted({r["rank"] for r in windows if r["rank"] is not None}),
        world_size=max((s["world_size"] for s in read if s.get("world_size")), default=None),
        windows=len({r["window"] for r in windows if r.get("window") is not None}) or 1,
        backends=sorted({s["backend"] for s in read if s.get("backend")}),
        other_worlds=sorted({s["world"] for s in ranked if s["world"] is not None} - used) if used else [],
    )


def layout(coords: Iterable[str | None]) -> str:
    """`tp2 pp2 dp2` from coordinates such as `tp1.pp0.dp1`: one more than the largest of each axis."""
    sizes: dict[str, int] = {}
    for coordinate in coords:
        for part in (coordinate or "").split("."):
            match = AXIS.match(part)
            if match:
                sizes[match[1]] = max(sizes.get(match[1], 0), int(match[2]) + 1)
    return " ".join(f"{axis}{size}" for axis, size in sizes.items())


def devices_text(who: Identity) -> str:
    """`8 x NVIDIA A100-SXM4-40GB`, `4 ranks on CPU`; both where both are."""
    found = [f"{n} x {text.clean(name)}" for name, n in who.gpus.items()]
    if who.host_ranks:
        found.append(f"{text.count(who.host_ranks, 'rank')} on CPU (host times only)")
    return ", ".join(found) or "no activity"


def ranks_text(who: Identity) -> str:
    """`ranks 0-7 of 8`, `rank 0 of 64 (63 missing)`."""
    word = "rank" if len(who.ranks) == 1 else "ranks"
    shown = f"{word} {text.ranges(who.ranks)}" if who.ranks else "no ranks"
    if who.world_size is None:
        return shown
    missing = who.world_size - len(who.ranks)
    return f"{shown} of {who.world_size}" + (f" ({missing} missing)" if missing > 0 else "")


def worlds_text(who: Identity) -> str:
    """`other worlds here: replica1 (--world)`; empty when there is one."""
    if not who.other_worlds:
        return ""
    named = ", ".join(text.clean(w) for w in who.other_worlds[:3])
    more = f" and {len(who.other_worlds) - 3} more" if len(who.other_worlds) > 3 else ""
    return f"other worlds here: {named}{more} (--world)"


def versions_text(who: Identity) -> str:
    """`nccl 2.21.5, cuda 12.1`."""
    return ", ".join(f"{word} {text.clean(version)}" for word, version in who.versions)


def metadata_of(source: Row) -> dict[str, Any]:
    """The file's top-level keys; empty where there are none or they are no object."""
    try:
        found = json.loads(source.get("metadata") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _versions(metadata: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    found = []
    for word, keys in VERSION_KEYS.items():
        values = {_version(place[k]) for m in metadata for place in _places(m) for k in keys if place.get(k)}
        if values:
            found.append((word, "/".join(sorted(values))))
    return found


def _places(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Top level, and the objects in which versions are also written."""
    inner = [metadata.get(k) for k in ("distributedInfo", "metadata")]
    return [metadata, *(m for m in inner if isinstance(m, Mapping))]


def _version(value: Any) -> str:
    """A version as text; CUDA's packed integers (12010) read as 12.1."""
    shown = str(value).strip()
    if PACKED_CUDA.match(shown):
        return f"{int(shown) // 1000}.{int(shown) % 1000 // 10}"
    if PACKED_HIP.match(shown):
        return f"{int(shown) // 10**7}.{int(shown) % 10**7 // 10**5}"
    return shown[:40]


def groups_of(sources: Sequence[Row]) -> list[str]:
    """Process groups the files declare (`distributedInfo.pg_config`), each once: name, description, ranks."""
    from rankscope.ingest.walk import natural_key  # groups are named by number: 2 goes before 10

    found: set[tuple[str, str, str]] = set()
    for source in sources:
        info = metadata_of(source).get("distributedInfo")
        declared = info.get("pg_config") if isinstance(info, Mapping) else None
        for group in declared if isinstance(declared, list) else []:
            if isinstance(group, Mapping):
                found.add(_group(group))
    return [
        ": ".join(p for p in (name, f"{what}, {ranks}".strip(", ")) if p)
        for name, what, ranks in sorted(found, key=lambda g: (natural_key(g[0]), g))
    ]


def _group(group: Mapping[str, Any]) -> tuple[str, str, str]:
    ranks = group.get("ranks")
    numbers = [r for r in ranks if isinstance(r, int)] if isinstance(ranks, list) else []
    shown = (
        f"ranks {text.ranges(numbers)}"
        if numbers
        else f"{group.get('group_size', group.get('pg_size', '?'))} ranks"
    )
    return str(group.get("pg_name", "")), text.clean(str(group.get("pg_desc", ""))), shown
