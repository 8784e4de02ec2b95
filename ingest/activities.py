"""Device activities: one row per kernel, copy or memset, classed, linked and with damaged ends clipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankscope.store.schema import DEVICE_CATEGORIES, Class

from .classify import EVIDENCE, Classes, Rules, classify
from .columns import I32, I64, LARGEST, Flags, Text, integer_array, ints_at, text
from .comm_meta import comm_metadata
from .frame import Frame
from .link import Context, Links
from .operations import canonical_operation

LATE_STAMPS = 3
"""An activity that contains this many later ones of its own stream has a late completion stamp."""


@dataclass(frozen=True)
class Activities:
    """Device activities in the frame's order, as the columns that later stages compute with.

    Attributes:
        links: launch of each.
        context: what surrounds each launch call.
        device, has_device: device index, and whether it is known.
        stream, has_stream: stream, and whether it is known.
        start, end: absolute ns; ends are clipped where the stamp is late.
        valid: whether the time may enter sums.
        clipped: whether the end was clipped.
        classes: what each is.
    """

    links: Links
    context: Context
    device: I64
    has_device: Flags
    stream: I64
    has_stream: Flags
    start: I64
    end: I64
    valid: Flags
    clipped: Flags
    classes: Classes

    @property
    def devices(self) -> list[int]:
        """Devices with valid activity, ascending."""
        found: list[int] = np.unique(self.device[self.valid & self.has_device]).tolist()
        return found


def activities(frame: Frame, links: Links, around: Context, rules: Rules) -> Activities:
    """Class every device activity and clip late completion stamps."""
    rows = links.activities
    device, has_device = _device(frame, rows)
    stream, has_stream = _stream(frame, rows)
    start, end = frame.start[rows], frame.end[rows]
    valid = frame.valid[rows]
    clipped_end = late_stamps(_lanes(device, stream, has_device & has_stream), start, end, valid)
    return Activities(
        links=links,
        context=around,
        device=device,
        has_device=has_device,
        stream=stream,
        has_stream=has_stream,
        start=start,
        end=clipped_end,
        valid=valid,
        clipped=clipped_end != end,
        classes=_classes(frame, rows, _evidence(frame, links, around), rules),
    )


def _device(frame: Frame, rows: I64) -> tuple[I64, Flags]:
    """args: device, else the pid where it is a number (the device's row in the trace viewer)."""
    return _else_number(frame, rows, "device", "pid")


def _stream(frame: Frame, rows: I64) -> tuple[I64, Flags]:
    """args: stream, else the tid where it is a number (the stream's row in the trace viewer)."""
    return _else_number(frame, rows, "stream", "tid")


def _else_number(frame: Frame, rows: I64, name: str, row_name: str) -> tuple[I64, Flags]:
    """An argument, where it is absent the row of the trace viewer that stands for it."""
    values, known = ints_at(frame.table, name, rows)
    row = text(frame.table, row_name)
    numbers = [int(v) if v.isascii() and v.isdigit() and len(v) < 10 else -1 for v in row.values]
    fallback = np.array([*numbers, -1], dtype=np.int64)[row.codes[rows]]
    return np.where(known, values, np.maximum(fallback, 0)), known | (fallback >= 0)


def _lanes(device: I64, stream: I64, known: Flags) -> I64:
    """One code per (device, stream); -1 where either is unknown."""
    lanes = np.full(len(device), -1, dtype=np.int64)
    if known.any():
        pairs = np.stack([device[known], stream[known]])
        lanes[known] = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    return lanes


def late_stamps(lanes: I64, start: I64, end: I64, valid: Flags) -> I64:
    """Ends, with late completion stamps clipped to the successor's start.

    An activity is late when at least three later activities of its lane (device and stream) begin and end
    inside its recorded time; it then ends where the next later-starting one begins. Invalid activities are
    neither clipped nor counted.

    Args:
        lanes: lane of each activity, -1 where unknown (never clipped).
        start: recorded start, ns.
        end: recorded end, ns.
        valid: whether the time may be used.

    Returns:
        The end of each activity.
    """
    result = end.copy()
    usable = np.flatnonzero(valid & (lanes >= 0))
    usable = usable[np.lexsort((end[usable], start[usable], lanes[usable]))]
    bounds = np.flatnonzero(np.diff(lanes[usable])) + 1
    for lane in np.split(usable, bounds):
        if len(lane) > LATE_STAMPS:
            result[lane] = _clipped(start[lane], end[lane])
    return result


def _clipped(start: I64, end: I64) -> I64:
    """`late_stamps` of one lane, sorted by (start, end).

    The third smallest end among later activities decides: with m1, m2, m3 the smallest, second and third
    smallest end of everything from i on, m2(i) = min over j >= i of max(e_j, m1(j+1)), and m3 from m2
    likewise. One of no length must begin before the outer end, hence its end counts as one later.
    """
    reach = np.where((end == start) & (end < LARGEST), end + 1, end)
    third = reach
    for _ in range(LATE_STAMPS - 1):
        suffix = np.minimum.accumulate(third[::-1])[::-1]
        third = np.maximum(reach, np.append(suffix[1:], LARGEST))
    suffix = np.append(np.minimum.accumulate(third[::-1])[::-1], LARGEST)
    successor = np.searchsorted(start, start, side="right")
    is_late = suffix[successor] <= end
    following = start[np.minimum(successor, len(start) - 1)]
    return np.where(is_late & (suffix[successor] < LARGEST), np.minimum(following, end), end)


def _evidence(frame: Frame, links: Links, around: Context) -> I32:
    """What metadata says of each activity: its own arguments first, then the surroundings of its launch."""
    evidence = np.append(around.evidence, np.int32(0))[links.launch].astype(np.int32)
    own = frame.collective.codes[links.activities] >= 0
    evidence[own] = EVIDENCE.index("metadata:collective_name")
    return evidence


def _classes(frame: Frame, rows: I64, evidence: I32, rules: Rules) -> Classes:
    codes = [DEVICE_CATEGORIES.index(c) if c in DEVICE_CATEGORIES else -1 for c in frame.cat.values]
    cats = np.array([*codes, -1], dtype=np.int32)[frame.cat.codes[rows]]
    return classify(
        cats, frame.name.take(rows), kinds=_copy_kinds(frame, rows, cats != 0), evidence=evidence, rules=rules
    )


def _copy_kinds(frame: Frame, rows: I64, is_copy: Flags) -> Text:
    """The `kind` argument of copies (ROCm), null elsewhere."""
    if "extra" not in frame.table.column_names:
        return Text(np.full(len(rows), -1, dtype=np.int32), ())
    extra = frame.table.column("extra").take(pa.array(rows, mask=~is_copy))
    found = pc.struct_field(pc.extract_regex(extra, r'"kind"\s*:\s*"(?P<kind>[^"\\]*)"'), "kind")
    return text(pa.table({"kind": found}), "kind")


def activity_table(
    frame: Frame, acts: Activities, *, steps: tuple[I64, Flags], gpus: Mapping[int, str], order: I64
) -> pa.Table:
    """The ACTIVITIES columns (identity null but device and gpu), rows in the given order."""
    links, rows = acts.links, acts.links.activities
    linked = links.launch >= 0
    call = np.append(links.calls, -1)[links.launch]
    records = np.append(acts.context.record, -1)[links.launch]
    ops = np.append(acts.context.op, -1)[links.launch]
    meta = comm_metadata(frame, rows, acts.classes.is_class(Class.COMM), records)
    columns: dict[str, Any] = {
        "device": integer_array(acts.device, acts.has_device),
        "gpu": _gpu(acts, gpus),
        "stream": integer_array(acts.stream, acts.has_stream),
        "name": frame.name.take(rows).arrow(),
        "class": acts.classes.text("klass").arrow(),
        "copy_kind": acts.classes.text("copy_kind").arrow(),
        "rule": acts.classes.text("rule").arrow(),
        "role": acts.classes.text("role").arrow(),
        "operation": _operation(acts, meta["collective"]),
        "start_ns": integer_array(acts.start, frame.has_start[rows]),
        "end_ns": integer_array(acts.end, frame.has_start[rows]),
        "recorded_end_ns": integer_array(*recorded_end(frame, rows)),
        "launch_id": integer_array(links.launch, linked),
        "launch_start_ns": integer_array(frame.start[call] if len(call) else call, linked),
        "launch_tid": frame.thread.at(call).arrow(),
        "op": frame.name.at(ops).arrow(),
        "step": integer_array(*steps),
        "valid": pa.array(acts.valid),
        **{
            name: frame.table.column(name).take(pa.array(rows))
            for name in ("correlation", "graph_id", "bytes")
        },
        **meta,
    }
    wanted = pa.array(order)  # column by column: never two whole tables at once
    return pa.table({name: columns.pop(name).take(wanted) for name in list(columns)})


def recorded_end(frame: Frame, rows: I64) -> tuple[I64, Flags]:
    """Start plus duration as recorded, and whether it is representable and both are known."""
    dur = frame.dur[rows]
    start = frame.start[rows]
    known = frame.has_start[rows] & frame.has_dur[rows] & frame.fits[rows]
    known &= ~((dur < 0) & (start < np.iinfo(np.int64).min - np.minimum(dur, 0)))
    return np.where(known, start + np.where(known, dur, 0), 0), known


def _gpu(acts: Activities, gpus: Mapping[int, str]) -> pa.DictionaryArray:
    values = tuple(sorted(set(gpus.values())))
    codes = np.full(len(acts.device), -1, dtype=np.int32)
    for device, name in gpus.items():
        codes[acts.has_device & (acts.device == device)] = values.index(name)
    return Text(codes, values).arrow()


def _operation(acts: Activities, collective: pa.ChunkedArray) -> pa.Array:
    """The collective of the metadata in canonical spelling, else what the rule's name told."""
    named = text(pa.table({"c": collective}), "c")
    canonical = [canonical_operation(v) or v for v in named.values]
    values = pa.array([*canonical, None], pa.string())
    told = values.take(pa.array(np.where(named.codes < 0, len(canonical), named.codes)))
    return pc.coalesce(told, acts.classes.text("operation").arrow().cast(pa.string()))


def device_order(frame: Frame, acts: Activities) -> I64:
    """Rows by (device, start, stream, end, correlation, name), the order of the stored table; what else may
    tell two records apart breaks the remaining ties.
    """
    rows = acts.links.activities
    correlation, _ = frame.correlation
    external, _ = frame.external_id
    ties = (frame.collective.codes[rows], external[rows], frame.dur[rows], acts.links.launch, acts.valid)
    keys = (
        frame.name.codes[rows],
        correlation[rows],
        acts.end,
        acts.stream,
        acts.start,
        acts.device,
        ~acts.has_device,
    )
    return np.lexsort((*ties, *keys)).astype(np.int64)


def gpu_names(properties: Any, used: Iterable[int] = ()) -> dict[int, str]:
    """Device names of the header's `deviceProperties` by device id; unnamed or malformed ones are left out.

    Devices in use that are not listed (containers renumber them: device 9 of one) bear the listed name where all
    listed devices have the same, as in `header_facts.only_gpu`.
    """
    entries: Sequence[Any] = properties if isinstance(properties, list) else []
    listed: dict[int, Any] = {}
    for entry in entries:
        ident, name = (entry.get("id"), entry.get("name")) if isinstance(entry, dict) else (None, None)
        if isinstance(ident, int):
            listed[ident] = name
    names = {ident: name for ident, name in listed.items() if isinstance(name, str) and name}
    common = set(names.values())
    if len(common) == 1:
        names |= dict.fromkeys((d for d in used if d not in listed), common.pop())
    return names
