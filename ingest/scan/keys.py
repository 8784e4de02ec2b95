"""Which JSON key of an event goes into which column, over every spelling seen since 2020."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """How a JSON value becomes a cell."""

    NS = "ns"
    """decimal microseconds, number or text -> int64 ns"""
    INT = "int"
    """an integer, or text that is one -> int64"""
    FLAG = "flag"
    """true, false, 1 or 0 -> bool"""
    WORD = "word"
    """a string, nothing else -> text"""
    ID = "id"
    """a string or number -> the file's text"""
    ANY = "any"
    """a string's content, anything else as it stands -> the file's text"""


EVENT_KEYS: dict[str, tuple[str, Kind]] = {
    "ph": ("ph", Kind.ID),
    "cat": ("cat", Kind.ID),
    "name": ("name", Kind.ID),
    "pid": ("pid", Kind.ID),
    "tid": ("tid", Kind.ID),
    "ts": ("start_ns", Kind.NS),
    "dur": ("dur_ns", Kind.NS),
}

ARG_KEYS: dict[str, tuple[str, Kind]] = {
    "correlation": ("correlation", Kind.INT),
    "External id": ("external_id", Kind.INT),
    "device": ("device", Kind.INT),
    "stream": ("stream", Kind.INT),
    "graph id": ("graph_id", Kind.INT),
    "graph node id": ("graph_node_id", Kind.INT),
    "bytes": ("bytes", Kind.INT),
    "Collective name": ("collective", Kind.WORD),
    "Process Group Name": ("pg", Kind.ID),
    "Process Group Description": ("pg_description", Kind.WORD),
    "Process Group Ranks": ("pg_ranks", Kind.ANY),
    "Group size": ("group_size", Kind.INT),
    "In msg nelems": ("in_nelems", Kind.INT),
    "Out msg nelems": ("out_nelems", Kind.INT),
    "In split size": ("in_split", Kind.ANY),
    "Out split size": ("out_split", Kind.ANY),
    "dtype": ("dtype", Kind.WORD),
    "Seq": ("seq", Kind.INT),
    "Src Rank": ("src_rank", Kind.INT),
    "Dst Rank": ("dst_rank", Kind.INT),
    "Comms Id": ("comms_id", Kind.ANY),
    "Is asynchronized op": ("is_async", Kind.FLAG),
    "Python id": ("python_id", Kind.INT),
    "Python parent id": ("python_parent_id", Kind.INT),
    "wait_on_stream": ("wait_on_stream", Kind.INT),
    "wait_on_cuda_event_record_corr_id": ("wait_on_correlation", Kind.INT),
}

OLD_ARG_KEYS = {
    "external id": "External id",  # 2020-21
    "Process Group ID": "Process Group Name",  # early 2024
    "Input dims": "Input Dims",  # 2020
}
"""Former spellings. Used only where the event does not also have the present one."""

CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Driver": "cuda_driver",
    "Operator": "cpu_op",
    # Flow arrows from a launch call to its kernel changed their name three times.
    "async": "ac2g",
    "async_gpu": "ac2g",
    "async_cpu_to_gpu": "ac2g",
}
"""Former spellings of categories -> the present ones; any other category stays as it is."""


def present_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The argument keys of one event in today's spelling; an old one beside its successor stays as it is."""
    if OLD_ARG_KEYS.keys().isdisjoint(keys):
        return keys
    return tuple(k if OLD_ARG_KEYS.get(k, k) in keys else OLD_ARG_KEYS[k] for k in keys)
