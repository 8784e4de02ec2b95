"""Traces as bytes, and what the scanner makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rankscope.ingest.scan import ScanResult
from rankscope.ingest.scan.careful import CHUNK, CarefulScan


def event(name: str = "e", **fields: Any) -> dict[str, Any]:
    """A kernel event; `fields` replace or add keys."""
    base: dict[str, Any] = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10, "dur": 5}
    return base | fields


def text_of(events: list[Any], *, head: str = '"schemaVersion": 1', tail: str = "") -> bytes:
    """An object trace; events given as text stand as they are."""
    rendered = [e if isinstance(e, str) else json.dumps(e) for e in events]
    tail = f", {tail}" if tail else ""
    return f'{{{head}, "traceEvents": [{", ".join(rendered)}]{tail}}}'.encode()


@dataclass
class Scanned:
    """Rows as dictionaries without nulls, and the result."""

    rows: list[dict[str, Any]]
    result: ScanResult

    @property
    def names(self) -> list[str | None]:
        return [row.get("name") for row in self.rows]

    @property
    def counts(self) -> dict[str, int]:
        return {q.code: q.count for q in self.result.quality}

    def example(self, code: str) -> str:
        return next(q.example for q in self.result.quality if q.code == code)


def scanned(content: bytes, *, chunk: int = CHUNK, piece: int = 1 << 16) -> Scanned:
    """Scan the bytes, fed in pieces; `chunk` is how much the scanner decodes together."""
    batches: list[pa.RecordBatch] = []
    pieces = (content[i : i + piece] for i in range(0, len(content), piece))
    result = CarefulScan(pieces, batches.append, path="trace.json", chunk=chunk).run()
    rows = [{k: v for k, v in row.items() if v is not None} for batch in batches for row in batch.to_pylist()]
    assert len(rows) == result.n_events
    return Scanned(rows, result)


def in_every_chunking(content: bytes) -> Iterator[Scanned]:
    """The same bytes with chunk and piece sizes that cut everywhere."""
    for chunk, piece in ((1 << 22, 1 << 16), (300, 64), (64, 1), (1000, 7)):
        yield scanned(content, chunk=chunk, piece=piece)
