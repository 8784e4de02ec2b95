"""The sums that every row of the breakdown must satisfy, checked on every row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rankscope.store.errors import ClosureError
from rankscope.store.schema import CAUSES, FULL_CAUSES, PARTS

from .intervals import I64, Flags
from .tables import ints

EXPOSED = ("transfer_ns", "pipeline_wait_ns", "straggler_wait_ns", "unsplit_comm_ns")
"""The parts of exposed communication."""

SUMS = {
    "the five parts = wall_ns": (PARTS, "wall_ns"),
    "the parts of exposed communication = exposed_comm_ns": (EXPOSED, "exposed_comm_ns"),
    "the causes = idle_ns": ((*CAUSES, *FULL_CAUSES), "idle_ns"),
    "compute_only_ns + overlap_ns = compute_ns": (("compute_only_ns", "overlap_ns"), "compute_ns"),
    "overlap_ns + exposed_comm_ns = communication_ns": (("overlap_ns", "exposed_comm_ns"), "communication_ns"),
    "bubble_min_ns + unsplit_comm_ns = bubble_max_ns": (("bubble_min_ns", "unsplit_comm_ns"), "bubble_max_ns"),
    "idle_ns + waits = graph_gap_ns + bubble_min_ns": (
        ("idle_ns", "pipeline_wait_ns", "straggler_wait_ns"),
        ("graph_gap_ns", "bubble_min_ns"),
    ),
    "the parts with the bubble = wall_ns": (
        ("compute_only_ns", "overlap_ns", "transfer_ns", "unsplit_comm_ns", "exposed_memcpy_ns", "graph_gap_ns",
         "bubble_min_ns"),
        "wall_ns",
    ),
}  # fmt: skip
"""What is checked: the sum of the first columns is the second, wherever that is known."""


def check_closure(rows: pa.Table) -> None:
    """Nothing, when every row's parts sum to their whole in integers and no part is negative.

    Raises:
        ClosureError: naming the identity and the first row that breaks it.
    """
    values = {c: ints(rows, c) for c in rows.column_names if c.endswith("_ns")}

    def total(names: Sequence[str]) -> I64:
        return np.asarray(sum(values[c][0] for c in names if c in values), dtype=np.int64)

    for identity, (parts, whole) in SUMS.items():
        wholes = (whole,) if isinstance(whole, str) else whole
        known = np.logical_and.reduce([values[w][1] for w in wholes])
        _refuse(rows, known & (total(parts) != total(wholes)), identity)
    for name in (*PARTS, *EXPOSED, *CAUSES, *FULL_CAUSES, "memcpy_ns", "bubble_min_ns"):
        if name in values:
            _refuse(rows, values[name][0] < 0, f"{name} is not negative")
    _refuse(rows, total(("memcpy_ns",)) < total(("exposed_memcpy_ns",)), "exposed_memcpy_ns <= memcpy_ns")
    bubble, known = values["bubble_ns"]
    _refuse(rows, known & (bubble != total(("bubble_min_ns",))), "bubble_ns = bubble_min_ns where known")


def _refuse(rows: pa.Table, broken: Flags, identity: str) -> None:
    if not broken.any():
        return
    row = {k: v[0] for k, v in rows.slice(int(np.flatnonzero(broken)[0]), 1).to_pydict().items()}
    place = ", ".join(
        f"{k} {row[k]}" for k in ("world", "rank", "device", "window", "step") if row.get(k) is not None
    )
    values = ", ".join(f"{k}={v}" for k, v in row.items() if k.endswith("_ns") and v)
    raise ClosureError(
        f"breakdown does not close: {identity} fails at {place or 'a row'} ({values})",
        hint="this is a defect of Rankscope, not of the trace; please report it with this line",
    )
