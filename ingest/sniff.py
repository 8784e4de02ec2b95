"""What kind of file this is, judged from its first bytes alone; names lie, first bytes seldom do.

Nothing is executed or unpickled: a pickle is known by its opcodes' first bytes and the words that follow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TORCH_PROFILER = "torch_profiler"
EXECUTION_TRACE = "execution_trace"
FLIGHT_RECORDER = "flight_recorder"
MEMORY_TIMELINE = "memory_timeline"
NCCL_LOG = "nccl_log"
NCCL_PROFILER = "nccl_profiler"
INSPECTOR = "inspector"
OTHER = "other"

KIND_NAMES = {
    EXECUTION_TRACE: "an execution trace (operator graph), not a timeline",
    FLIGHT_RECORDER: "a flight recorder dump",
    MEMORY_TIMELINE: "a memory timeline",
    NCCL_LOG: "an NCCL log",
    NCCL_PROFILER: "a trace of NCCL's profiler plugin",
    INSPECTOR: "an NCCL Inspector log",
}

_BOM = b"\xef\xbb\xbf"
_EVENTS = re.compile(rb'"traceEvents"\s{0,64}:')
_HEADER_KEY = re.compile(rb'"(?:schemaVersion|deviceProperties|computeProperties|distributedInfo)"\s{0,64}:')
_PHASE = re.compile(rb'"ph"\s{0,64}:\s{0,64}"')
_NCCL_PROFILER = re.compile(rb'"cat"\s*:\s*"(?:GROUP_API|GROUP|KERNEL_LAUNCH|COLL_API|COLL|P2P|NET|PROXY)"')
_NCCL_LOG = re.compile(rb"NCCL (?:INFO|WARN|TRACE)|ProcessGroupNCCL\.cpp|^ncclGetVersion ", re.MULTILINE)
_NUMBER_ROWS = re.compile(rb"\[\s*\[\s*-?\d")
_PICKLE_WORDS = (b"pg_config", b"nccl_version", b"comm_lib_version", b"entries")


@dataclass(frozen=True)
class Sniff:
    """What the first bytes say.

    Attributes:
        kind: one of the names above.
        shape: `object` (traceEvents inside an object), `array` (bare list of events), `empty` or `other`.
        reason: why it is no profiler trace, else None.
        is_sure: false while a longer head could still show `traceEvents`.
    """

    kind: str
    shape: str
    reason: str | None = None
    is_sure: bool = True


def sniff(head: bytes) -> Sniff:
    """Kind and shape of a file from its first (unpacked) bytes. Never raises."""
    text = head.removeprefix(_BOM).lstrip()
    if not text:
        return Sniff(OTHER, "empty", "the file is empty" if not head else "nothing but white space")
    first = text[:1]
    if first == b"{":
        return _object(text)
    if first == b"[":
        return _array(text)
    if text[:1] == b"\x80" and any(word in text for word in _PICKLE_WORDS):
        return _other(FLIGHT_RECORDER)
    if _NCCL_LOG.search(text):
        return _other(NCCL_LOG)
    return Sniff(OTHER, "other", "neither a JSON object nor a list of events")


def _other(kind: str) -> Sniff:
    return Sniff(kind, "other", KIND_NAMES[kind])


def _object(text: bytes) -> Sniff:
    if _EVENTS.search(text):
        return Sniff(TORCH_PROFILER, "object")
    start = text[:4096]
    if b'"nodes"' in text and re.search(rb'"schema"\s*:\s*"\d', start):
        return _other(EXECUTION_TRACE)
    if b'"entries"' in text and (
        b'"pg_config"' in text or b'"collective_seq_id"' in text or b'"pg_id"' in text
    ):
        return _other(FLIGHT_RECORDER)
    if b'"inspector_output_format_version"' in start:
        return _other(INSPECTOR)
    if _HEADER_KEY.search(text):
        # The header may be cut, or longer than what was read: thousands of process groups fill megabytes.
        return Sniff(TORCH_PROFILER, "object", is_sure=False)
    return Sniff(OTHER, "other", "a JSON object without traceEvents", is_sure=False)


def _array(text: bytes) -> Sniff:
    if _NUMBER_ROWS.match(text):
        return _other(MEMORY_TIMELINE)
    start = text[:65536]
    if _NCCL_PROFILER.search(start):
        return _other(NCCL_PROFILER)
    if _PHASE.search(text):
        return Sniff(TORCH_PROFILER, "array")
    if not text[1:].strip():
        return Sniff(OTHER, "empty", "a list that ends before its first event")
    if text[1:].strip() == b"]":
        return Sniff(OTHER, "empty", "an empty list")
    if _NCCL_LOG.search(text):  # lines that begin with a rank in brackets
        return _other(NCCL_LOG)
    return Sniff(OTHER, "other", "a list of something else than events")
