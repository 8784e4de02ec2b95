"""The small vocabularies and records of the ground: classes, severities, columns, quality rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa


class Class(StrEnum):
    """Class of a device activity."""

    COMPUTE = "compute"
    COMM = "comm"
    MEMCPY = "memcpy"


class CopyKind(StrEnum):
    """Kind of a copy or memset."""

    H2D = "h2d"
    D2H = "d2h"
    D2D = "d2d"
    P2P = "p2p"
    H2H = "h2h"
    MEMSET = "memset"


class Severity(StrEnum):
    """Severity of a quality row; `--strict` fails on the last two."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Timeline(StrEnum):
    """Which clockwork a row was measured on: device activity, or host ranges (CPU-only ranks)."""

    DEVICE = "device"
    HOST = "host"


@dataclass(frozen=True)
class Column:
    """One documented column."""

    name: str
    type: pa.DataType
    meaning: str

    @property
    def field(self) -> pa.Field:
        """The column as an Arrow field."""
        return pa.field(self.name, self.type)


@dataclass(frozen=True)
class TableSchema:
    """One documented table."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The table as an Arrow schema, in column order."""
        return pa.schema([c.field for c in self.columns])


@dataclass(frozen=True)
class Quality:
    """One finding about the data itself: something repaired, dropped, clipped, guessed or unmatched.

    Attributes:
        code: a stable word (CONTRACT section 6).
        severity: `info`, `warning` or `error`.
        rank: the rank it concerns, None when it concerns the run or an unknown rank.
        count: how many records.
        example: the first or most telling one, as text (with the byte offset where one exists).
        effect: what this does to the numbers, one clause.
        path: the source file, relative to the run, when one is meant.
    """

    code: str
    severity: str
    rank: int | None
    count: int
    example: str
    effect: str
    path: str | None = None
