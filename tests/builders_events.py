"""Small typed builder of EVENTS-shaped tables: tuples in, times in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from rankscope.store.schema import EVENTS, conform

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class Event(NamedTuple):
    """One event: category, name, start and duration in ns, and any other EVENTS column by name."""

    cat: str | None
    name: str | None
    start: int | None
    dur: int | None
    more: Mapping[str, Any] = MappingProxyType({})


def kernel(
    name: str, start: int, dur: int, *, stream: int = 7, device: int = 0, corr: int | None = None, **more: Any
) -> Event:
    """A kernel on a stream."""
    return _device("kernel", name, start, dur, stream=stream, device=device, correlation=corr, **more)


def memcpy(
    name: str, start: int, dur: int, *, stream: int = 7, device: int = 0, corr: int | None = None, **more: Any
) -> Event:
    """A copy on a stream."""
    return _device("gpu_memcpy", name, start, dur, stream=stream, device=device, correlation=corr, **more)


def memset(
    start: int, dur: int, *, stream: int = 7, device: int = 0, corr: int | None = None, **more: Any
) -> Event:
    """A memset on a stream."""
    name = "Memset (Device)"
    return _device("gpu_memset", name, start, dur, stream=stream, device=device, correlation=corr, **more)


def _device(cat: str, name: str, start: int, dur: int, **more: Any) -> Event:
    return Event(cat, name, start, dur, {"pid": str(more["device"]), "tid": str(more["stream"]), **more})


def launch(
    start: int,
    dur: int = 5,
    *,
    corr: int | None = None,
    name: str = "cudaLaunchKernel",
    tid: str = "1",
    **more: Any,
) -> Event:
    """A launch call of the runtime."""
    return Event("cuda_runtime", name, start, dur, {"tid": tid, "correlation": corr, **more})


def op(name: str, start: int, dur: int, *, tid: str = "1", **more: Any) -> Event:
    """A host operator."""
    return Event("cpu_op", name, start, dur, {"tid": tid, **more})


def annotation(name: str, start: int, dur: int, *, tid: str = "1", **more: Any) -> Event:
    """A host annotation (record_function)."""
    return Event("user_annotation", name, start, dur, {"tid": tid, **more})


def events(rows: Sequence[Event | tuple[Any, ...]]) -> pa.Table:
    """EVENTS of the rows, in their order; `valid` follows from start and duration unless given."""
    columns: dict[str, list[Any]] = {c.name: [] for c in EVENTS.columns}
    for row in rows:
        event = Event(*row)
        is_sound = event.start is not None and event.dur is not None and event.dur >= 0
        values = {
            "cat": event.cat,
            "name": event.name,
            "start_ns": event.start,
            "dur_ns": event.dur,
            "ph": "X",
            "pid": "1",
            "tid": "1",
            "valid": is_sound,
            **event.more,
        }
        unknown = set(values) - set(columns)
        assert not unknown, f"no EVENTS column: {sorted(unknown)}"
        for name, column in columns.items():
            column.append(values.get(name))
    arrays = {c.name: pa.array(columns[c.name], _plain(c.type)) for c in EVENTS.columns}
    return conform(pa.table(arrays), EVENTS)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def linked(name: str, launched: int, start: int, dur: int, *, corr: int, **more: Any) -> list[Event]:
    """A kernel and its launch call."""
    return [launch(launched, 2, corr=corr), kernel(name, start, dur, corr=corr, **more)]
