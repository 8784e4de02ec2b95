"""Bytes of a trace to Arrow batches: the one replaceable piece of reading.

`scan(chunks, sink, path=...)` sends batches with exactly the columns of `RAW_EVENTS` to `sink` and returns a
`ScanResult`. Another scanner with this signature and the same output can take its place.
"""

from __future__ import annotations

from .careful import scan
from .result import ScanResult

__all__ = ["ScanResult", "scan"]
