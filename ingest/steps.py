"""Step windows: how each device's timeline is cut into steps, and which step every activity belongs to.

The boundary of step n on a device is b_n = min(F_n, max(H_n, E_(n-1))), made monotone, with H_n the host's
entry into step n, F_n the earliest start of the activities launched in it and E_(n-1) the latest end of those
launched in earlier steps. The last window ends at max(latest activity end, host end of the last step).
Source: METHOD 1.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rankscope.store.schema import Class, Quality, Severity, Timeline

from .activities import Activities
from .columns import I64, LARGEST, SMALLEST, Flags
from .frame import Frame
from .link import Links
from .step_sequence import Kernels, sequence_starts
from .step_sources import HostSteps, host_steps


@dataclass(frozen=True)
class Steps:
    """Windows and the step of each activity.

    Attributes:
        table: STEPS columns without identity but device; sorted by device and time.
        step, has_step: step number of each activity, and whether it has one.
        pre_ns: device time before the first step, the largest over devices; None without device activity.
    """

    table: pa.Table
    step: I64
    has_step: Flags
    pre_ns: int | None
    quality: list[Quality]


@dataclass(frozen=True)
class Window:
    """One step window."""

    step: int
    phase: str | None
    source: str
    start: int
    end: int
    host_start: int | None


def device_steps(frame: Frame, links: Links, acts: Activities, *, step_regex: str | None) -> Steps:
    """Step windows of every device with valid activity, from the first source that finds steps.

    Raises:
        UsageError: `step_regex` is no regular expression.
    """
    host, quality = host_steps(frame, links.calls, step_regex)
    step = np.zeros(len(links.launch), dtype=np.int64)
    has_step = np.zeros(len(links.launch), dtype=np.bool_)
    index = _step_index(frame, links, host)
    rows: list[tuple[int | None, Window]] = []
    pre: list[int] = []
    inferred = 0
    for device in _device_keys(acts):
        mine = _of_device(acts, device)
        windows = _windows(frame, acts, mine, host, index)
        rows += [(device, w) for w in windows]
        pre.append(max(0, windows[0].start - int(acts.start[mine & acts.valid].min())))
        step[mine], has_step[mine] = _members(acts, mine, windows, index)
        inferred += sum(w.source == "sequence" for w in windows)
    if inferred:
        effect = "step windows follow the repeating kernels, not marks of the program"
        quality.append(Quality("steps_inferred", Severity.INFO, None, inferred, "repeating kernels", effect))
    table = steps_table(rows, Timeline.DEVICE)
    return Steps(table, step, has_step, max(pre) if pre else None, quality)


def host_windows(
    frame: Frame, links: Links, ranges: pa.Table, *, step_regex: str | None
) -> tuple[pa.Table, list[Quality]]:
    """The host's step windows, for a rank without device activity: from one step's start to the next one's,
    the last to its end; without steps one window over all host activities.

    Args:
        frame: the events.
        links: launch calls.
        ranges: HOST_ACTIVITIES of the rank.
        step_regex: the user's pattern.
    """
    host, quality = host_steps(frame, links.calls, step_regex)
    if host:
        ends = np.append(host.start[1:], host.end[-1])
        windows = [_window(host, i, int(host.start[i]), int(ends[i])) for i in range(len(ends))]
    elif ranges.num_rows:
        start, end = (ranges.column(c).to_numpy() for c in ("start_ns", "end_ns"))
        windows = [Window(0, None, "none", int(start.min()), int(end.max()), None)]
    else:
        windows = []
    return steps_table([(None, w) for w in windows], Timeline.HOST), quality


def steps_table(rows: list[tuple[int | None, Window]], timeline: Timeline) -> pa.Table:
    """STEPS columns of windows, in the given order."""
    n = len(rows)
    return pa.table(
        {
            "device": pa.array([d for d, _ in rows], pa.int64()),
            "step": pa.array([w.step for _, w in rows], pa.int64()),
            "phase": pa.array([w.phase for _, w in rows], pa.string()),
            "source": pa.array([w.source for _, w in rows], pa.string()),
            "timeline": pa.array([str(timeline)] * n, pa.string()),
            "start_ns": pa.array([w.start for _, w in rows], pa.int64()),
            "end_ns": pa.array([w.end for _, w in rows], pa.int64()),
            "host_start_ns": pa.array([w.host_start for _, w in rows], pa.int64()),
        }
    )


def _device_keys(acts: Activities) -> list[int | None]:
    """Devices with valid activity, ascending; None for activity of an unknown device, last."""
    keys: list[int | None] = list(acts.devices)
    return [*keys, None] if bool((acts.valid & ~acts.has_device).any()) else keys


def _of_device(acts: Activities, device: int | None) -> Flags:
    if device is None:
        return ~acts.has_device
    mine: Flags = acts.has_device & (acts.device == device)
    return mine


def _step_index(frame: Frame, links: Links, host: HostSteps | None) -> I64:
    """Position of the step in which each activity was launched, -1 without a launch or outside the steps."""
    at = np.append(frame.start[links.calls], 0)[links.launch]
    index = host.index(at) if host else np.zeros(len(at), dtype=np.int64)
    return np.where(links.launch >= 0, index, -1)


def _windows(frame: Frame, acts: Activities, mine: Flags, host: HostSteps | None, index: I64) -> list[Window]:
    valid = mine & acts.valid
    start, end = acts.start[valid], acts.end[valid]
    if host:
        bounds = boundaries(host, start, end, index[valid])
        return [_window(host, i, int(bounds[i]), int(bounds[i + 1])) for i in range(len(host.start))]
    return _inferred(frame, acts, valid) or [Window(0, None, "none", int(start.min()), int(end.max()), None)]


def _window(host: HostSteps, i: int, start: int, end: int) -> Window:
    return Window(int(host.number[i]), host.phase[i], host.source, start, end, int(host.start[i]))


def boundaries(host: HostSteps, start: I64, end: I64, index: I64) -> I64:
    """The n + 1 edges of the n step windows of one device.

    Args:
        host: the steps.
        start: start of each valid activity of the device, ns.
        end: its end.
        index: position of the step that launched it, -1 for none; those never move a boundary.
    """
    n = len(host.start)
    first = np.full(n, LARGEST, dtype=np.int64)
    last = np.full(n, SMALLEST, dtype=np.int64)
    launched = index >= 0
    np.minimum.at(first, index[launched], start[launched])
    np.maximum.at(last, index[launched], end[launched])
    earlier = np.append(SMALLEST, np.maximum.accumulate(last)[:-1])
    edges = np.minimum(first, np.maximum(host.start, earlier))
    final = max(int(host.end[-1]), int(end.max(initial=SMALLEST)))
    return np.append(np.maximum.accumulate(edges), final)


def _inferred(frame: Frame, acts: Activities, valid: Flags) -> list[Window]:
    """Windows of the repeating sequence of a capture without host operators and annotations, else none."""
    if frame.is_operator.any() or frame.is_annotation.any():
        return []
    rows = acts.links.activities
    name = frame.name.codes[rows].astype(np.int64)
    kernels = valid & frame.in_category("kernel")[rows] & ~acts.classes.is_class(Class.MEMCPY) & (name >= 0)
    correlation, known = frame.correlation
    candidates = Kernels(
        name=name,
        lane=np.where(acts.has_stream, acts.stream, -1),
        start=acts.start,
        end=acts.end,
        call=np.where(known, correlation, -1)[rows],
        is_compute=acts.classes.is_class(Class.COMPUTE),
    )
    starts = sequence_starts(candidates.take(np.flatnonzero(kernels)))
    if starts is None:
        return []
    ends = np.append(starts[1:], acts.end[valid].max())
    return [
        Window(i, None, "sequence", int(s), int(e), None)
        for i, (s, e) in enumerate(zip(starts, ends, strict=True))
    ]


def _members(acts: Activities, mine: Flags, windows: list[Window], index: I64) -> tuple[I64, Flags]:
    """Step number of each of the device's activities, and whether it has one: by launch, or for inferred
    steps by the activity's own start.
    """
    numbers = np.array([w.step for w in windows], dtype=np.int64)
    if windows[0].source == "sequence":
        starts = np.array([w.start for w in windows], dtype=np.int64)
        place = np.searchsorted(starts, acts.start[mine], side="right").astype(np.int64) - 1
        return numbers[np.maximum(place, 0)], (place >= 0) & acts.valid[mine]
    place = index[mine]
    return numbers[np.maximum(place, 0)], place >= 0
