"""From one rank-file's events to its activities, launches, steps and host activities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rankscope.store.schema import (
    ACTIVITIES,
    HOST_ACTIVITIES,
    LAUNCHES,
    STEPS,
    Class,
    Quality,
    Severity,
    conform,
    empty,
)

from .activities import Activities, activities, activity_table, device_order, gpu_names
from .classify import Rules
from .columns import I64, LARGEST, Flags, integer_array, ints
from .frame import Frame
from .host_timeline import host_activities, is_backend_range
from .link import Context, Links, context, link
from .steps import device_steps, host_windows


@dataclass(frozen=True)
class DeriveOptions:
    """What the user may say about deriving.

    Attributes:
        rules: texts of rule files (TOML), the first wins, all before the shipped table.
        step_regex: pattern that names steps in annotations and operators.
    """

    rules: tuple[str, ...] = ()
    step_regex: str | None = None


@dataclass(frozen=True)
class Derived:
    """Tables derived from one rank-file's events; identity and place columns are null but device and gpu.

    Attributes:
        activities, host_activities, launches, steps: tables of `store.schema`.
        quality: what was clipped, unmatched, unclassified or missing.
        pre_ns: device time before the first step (the largest over devices); None without device activity.
        is_comm_recorded: False when collectives were issued and none was recorded on the device.
        n_issued_comm: collectives issued, as the host's records say.
    """

    activities: pa.Table
    host_activities: pa.Table
    launches: pa.Table
    steps: pa.Table
    quality: list[Quality]
    pre_ns: int | None
    is_comm_recorded: bool
    n_issued_comm: int


def derive(events: pa.Table, header: dict[str, Any], options: DeriveOptions) -> Derived:
    """Classify, link and step the events of one rank-file.

    Args:
        events: EVENTS columns (identity and place may be absent), without python_function rows, in any
            order; times absolute; `valid` set.
        header: the file's top-level keys (device names, backend).
        options: user rules and step pattern.

    Raises:
        UsageError: a rule file or the step pattern is wrong.
    """
    rules = Rules.load(options.rules)
    frame = Frame.of(events)
    links = link(frame)
    around = context(frame, links)
    acts = activities(frame, links, around, rules)
    n_issued = issued_collectives(frame)
    names = gpu_names(header.get("deviceProperties"), np.unique(acts.device[acts.has_device]).tolist())
    launches = conform(_launch_table(frame, links, around, acts), LAUNCHES)
    if not acts.valid.any():
        return _host_only(frame, acts, launches=launches, header=header, options=options, n_issued=n_issued)
    steps = device_steps(frame, links, acts, step_regex=options.step_regex)
    has_comm = bool((acts.classes.is_class(Class.COMM) & acts.valid).any())
    is_recorded = has_comm or not n_issued
    table = activity_table(
        frame, acts, steps=(steps.step, steps.has_step), gpus=names, order=device_order(frame, acts)
    )
    quality = [*_device_quality(frame, acts), *steps.quality]
    if not is_recorded:
        quality.append(_comm_not_recorded(n_issued))
    return Derived(
        activities=conform(table, ACTIVITIES),
        host_activities=empty(HOST_ACTIVITIES),
        launches=launches,
        steps=conform(_with_gpu(steps.table, names), STEPS),
        quality=quality,
        pre_ns=steps.pre_ns,
        is_comm_recorded=is_recorded,
        n_issued_comm=n_issued,
    )


def _host_only(
    frame: Frame,
    acts: Activities,
    *,
    launches: pa.Table,
    header: dict[str, Any],
    options: DeriveOptions,
    n_issued: int,
) -> Derived:
    """The result for a rank without usable device activity: its host timeline."""
    ranges = host_activities(frame)
    steps, quality = host_windows(frame, acts.links, ranges, step_regex=options.step_regex)
    none = np.zeros(len(acts.valid), dtype=np.int64)
    table = activity_table(
        frame,
        acts,
        steps=(none, none.astype(np.bool_)),
        gpus=gpu_names(header.get("deviceProperties")),
        order=device_order(frame, acts),
    )
    return Derived(
        activities=conform(table, ACTIVITIES),
        host_activities=conform(ranges, HOST_ACTIVITIES),
        launches=launches,
        steps=conform(steps, STEPS),
        quality=[_no_device_activity(frame, header), *_link_quality(frame, acts), *quality],
        pre_ns=None,
        is_comm_recorded=True,
        n_issued_comm=n_issued,
    )


def issued_collectives(frame: Frame) -> int:
    """Collectives the host issued: `record_param_comms` calls that are no `wait` and no group of one.

    Where none of them names its collective (older traces, in which a wait cannot be told apart), the `nccl:*`
    ranges count, and where there are none either, all the calls. Without any call or range the `c10d::*` operators
    count (but for waits and barriers), unless a CPU backend's ranges show that it did the work.
    """
    records = frame.is_operator & frame.named(lambda n: n == "record_param_comms")
    host = frame.is_annotation | frame.is_operator
    ranges = int(np.count_nonzero(host & frame.named(lambda n: n.startswith("nccl:"))))
    is_named = bool((records & (frame.collective.codes >= 0)).any())
    if ranges and not is_named:
        return ranges
    if not records.any() and not (host & frame.named(is_backend_range)).any():
        return int(np.count_nonzero(frame.is_operator & frame.named(_is_c10d_call)))
    size, known = ints(frame.table, "group_size")
    return int(np.count_nonzero(frame.is_comm_record & ~(known & (size == 1))))


def _is_c10d_call(name: str) -> bool:
    return name.startswith("c10d::") and "wait" not in name and "barrier" not in name


def _launch_table(frame: Frame, links: Links, around: Context, acts: Activities) -> pa.Table:
    device = np.full(len(links.calls), LARGEST, dtype=np.int64)
    known = (links.launch >= 0) & acts.has_device
    np.minimum.at(device, links.launch[known], acts.device[known])
    correlation, has_correlation = frame.correlation
    timed = links.first_start < LARGEST
    delay = np.where(timed, links.first_start, 0) - np.where(timed, frame.start[links.calls], 0)
    return pa.table(
        {
            "device": integer_array(device, device < LARGEST),
            "tid": frame.thread.take(links.calls).arrow(),
            "name": frame.name.take(links.calls).arrow(),
            "start_ns": frame.start[links.calls],
            "end_ns": frame.end[links.calls],
            "correlation": integer_array(correlation[links.calls], has_correlation[links.calls]),
            "n_activities": links.n_activities,
            "op": frame.name.at(around.op).arrow(),
            "launch_delay_ns": integer_array(delay, timed),
        }
    )


def _with_gpu(steps: pa.Table, names: dict[int, str]) -> pa.Table:
    gpus = [names.get(d) if d is not None else None for d in steps.column("device").to_pylist()]
    return steps.append_column("gpu", pa.array(gpus, pa.string()))


def _device_quality(frame: Frame, acts: Activities) -> list[Quality]:
    found = _link_quality(frame, acts)
    rows = acts.links.activities
    if acts.clipped.any():
        found.append(
            Quality(
                "clipped_to_successor",
                Severity.WARNING,
                None,
                int(acts.clipped.sum()),
                _example(frame, rows, acts.clipped, acts.start),
                "late completion stamps: the activity ends where its successor starts; recorded_end_ns keeps the record",
            )
        )
    early = _before_launch(frame, acts)
    if early.any():
        found.append(
            Quality(
                "activity_before_launch",
                Severity.WARNING,
                None,
                int(early.sum()),
                _example(frame, rows, early, acts.start),
                "host and device clocks disagree: launch delays and idle causes are doubtful",
            )
        )
    unclassified = acts.classes.unclassified
    if unclassified:
        count = sum(n for _, n in unclassified)
        effect = "counted as compute; a rule given with --rules decides otherwise"
        found.append(
            Quality("comm_unclassified", Severity.WARNING, None, count, unclassified[0][0][:200], effect)
        )
    return found


def _link_quality(frame: Frame, acts: Activities) -> list[Quality]:
    found, links = [], acts.links
    orphans = links.n_activities == 0
    if orphans.any():
        effect = "work launched outside the recorded window, or whose record was lost, is in no sum"
        example = _example(frame, links.calls, orphans, frame.start[links.calls])
        found.append(
            Quality("launch_without_activity", Severity.INFO, None, int(orphans.sum()), example, effect)
        )
    unlinked = links.launch < 0
    if unlinked.any():
        effect = "launched before the window or in a call that was not recorded: no step and no idle cause"
        example = _example(frame, links.activities, unlinked, acts.start)
        found.append(
            Quality("activity_without_launch", Severity.INFO, None, int(unlinked.sum()), example, effect)
        )
    return found


def _before_launch(frame: Frame, acts: Activities) -> Flags:
    linked = (acts.links.launch >= 0) & acts.valid
    at = np.append(frame.start[acts.links.calls], 0)[acts.links.launch]
    return linked & (acts.start < at)


def _example(frame: Frame, rows: I64, which: Flags, start: I64) -> str:
    """Name and time of the earliest of the flagged rows."""
    found = np.flatnonzero(which)
    first = found[np.lexsort((frame.name.codes[rows[found]], start[found]))[0]]
    code = int(frame.name.codes[rows[first]])
    name = frame.name.values[code] if code >= 0 else "?"
    return f"{name[:150]} at {int(start[first])} ns"


def _comm_not_recorded(n_issued: int) -> Quality:
    return Quality(
        "comm_not_recorded",
        Severity.WARNING,
        None,
        n_issued,
        f"{n_issued} collectives issued, none recorded on the device",
        "communication time is unknown, not zero",
    )


def _no_device_activity(frame: Frame, header: dict[str, Any]) -> Quality:
    has_gpu = _lists_gpu(frame, header)
    return Quality(
        "no_device_activity",
        Severity.WARNING if has_gpu else Severity.INFO,
        None,
        1,
        "the file lists a GPU but holds no kernel or copy of it"
        if has_gpu
        else "the file holds host events only",
        "figures are host times; GPU times are unknown (profile with ProfilerActivity.CUDA)"
        if has_gpu
        else "figures are host times",
    )


def _lists_gpu(frame: Frame, header: dict[str, Any]) -> bool:
    """Device properties, CUDA or HIP calls, or an nccl backend."""
    info = header.get("distributedInfo")
    backend = info.get("backend") if isinstance(info, dict) else None
    calls = frame.named(lambda n: n.startswith(("cuda", "hip", "cuLaunch", "cuMem"))) & frame.is_runtime
    return bool(header.get("deviceProperties")) or "nccl" in str(backend) or bool(calls.any())
