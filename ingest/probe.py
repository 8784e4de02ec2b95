"""A cheap look at one file: whose trace it is and when it was taken, from its head and its tail.

The result is a hint for planning; exact times come from reading the whole file. Everything is bounded: a few
hundred kilobytes are looked at, whatever the size. Damaged headers are read with patterns rather than a JSON
parser, since real profilers write broken JSON when user metadata holds quotes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from rankscope.store.errors import TraceError

from .bytesource import ByteSource, open_bytes
from .discover import Source
from .peek import Peek, peek_events
from .sniff import OTHER, TORCH_PROFILER, Sniff, sniff

HEAD_BYTES = 1 << 20
LONG_HEAD_BYTES = 16 << 20
"""With 1,000 groups of 1,000 ranks the header alone takes megabytes."""
TAIL_BYTES = 256 << 10
SAMPLE_BYTES = 64 << 10
N_SAMPLES = 6
"""Places in the middle of a plain file looked at for device activity (host events may fill head and tail)."""
EVENT_BYTES = 96 << 10
"""Of head and tail each, how much is decoded event by event."""

DEVICE_CATS = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "gpu_user_annotation")
CALL_CATS = ("cuda_runtime", "cuda_driver", "hip_runtime", "Runtime", "privateuse1_runtime", "mtia_runtime")

_EVENTS = re.compile(rb'"traceEvents"\s{0,64}:\s{0,64}\[?')
_DISTRIBUTED = re.compile(rb'(?<!\\)"distributedInfo"\s{0,64}:\s{0,64}\{')
_DEVICES = re.compile(rb'(?<!\\)"(?:device|compute)Properties"\s{0,64}:\s{0,64}\[')
_BASE = re.compile(rb'(?<!\\)"baseTimeNanoseconds"\s{0,64}:\s{0,64}(-?\d{1,19})')
_HOST = re.compile(
    rb'(?<!\\)"(?:host_?name|host|node_?name)"\s{0,64}:\s{0,64}"([^"\\]{1,253})"', re.IGNORECASE
)
_NAME = re.compile(rb'"name"\s{0,64}:\s{0,64}"([^"\\]{1,200})"')


@dataclass(frozen=True)
class Probe:
    """What a file says about itself. Plain values only: picklable and JSON-able.

    Attributes:
        kind: see `sniff`; `torch_profiler` for every event trace.
        shape: `object`, `array`, `empty` or `other`.
        status: `whole` (a trace, as far as seen), `empty`, or `skipped` (no trace; `reason` says why).
        reason: one clause, else None.
        rank, world_size, backend, pg_count: of distributedInfo; None where it is silent.
        groups_key: short hash of the process groups this rank belongs to, to tell one world from another.
        base_ns: `baseTimeNanoseconds`, None when not seen.
        host: host name in the metadata.
        gpus: names of the devices listed, by position.
        first_ns, last_ns: first start and last end seen, absolute; never outside the file's true range.
        is_deep: head and tail were both seen, so the range is as good as it gets.
        has_device_activity, has_device_calls: GPU records, CUDA/HIP calls were seen.
        process_names: names of processes in metadata events.
        fused_ranks: ranks named by metadata events when there are several (a merged file), else ().
    """

    kind: str = OTHER
    shape: str = "other"
    status: str = "whole"
    reason: str | None = None
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    pg_count: int | None = None
    groups_key: str | None = None
    base_ns: int | None = None
    host: str | None = None
    gpus: tuple[str, ...] = ()
    first_ns: int | None = None
    last_ns: int | None = None
    is_deep: bool = False
    has_device_activity: bool = False
    has_device_calls: bool = False
    process_names: tuple[str, ...] = ()
    fused_ranks: tuple[int, ...] = ()

    @property
    def is_trace(self) -> bool:
        """Whether the file is an event trace with something in it."""
        return self.kind == TORCH_PROFILER and self.status == "whole"


@dataclass
class _Seen:
    """The bytes looked at."""

    head: bytes
    tail: bytes = b""
    is_deep: bool = False
    activity: bool = False
    calls: bool = False


def probe(source: Source, *, deep: bool = False, storage_options: dict[str, Any] | None = None) -> Probe:
    """What a file says about rank, world, host and time, from its head and tail.

    A compressed file is streamed to its end only when its head lacks distributedInfo or `deep` asks for
    its last time stamps. Never raises for bad content: the reason is in the result.

    Args:
        source: from `discover`.
        deep: also find the end of a compressed file.
        storage_options: for fsspec.

    Cost: about a millisecond for a plain file, an unpacking pass for a compressed one read to its end.
    """
    if source.skipped is not None:
        return Probe(status="skipped", reason=source.skipped)
    try:
        with open_bytes(source.path, member=source.member, storage_options=storage_options) as opened:
            found = _look(opened, deep=deep)
            if isinstance(found, Sniff):
                reason = found.reason if found.shape != "empty" else (opened.problem or found.reason)
                status = "empty" if found.shape == "empty" else "skipped"
                return Probe(kind=found.kind, shape=found.shape, status=status, reason=reason)
            seen, kind = found
    except TraceError as error:
        return Probe(status="skipped", reason=error.message)
    return _facts(seen, kind)


def _look(opened: ByteSource, *, deep: bool) -> Sniff | tuple[_Seen, Sniff]:
    chunks = opened.chunks(HEAD_BYTES)
    head = next(chunks, b"")
    kind = sniff(head)
    while not kind.is_sure and len(head) < LONG_HEAD_BYTES and (more := next(chunks, b"")):
        head += more
        kind = sniff(head)
    if kind.kind != TORCH_PROFILER:
        return kind
    seen = _Seen(head)
    _flag(seen, head)
    if opened.compression == "none":
        _sample(opened.raw(), seen)
    elif deep or not _DISTRIBUTED.search(_header(head)):
        _stream(chunks, seen)
    elif len(head) < HEAD_BYTES:
        seen.tail, seen.is_deep = head[-TAIL_BYTES:], True
    return seen, kind


def _sample(raw: IO[bytes], seen: _Seen) -> None:
    """Tail and a few places in between of a file that can be sought."""
    size = raw.seek(0, 2)
    for i in range(1, N_SAMPLES + 1):
        at = size * i // (N_SAMPLES + 1)
        if at > len(seen.head):
            raw.seek(at)
            _flag(seen, raw.read(SAMPLE_BYTES))
    raw.seek(max(size - TAIL_BYTES, 0))
    seen.tail = raw.read(TAIL_BYTES)
    _flag(seen, seen.tail)
    seen.is_deep = True


def _stream(chunks: Iterator[bytes], seen: _Seen) -> None:
    """Tail of a compressed file: everything passes by, only the last piece is kept."""
    tail = seen.head[-TAIL_BYTES:]
    for chunk in chunks:
        _flag(seen, tail[-64:] + chunk)
        tail = (tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
    seen.tail, seen.is_deep = tail, True


def _cat_pattern(cats: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(f'"cat":{gap}"{cat}"'.encode() for cat in cats for gap in (" ", ""))


_ACTIVITY = _cat_pattern(DEVICE_CATS)
_CALLS = _cat_pattern(CALL_CATS)


def _flag(seen: _Seen, data: bytes) -> None:
    seen.activity = seen.activity or any(cat in data for cat in _ACTIVITY)
    seen.calls = seen.calls or any(cat in data for cat in _CALLS)


def _header(head: bytes) -> bytes:
    """The part before the events."""
    match = _EVENTS.search(head)
    return head[: match.start()] if match else head


def _facts(seen: _Seen, kind: Sniff) -> Probe:
    match = _EVENTS.search(seen.head) if kind.shape == "object" else None
    header = seen.head[: match.start()] if match else (seen.head if kind.shape == "object" else b"")
    after = seen.tail if kind.shape == "object" else b""
    distributed = _distributed(header) or _distributed(after, last=True)
    base = _last_int(_BASE, after) if _BASE.search(header) is None else _first_int(_BASE, header)
    events = seen.head[match.end() if match else 0 :][:EVENT_BYTES]
    peek = peek_events(events, seen.tail[-EVENT_BYTES:])
    return Probe(
        kind=kind.kind,
        shape=kind.shape,
        rank=_int(distributed.get("rank")),
        world_size=_int(distributed.get("world_size"), at_least=1),
        backend=_text(distributed.get("backend")),
        pg_count=_int(distributed.get("pg_count")),
        groups_key=_groups_key(distributed.get("pg_config")),
        base_ns=base,
        host=_host(header) or _host(after[after.rfind(b"]") :]),
        gpus=_gpus(header) or _gpus(after),
        first_ns=None if peek.first_ns is None else peek.first_ns + (base or 0),
        last_ns=None if peek.last_ns is None else peek.last_ns + (base or 0),
        is_deep=seen.is_deep,
        has_device_activity=seen.activity or peek.has_cat(DEVICE_CATS),
        has_device_calls=seen.calls or peek.has_cat(CALL_CATS),
        process_names=peek.process_names,
        fused_ranks=_fused(peek),
    )


def _fused(peek: Peek) -> tuple[int, ...]:
    return peek.ranks if len(peek.ranks) > 1 else ()


def _distributed(text: bytes, *, last: bool = False) -> dict[str, Any]:
    """The distributedInfo object; of a damaged one, what patterns can still tell."""
    matches = list(_DISTRIBUTED.finditer(text))
    if not matches:
        return {}
    start = matches[-1 if last else 0].end() - 1
    body = _balanced(text, start)
    try:
        value = json.loads(body.decode("utf-8", "replace"), strict=False)
        if isinstance(value, dict):
            return value
    except (ValueError, RecursionError):
        pass
    found: dict[str, Any] = {}
    for key in ("rank", "world_size", "pg_count"):
        found[key] = _first_int(re.compile(rb'"' + key.encode() + rb'"\s{0,64}:\s{0,64}"?(\d{1,9})'), body)
    backend = re.search(rb'"backend"\s{0,64}:\s{0,64}"([^"\\]{1,64})"', body)
    found["backend"] = backend.group(1).decode("utf-8", "replace") if backend else None
    return found


_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


def _balanced(text: bytes, start: int) -> bytes:
    """From an opening bracket to its partner; to the end of what was read when there is none."""
    depth = 0
    for token in _STRUCTURE.finditer(text, start):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return text[start : token.end()]
    return text[start:]


def _first_int(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    match = pattern.search(text)
    return int(match.group(1)) if match else None


def _last_int(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    found = pattern.findall(text)
    return int(found[-1]) if found else None


def _int(value: Any, *, at_least: int = 0) -> int | None:
    """A whole number below 2**31, written as a number (`3`, `3.0`) or as text; else None."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 11:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value < 2**31:
        return None
    return value


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _host(text: bytes) -> str | None:
    match = _HOST.search(text)
    return match.group(1).decode("utf-8", "replace").strip() or None if match else None


def _gpus(text: bytes) -> tuple[str, ...]:
    match = _DEVICES.search(text)
    if match is None:
        return ()
    body = _balanced(text, match.end() - 1)[: 256 << 10]
    return tuple(name.decode("utf-8", "replace") for name in _NAME.findall(body)[:64])


def _groups_key(config: Any) -> str | None:
    if not isinstance(config, list) or not config:
        return None
    rows = sorted(json.dumps(row, sort_keys=True) for row in config)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:12]
