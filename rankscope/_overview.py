"""What a run is, without any analysis: its files as a dataset, and one row per world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rankscope.ingest.ranks import compact
from rankscope.store import layout
from rankscope.store.reader import RunStore
from rankscope.store.schema import STORED

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

INFO = pa.schema(
    [
        ("world", pa.string()),
        ("is_default", pa.bool_()),
        ("world_size", pa.int64()),
        ("n_ranks", pa.int64()),
        ("ranks", pa.string()),
        ("missing_ranks", pa.string()),
        ("n_windows", pa.int64()),
        ("is_pooled", pa.bool_()),
        ("step_source", pa.string()),
        ("n_steps", pa.int64()),
        ("timeline", pa.string()),
        ("hosts", pa.string()),
        ("devices", pa.string()),
        ("versions", pa.string()),
    ]
)
"""Columns of `info`: one row per world."""


def dataset_of(store: RunStore, name: str) -> Dataset:
    """A stored table as a dataset over exactly the files the manifest names, rank from the folder."""
    from pyarrow import dataset

    schema = STORED[name].arrow if name in STORED else None
    paths = [store.place.path(p.path) for p in store.parts(name)]
    partitioning = None
    if name in layout.PARTITIONED:
        partitioning = dataset.partitioning(pa.schema([("rank", pa.int64())]), flavor="hive")
    return dataset.dataset(
        paths,
        schema=schema,
        format="parquet",
        filesystem=store.place.filesystem,
        partitioning=partitioning,
        # Without it a folder above the store whose name looks like `rank=3` would be taken for a partition.
        partition_base_dir=store.place.path(),
    )


def info(store: RunStore) -> pa.Table:
    """One row per world, with text lists such as `0-3,7`; null where unknown.

    Returns:
        `world, is_default, world_size, n_ranks, ranks, missing_ranks, n_windows, is_pooled, step_source,
        n_steps, timeline, hosts, devices, versions`.
    """
    steps = store.table("steps", columns=["world", "rank", "window", "step", "source", "timeline"])
    sources = store.table("sources", columns=["world", "rank", "host", "status"])
    rows = [_row(store, world, steps, sources) for world in store.manifest.get("worlds") or []]
    return pa.Table.from_pylist(rows, schema=INFO)


def _row(store: RunStore, world: dict[str, Any], steps: pa.Table, sources: pa.Table) -> dict[str, Any]:
    label, size = world["label"], world["world_size"]
    own = steps.filter(pc.equal(steps.column("world").cast(pa.string()), label))
    here = sources.filter(pc.equal(sources.column("world").cast(pa.string()), label))
    ranks = store.ranks(world=label)
    missing = sorted(set(range(size)) - set(ranks)) if size is not None and size <= 1 << 20 else []
    return {
        "world": label,
        "is_default": label == store.default_world,
        "world_size": size,
        "n_ranks": len(ranks),
        "ranks": compact(ranks) or None,
        "missing_ranks": compact(missing) or None,
        "n_windows": world["n_windows"],
        "is_pooled": world["is_pooled"],
        "step_source": _values(own, "source"),
        "n_steps": own.group_by(["window", "step"]).aggregate([]).num_rows,
        "timeline": _values(own, "timeline"),
        "hosts": _values(here, "host"),
        "devices": ", ".join(store.manifest.get("devices") or []) or None,
        "versions": _versions(store.manifest.get("versions") or {}),
    }


def _values(table: pa.Table, column: str) -> str | None:
    """The distinct values of a text column, sorted; None when there are none."""
    found = {v for v in pc.unique(table.column(column).cast(pa.string())).to_pylist() if v is not None}
    return ", ".join(sorted(found)) or None


def _versions(versions: dict[str, list[str]]) -> str | None:
    named = [f"{name} {'/'.join(values)}" for name, values in sorted(versions.items())]
    return ", ".join(named) or None
