"""Host ranges of a rank without device activity, classed compute or comm.

Nothing here is a GPU time. Communication is the `gloo:*`, `mpi:*` and `ucc:*` ranges of any thread; where
there are none, `record_param_comms` (not `wait`); where there are none, `c10d::*` operators. Compute is the
outermost operator ranges of every thread, without `c10d::*`, `_c10d_functional::*`, `record_param_comms` and
autograd's wrappers, whose children count instead. Source: the public contract, section 3.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankscope.store.schema import Class

from .columns import I64, Flags, Text
from .frame import Frame
from .link import operator_ranges
from .nesting import parents
from .operations import canonical_operation

_BACKEND = re.compile(r"^(gloo|mpi|ucc):")
_NOT_COMPUTE = re.compile(
    r"^(c10d::|_c10d_functional::|record_param_comms$|autograd::engine::evaluate_function)"
)


def is_backend_range(name: str) -> bool:
    """Whether a range is the work of a CPU communication backend: gloo, MPI or UCC."""
    return bool(_BACKEND.match(name))


def host_activities(frame: Frame) -> pa.Table:
    """HOST_ACTIVITIES columns of one rank (identity left out), sorted by start, thread, end and name."""
    comm, why = _comm(frame)
    compute = _compute(frame)
    rows = np.concatenate([comm, compute])
    is_comm = np.arange(len(rows)) < len(comm)
    names = frame.name.take(rows)
    order = np.lexsort((is_comm, names.codes, frame.end[rows], frame.thread.codes[rows], frame.start[rows]))
    rows, is_comm = rows[order], is_comm[order]
    return pa.table(
        {
            "tid": frame.thread.take(rows).arrow(),
            "name": frame.name.take(rows).arrow(),
            "class": _choice(is_comm, str(Class.COMM), str(Class.COMPUTE)),
            "rule": _choice(is_comm, why, "host:outermost operator"),
            "operation": _operation(frame, rows, is_comm),
            "start_ns": frame.start[rows],
            "end_ns": frame.end[rows],
            "valid": np.ones(len(rows), dtype=np.bool_),
        }
    )


def _comm(frame: Frame) -> tuple[I64, str]:
    """Event rows of communication ranges, and the rule that chose them."""
    backend = (frame.is_annotation | frame.is_operator) & frame.named(is_backend_range)
    c10d = frame.is_operator & frame.named(lambda n: n.startswith("c10d::"))
    for rows, why in (
        (backend, "host:backend annotation"),
        (frame.is_comm_record, "host:record_param_comms"),
        (c10d, "host:c10d operator"),
    ):
        if rows.any():
            return np.flatnonzero(rows).astype(np.int64), why
    return np.empty(0, dtype=np.int64), "host:c10d operator"


def _compute(frame: Frame) -> I64:
    """Event rows of the outermost operators that are no communication and no wrapper of autograd."""
    left_out = frame.named(lambda n: bool(_NOT_COMPUTE.match(n)) or is_backend_range(n))
    among = operator_ranges(frame, frame.is_operator & ~left_out)
    up = parents(replace(among, rows=np.arange(len(among.rows), dtype=np.int64)))
    return among.rows[up < 0]


def _choice(flags: Flags, yes: str, no: str) -> pa.Array:
    values = (yes, no) if yes < no else (no, yes)
    codes = np.where(flags, values.index(yes), values.index(no)).astype(np.int32)
    return Text(codes, values).arrow()


def _operation(frame: Frame, rows: I64, is_comm: Flags) -> pa.Array:
    """The operation a communication range names: by `Collective name`, else by its own name."""
    collective = pa.array(
        [*(canonical_operation(v) or v for v in frame.collective.values), None], pa.string()
    )
    named = pa.array([*(canonical_operation(v) for v in frame.name.values), None], pa.string())
    by_argument = collective.take(pa.array(_codes(frame.collective, rows, len(collective) - 1)))
    by_name = named.take(pa.array(_codes(frame.name, rows, len(named) - 1)))
    either = pc.coalesce(by_argument, by_name)
    return pc.if_else(pa.array(is_comm), either, pa.scalar(None, pa.string()))


def _codes(column: Text, rows: I64, null: int) -> I64:
    codes = column.codes[rows].astype(np.int64)
    return np.where(codes < 0, null, codes)
