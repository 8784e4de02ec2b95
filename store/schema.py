"""What a run is: every stored table, its columns, types and meaning, in one place.

All times are absolute `int64` nanoseconds, unknown is null. The documentation's schema page is
generated from this module, the writer enforces it, the contract tests check every reader against it.
"""

from __future__ import annotations

import pyarrow as pa

from .kinds import Class as Class
from .kinds import Column as Column
from .kinds import CopyKind as CopyKind
from .kinds import Quality as Quality
from .kinds import Severity as Severity
from .kinds import TableSchema as TableSchema
from .kinds import Timeline as Timeline

SCHEMA_VERSION = 1
"""Raised when stored columns change meaning; a store of another version is refused (StoreVersion)."""

TEXT = pa.dictionary(pa.int32(), pa.string())
"""Text that repeats: dictionary coded."""

I64 = pa.int64()


def _columns(*rows: tuple[str, pa.DataType, str]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


IDENTITY = _columns(
    ("rank", I64, "global rank; in a store it is the partition folder `rank=N`, not a column of the file"),
    ("host", TEXT, "host name, null where unknown"),
    ("local_rank", I64, "rank within its host, null where unknown"),
    ("device", I64, "device index as the trace gives it (physical, not the rank); null on host timelines"),
    ("gpu", TEXT, "device name, null where the file does not say"),
    ("coords", TEXT, "parallelism coordinates such as tp1.pp0.dp3, null where unknown"),
)

PLACE = _columns(
    ("world", TEXT, "which of several jobs or replicas in one directory; '0' when there is one"),
    ("window", I64, "ordinal of the capture, in time order"),
)

RAW_EVENTS = TableSchema(
    "raw_events",
    "What a scanner yields, batch by batch: one row per trace event, times relative to the file's base.",
    _columns(
        ("pid", TEXT, "process id, the file's text"),
        ("tid", TEXT, "thread or stream id, the file's text"),
        ("cat", TEXT, "category, in the present spelling (old spellings are mapped); null when absent"),
        ("name", TEXT, "name, with broken escapes repaired"),
        ("ph", TEXT, "phase: X, B, E, i, M, s, f, C ..."),
        ("start_ns", I64, "`ts` in ns, exact; null when absent or not a number"),
        (
            "dur_ns",
            I64,
            "`dur` in ns as recorded (may be negative); of a paired B event E minus B; null when absent",
        ),
        ("correlation", I64, "links a launch call to its device activities"),
        ("external_id", I64, "External id"),
        ("device", I64, "args: device"),
        ("stream", I64, "args: stream, else the number in a `stream 7` tid"),
        ("graph_id", I64, "args: graph id, null when 0 (outside graphs)"),
        ("graph_node_id", I64, "args: graph node id, null when 0"),
        ("bytes", I64, "args: bytes (copies, memsets)"),
        ("collective", TEXT, "args: Collective name"),
        ("pg", TEXT, "args: Process Group Name (older: Process Group ID)"),
        ("pg_description", TEXT, "args: Process Group Description"),
        ("pg_ranks", TEXT, "args: Process Group Ranks, the file's text"),
        ("group_size", I64, "args: Group size"),
        ("in_nelems", I64, "args: In msg nelems"),
        ("out_nelems", I64, "args: Out msg nelems"),
        ("in_split", TEXT, "args: In split size, the file's text"),
        ("out_split", TEXT, "args: Out split size, the file's text"),
        ("dtype", TEXT, "args: dtype"),
        ("seq", I64, "args: Seq"),
        ("src_rank", I64, "args: Src Rank"),
        ("dst_rank", I64, "args: Dst Rank"),
        ("comms_id", TEXT, "args: Comms Id, the file's text"),
        ("is_async", pa.bool_(), "args: Is asynchronized op"),
        ("python_id", I64, "args: Python id"),
        ("python_parent_id", I64, "args: Python parent id"),
        ("wait_on_stream", I64, "args of cuda_sync: wait_on_stream"),
        ("wait_on_correlation", I64, "args of cuda_sync: wait_on_cuda_event_record_corr_id"),
        ("extra", pa.string(), "JSON object of everything else, values verbatim; null when nothing is left"),
    ),
)

EVENTS = TableSchema(
    "events",
    "Every event of the trace, nothing dropped.",
    (
        *(c for c in IDENTITY if c.name != "device"),
        *PLACE,
        *(
            Column(
                c.name,
                c.type,
                c.meaning if c.name != "start_ns" else "absolute start: ts + baseTimeNanoseconds",
            )
            for c in RAW_EVENTS.columns
        ),
        *_columns(
            ("valid", pa.bool_(), "false: its time is impossible (quality says why) and enters no sum")
        ),
    ),
)

ACTIVITIES = TableSchema(
    "activities",
    "Device activity: kernels, copies and memsets, classed and linked to their launch.",
    (
        *IDENTITY,
        *PLACE,
        *_columns(
            ("stream", I64, "stream"),
            ("name", TEXT, "kernel or copy name"),
            ("class", TEXT, "compute, comm or memcpy"),
            ("copy_kind", TEXT, "h2d, d2h, d2d, p2p, h2h, memset; null for kernels"),
            ("rule", TEXT, "the rule that decided the class"),
            ("role", TEXT, "parallelism role where the name tells it (EP for DeepEP ...), else null"),
            ("operation", TEXT, "communication operation where the name or metadata tells it, else null"),
            ("start_ns", I64, "absolute start"),
            ("end_ns", I64, "absolute end, clipped to the successor where the record is a late stamp"),
            ("recorded_end_ns", I64, "end as recorded; null when not representable"),
            ("correlation", I64, "correlation id"),
            ("graph_id", I64, "CUDA/HIP graph id, null outside graphs or where the file has none"),
            ("launch_id", I64, "row of `launches` in the same rank and window; null without launch record"),
            ("launch_start_ns", I64, "start of that launch call"),
            ("launch_tid", TEXT, "thread of that launch call, as `pid/tid`"),
            ("op", TEXT, "innermost host operator around the launch call"),
            ("step", I64, "step in whose host window the launch began; null without steps or launch"),
            ("valid", pa.bool_(), "false: its time is impossible and enters no sum"),
            ("bytes", I64, "bytes copied or set"),
            ("collective", TEXT, "Collective name, from the kernel or from the call that launched it"),
            ("pg", TEXT, "process group name"),
            ("pg_description", TEXT, "process group description"),
            ("pg_ranks", TEXT, "process group ranks, the file's text"),
            ("group_size", I64, "group size"),
            ("in_nelems", I64, "input elements"),
            ("out_nelems", I64, "output elements"),
            ("in_split", TEXT, "input split sizes, the file's text"),
            ("out_split", TEXT, "output split sizes, the file's text"),
            ("in_bytes", I64, "input bytes = in_nelems x element size; null when either is unknown"),
            ("out_bytes", I64, "output bytes = out_nelems x element size; null when either is unknown"),
            ("dtype", TEXT, "element type"),
            ("seq", I64, "sequence number in the group"),
            ("src_rank", I64, "source rank of a point-to-point call or root"),
            ("dst_rank", I64, "destination rank"),
            ("comms_id", TEXT, "identity of the call in newer PyTorch"),
            ("is_async", pa.bool_(), "whether the caller did not block"),
        ),
    ),
)

HOST_ACTIVITIES = TableSchema(
    "host_activities",
    "Host ranges of a rank without device activity, classed compute or comm; times are host times.",
    (
        *IDENTITY,
        *PLACE,
        *_columns(
            ("tid", TEXT, "thread, as `pid/tid`"),
            ("name", TEXT, "range name"),
            ("class", TEXT, "compute or comm"),
            ("rule", TEXT, "why"),
            ("operation", TEXT, "communication operation, else null"),
            ("start_ns", I64, "absolute start"),
            ("end_ns", I64, "absolute end"),
            ("valid", pa.bool_(), "false: impossible time"),
        ),
    ),
)

LAUNCHES = TableSchema(
    "launches",
    "Host calls that put work on a device: one row per call, whatever number of activities it caused.",
    (
        *IDENTITY,
        *PLACE,
        *_columns(
            ("launch_id", I64, "row number in this rank and window, in time order"),
            ("tid", TEXT, "thread, as `pid/tid`"),
            ("name", TEXT, "name of the call"),
            ("start_ns", I64, "absolute start"),
            ("end_ns", I64, "absolute end"),
            ("correlation", I64, "correlation id"),
            (
                "n_activities",
                I64,
                "device activities with this correlation; 0 for a launch whose work is not recorded",
            ),
            ("op", TEXT, "innermost host operator around the call"),
            ("launch_delay_ns", I64, "first activity's start - launch's start; null without activity"),
        ),
    ),
)

STEPS = TableSchema(
    "steps",
    "Step windows; they tile each device's timeline (METHOD 1.4).",
    (
        *IDENTITY,
        *PLACE,
        *_columns(
            ("step", I64, "step number of the source, else the ordinal"),
            ("phase", TEXT, "prefill, decode or mixed (inference), else null"),
            (
                "source",
                TEXT,
                "regex, profiler_step, inference, optimizer, sequence (inferred), none (one step)",
            ),
            ("timeline", TEXT, "device or host"),
            ("start_ns", I64, "window start"),
            ("end_ns", I64, "window end"),
            ("host_start_ns", I64, "start of the host range that defines the step; null when inferred"),
        ),
    ),
)

SOURCES = TableSchema(
    "sources",
    "The files of the run and what became of each.",
    _columns(
        ("path", pa.string(), "relative to the run"),
        ("kind", TEXT, "torch_profiler, frontend, other"),
        ("rank", I64, "rank, null when the file has none"),
        ("rank_source", TEXT, "distributed_info, name or assumed"),
        ("world", TEXT, "world"),
        ("window", I64, "window"),
        ("host", TEXT, "host name"),
        ("world_size", I64, "world size as the file says"),
        ("backend", TEXT, "backend as the file says"),
        ("n_events", I64, "events recovered"),
        ("n_activities", I64, "device activities recovered"),
        ("status", TEXT, "whole, truncated, empty, skipped or refused"),
        ("reason", pa.string(), "why it is not whole"),
        ("base_ns", I64, "baseTimeNanoseconds, 0 when absent"),
        ("start_ns", I64, "first valid event's start"),
        ("end_ns", I64, "last valid event's end"),
        (
            "pre_ns",
            I64,
            "device time before the first step (first step start - first activity start, at least 0)",
        ),
        ("bytes", I64, "size on disk"),
        ("scanner", TEXT, "which scanner read it"),
        (
            "metadata",
            pa.string(),
            "JSON of the file's top-level keys (devices, versions, groups, user metadata)",
        ),
    ),
)

QUALITY = TableSchema(
    "quality",
    "Whatever was repaired, dropped, clipped, guessed, unmatched or unclassified.",
    _columns(
        ("code", TEXT, "stable word"),
        ("severity", TEXT, "info, warning or error"),
        ("rank", I64, "rank, null for the run"),
        ("count", I64, "how many"),
        ("example", pa.string(), "one of them"),
        ("effect", pa.string(), "what it does to the numbers"),
        ("path", pa.string(), "source file, relative to the run"),
    ),
)

STORED = {t.name: t for t in (EVENTS, ACTIVITIES, HOST_ACTIVITIES, LAUNCHES, STEPS, SOURCES, QUALITY)}
"""Stored tables by name. All but `sources` and `quality` are partitioned by rank."""

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
"""Canonical categories of device activity (CONTRACT section 3)."""

PARTS = ("compute_only_ns", "overlap_ns", "exposed_comm_ns", "exposed_memcpy_ns", "idle_ns")
"""The five parts of a window (CONTRACT section 5); they sum to `wall_ns` on every row."""

CAUSES = (
    "pipeline_idle_ns",
    "data_loading_ns",
    "checkpoint_ns",
    "host_sync_ns",
    "gc_ns",
    "host_dispatch_ns",
    "host_other_ns",
    "launch_latency_ns",
    "kernel_gap_ns",
    "graph_gap_ns",
    "dependency_wait_ns",
    "tail_ns",
    "device_other_ns",
    "unattributed_ns",
)
"""Causes of idle time, in the order of CONTRACT section 5; they sum to `idle_ns`."""

FULL_CAUSES = ("allocator_ns", "compile_ns", "host_comm_wait_ns")
"""With `--causes full`: parts of host_dispatch (first two) and host_other (last) shown apart."""

BREAKDOWN = TableSchema(
    "breakdown",
    "Where every nanosecond of a window went. The five parts sum to wall_ns exactly.",
    (
        *IDENTITY,
        *PLACE,
        *_columns(
            ("step", I64, "step; null with --steps none"),
            ("phase", TEXT, "inference phase"),
            ("timeline", TEXT, "device or host"),
            ("wall_ns", I64, "window length"),
            ("compute_only_ns", I64, "compute without communication"),
            ("overlap_ns", I64, "compute and communication together"),
            ("exposed_comm_ns", I64, "communication without compute"),
            ("exposed_memcpy_ns", I64, "copies and memsets alone"),
            ("idle_ns", I64, "nothing on the device"),
            ("compute_ns", I64, "union of compute"),
            ("communication_ns", I64, "union of communication; null when issued but not recorded"),
            ("memcpy_ns", I64, "union of copies and memsets"),
            ("overlap_ratio", pa.float64(), "overlap / communication; null without communication"),
            ("transfer_ns", I64, "exposed communication that moved data"),
            ("pipeline_wait_ns", I64, "exposed communication waiting in the pipeline's group"),
            ("straggler_wait_ns", I64, "exposed communication waiting for peers elsewhere"),
            ("unsplit_comm_ns", I64, "exposed communication whose waiting part is unknown"),
            *((c, I64, f"idle time: {c[:-3].replace('_', ' ')}") for c in CAUSES),
            (
                "bubble_ns",
                I64,
                "idle - graph_gap + pipeline_wait + straggler_wait; null while unsplit_comm_ns > 0",
            ),
            ("bubble_min_ns", I64, "the same, at least"),
            ("bubble_max_ns", I64, "bubble_min_ns + unsplit_comm_ns"),
            ("pipeline_bubble_ns", I64, "pipeline_wait + pipeline_idle"),
            (
                "is_comm_recorded",
                pa.bool_(),
                "false: communication was issued but none was recorded on the device",
            ),
            ("n", I64, "windows summed in this row"),
        ),
    ),
)


def empty(schema: TableSchema) -> pa.Table:
    """A table of no rows with the schema's columns."""
    return schema.arrow.empty_table()


def conform(table: pa.Table, schema: TableSchema) -> pa.Table:
    """The table with exactly the schema's columns, in order, cast; absent columns become null.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit the column's type.
    """
    n = table.num_rows
    names = set(table.column_names)
    nothing: dict[pa.DataType, pa.Array] = {}  # absent columns share one block of nulls for each type
    arrays = []
    for column in schema.columns:
        if column.name in names:
            arrays.append(table.column(column.name).cast(column.type))
        else:
            arrays.append(_nulls(nothing, n, column.type))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _nulls(known: dict[pa.DataType, pa.Array], n: int, kind: pa.DataType) -> pa.Array:
    if kind not in known:
        known[kind] = pa.nulls(n, kind)
    return known[kind]
