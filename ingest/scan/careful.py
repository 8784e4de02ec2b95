"""The careful scanner: any JSON trace, of any age and in any state, to Arrow batches in bounded memory.

The event list is read in chunks of a few MB. A chunk is cut at the last probable boundary between two events and
decoded as a whole; when that fails, `salvage` takes it apart. Nothing is held but one chunk and the header.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from rankscope.store.errors import DamagedFile, UnknownFormat

from .brackets import EVENT_START, last_boundary, list_end, list_ends
from .columns import record_batch
from .decode import Event, decoded
from .header import parse_header
from .notes import TRAILING_COMMA, Notes
from .result import ScanResult
from .salvage import Salvage
from .window import Window

Sink = Callable[[pa.RecordBatch], None]

CHUNK = 4 << 20
"""Bytes decoded together: large enough that per-chunk work vanishes, small enough to stay in cache."""
MAX_EVENT = 64 << 20
"""A single event longer than this is skipped."""
MAX_HEADER = 32 << 20
"""Of longer metadata, on either side of the event list, only this much and the last `CLIPPED_TAIL` are read."""
CLIPPED_TAIL = 1 << 20

_EVENTS_KEY = re.compile(rb'(?<!\\)"traceEvents"\s{0,64}:\s{0,64}\[')
_KEY_REACH = 256
_KINETO_KEYS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|trace_id)"\s{0,64}:'
)
_BLANK = b" \t\r\n\0"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HINT = "Rankscope reads PyTorch profiler (Chrome JSON) traces."


def scan(chunks: Iterable[bytes], sink: Sink, *, path: str) -> ScanResult:
    """Read a trace from its bytes; the events go to `sink` as `RAW_EVENTS` batches, in file order.

    Args:
        chunks: the unpacked content, in pieces of any size.
        sink: receives each batch.
        path: for messages only.

    Raises:
        UnknownFormat: the content is no trace.
        DamagedFile: it is one, but no event could be recovered.
    """
    return CarefulScan(chunks, sink, path=path).run()


class CarefulScan:
    """One pass over one file; see `scan`."""

    def __init__(self, chunks: Iterable[bytes], sink: Sink, *, path: str, chunk: int = CHUNK) -> None:
        self._window = Window(chunks)
        self._sink = sink
        self._path = path
        self._chunk = chunk
        self._notes = Notes()
        self._header: dict[str, Any] = {}
        self._truncated: str | None = None
        self._n_events = 0
        self._is_array = False
        self._is_amid_damage = False

    def run(self) -> ScanResult:
        """Scan to the end of the stream."""
        shape = self._shape()
        if shape == "empty":
            self._notes.add("file_empty", "no content")
        elif shape == "array":
            self._is_array = True
            if not self._read_events():
                self._unclosed_array()
        else:
            self._read_object()
        if self._truncated:
            self._notes.add("file_truncated", self._truncated)
            if self._n_events == 0:
                raise DamagedFile(f"holds no whole event: {self._truncated}", path=self._path)
        return ScanResult(
            header=self._header,
            shape=shape,
            n_events=self._n_events,
            truncated=self._truncated,
            quality=self._notes.quality(),
            scanner="careful",
        )

    def _shape(self) -> str:
        window = self._window
        window.fill(1 << 12)
        if window.text.startswith(_UTF16):
            raise UnknownFormat(
                "is UTF-16 text", path=self._path, hint="Convert it to UTF-8 (iconv -f utf-16 -t utf-8)."
            )
        window.advance(3 if window.text.startswith(b"\xef\xbb\xbf") else 0)
        while not window.text.strip(_BLANK) and not window.is_last:
            window.advance(len(window.text))
            window.fill(1 << 12)
        rest = window.text.lstrip(_BLANK)
        if not rest:
            return "empty"
        if not rest.startswith((b"{", b"[")):
            raise self._no_trace("it is not JSON")
        window.advance(len(window.text) - len(rest) + 1)
        return "object" if rest.startswith(b"{") else "array"

    # --- the object around the event list --------------------------------------------------------------------
    def _read_object(self) -> None:
        n_lists = 0
        while True:
            offset = self._window.offset
            text, found, is_whole = self._until_events()
            if not found and n_lists == 0 and not _KINETO_KEYS.search(text):
                raise self._no_trace('it has no "traceEvents" list')
            values, is_closed = parse_header(text, offset=offset, notes=self._notes)
            self._header.update(values)
            if not found:
                break
            n_lists += 1
            if not self._read_events():
                self._truncated = (
                    self._truncated or f"ends inside the event list, at byte {self._window.offset}"
                )
                return
        if n_lists == 0:
            self._no_events(text, is_closed)
        elif not is_closed and is_whole:
            self._truncated = f"ends inside the metadata after the events, at byte {self._window.offset}"

    def _until_events(self) -> tuple[bytes, bool, bool]:
        """Text up to the next event list: the text, whether one follows, whether the text is all there was."""
        window = self._window
        kept: bytes | None = None
        searched = 0
        while True:
            match = _EVENTS_KEY.search(window.text, searched)
            if match or window.is_last:
                text = window.text[: match.start()] if match else window.text
                window.advance(match.end() if match else len(window.text))
                # With its middle missing the text is no JSON, but the keys on either side are still found.
                return (text if kept is None else kept + text), match is not None, kept is None
            if len(window.text) > MAX_HEADER or kept is not None:
                if kept is None:
                    kept = window.text[:MAX_HEADER]
                    self._notes.add("header_skipped", "metadata too long", offset=window.offset + MAX_HEADER)
                window.advance(max(len(window.text) - CLIPPED_TAIL, 0))
            searched = max(len(window.text) - _KEY_REACH, 0)
            window.fill(len(window.text) + self._chunk)

    def _no_events(self, text: bytes, is_closed: bool) -> None:
        if not is_closed and _KINETO_KEYS.search(text):
            raise DamagedFile(
                f"ends before its event list, at byte {self._window.offset}",
                path=self._path,
                hint="The writer was cut off; nothing of its events is in the file.",
            )
        raise self._no_trace('it has no "traceEvents" list')

    def _no_trace(self, why: str) -> UnknownFormat:
        return UnknownFormat(f"is no trace: {why}", path=self._path, hint=_HINT)

    # --- the event list --------------------------------------------------------------------------------------
    def _read_events(self) -> bool:
        """Read up to the closing bracket; whether there was one. The window then stands behind it."""
        window = self._window
        want = self._chunk
        while True:
            window.fill(want)
            window.advance(len(window.text) - len(window.text.lstrip(_BLANK + b",")))
            if window.text.startswith(b"]"):
                window.fill(4096)
                is_end = list_end(window.text[:4096]) > 0
                window.advance(1)
                if is_end:
                    return True
                self._notes.add("syntax_repaired", "stray bracket between events", offset=window.offset - 1)
                continue
            if not window.text and window.is_last:
                return False
            if not self._is_amid_damage and (self._read_whole() or self._read_to_end()):
                want = self._chunk
                continue
            boundary = last_boundary(window.text)
            if boundary is None and not window.is_last:
                want = self._grown()
                continue
            want = self._salvage()
            if want < 0:
                return False

    def _read_whole(self) -> bool:
        """The fast route: everything up to the last boundary is sound."""
        window = self._window
        if window.is_last:
            return False
        boundary = last_boundary(window.text)
        if boundary is None or not self._emit_text(window.text[: boundary.start() + 1]):
            return False
        window.advance(boundary.end())
        return True

    def _read_to_end(self) -> bool:
        """The list ends in this chunk and everything before its end is sound."""
        text = self._window.text
        ends = list(list_ends(text))
        for stop, bracket in ends[:1] if len(ends) == 1 else [*ends[:1], *ends[:-3:-1]]:
            if self._emit_text(text[:stop]):
                if b"," in text[stop:bracket]:
                    self._notes.add("syntax_repaired", TRAILING_COMMA, offset=self._window.offset + stop)
                self._window.advance(bracket)
                return True
        return False

    def _grown(self) -> int:
        """How much to hold next, when one event may be longer than the chunk."""
        window = self._window
        if len(window.text) < MAX_EVENT:
            return 2 * len(window.text) + self._chunk
        example = window.text[:80].decode("utf-8", "backslashreplace")
        self._notes.add("event_skipped", f"longer than {MAX_EVENT >> 20} MB: {example}", offset=window.offset)
        window.advance(len(window.text) - _KEY_REACH)
        return self._chunk

    def _salvage(self) -> int:
        """Take the chunk apart; how much to hold next, -1 when the file ends inside the list."""
        window = self._window
        offset = window.offset
        with _no_gc():
            got = Salvage(
                window.text,
                offset=offset,
                is_last=window.is_last,
                notes=self._notes,
                is_amid_damage=self._is_amid_damage,
            ).run()
            self._is_amid_damage = got.is_amid_damage and not got.is_end
            self._emit(got.events)
        window.advance(got.consumed)
        if got.is_end:
            return self._chunk
        if got.open_at is not None and window.is_last:
            if self._is_array and self._n_events == 0 and not EVENT_START.match(window.text):
                raise self._no_trace("its list holds no events")
            self._truncated = f"ends inside an event that begins at byte {window.offset}"
            window.advance(len(window.text))
            return -1
        if got.consumed == 0:
            return self._grown()
        return self._chunk

    def _emit_text(self, text: bytes) -> bool:
        with _no_gc():
            events = decoded(text)
            if events is None:
                return False
            self._emit(events)
        return True

    def _emit(self, events: list[Event]) -> None:
        if not events:
            return
        if self._is_array and self._n_events == 0 and not any("ph" in e for e in events):
            raise self._no_trace("its list holds no events")
        self._n_events += len(events)
        self._sink(record_batch(events))

    def _unclosed_array(self) -> None:
        if self._n_events == 0 and self._truncated is None:
            raise self._no_trace("its list holds no events")
        if self._truncated is None:
            self._notes.add("array_not_closed", "no closing bracket", offset=self._window.offset)


@contextmanager
def _no_gc() -> Iterator[None]:
    """Without the cycle collector, which otherwise walks the million fresh objects of every chunk."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
