"""What a scanner hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rankscope.store.schema import Quality


@dataclass(frozen=True)
class ScanResult:
    """The outcome of scanning one file.

    Attributes:
        header: every top-level key but `traceEvents`, decoded leniently.
        shape: `object`, `array` (a bare list of events) or `empty`.
        n_events: events sent to the sink.
        truncated: why the file is not whole, with a byte offset; None when it is.
        quality: what was repaired, skipped or lost.
        scanner: which scanner read it.
    """

    header: dict[str, Any]
    shape: str
    n_events: int
    truncated: str | None
    quality: list[Quality] = field(default_factory=list)
    scanner: str = "careful"
