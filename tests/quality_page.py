"""What docs/quality.md lists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "quality.md"
_ROW = re.compile(r"^\| `(\w+)` \| ([a-z, ]+) \| (.+) \| (.+) \|$", re.M)


class Listed(NamedTuple):
    """One row of the page."""

    code: str
    severities: frozenset[str]
    meaning: str
    effect: str


@cache
def listed() -> tuple[Listed, ...]:
    """The rows, in their order."""
    rows = _ROW.findall(PAGE.read_text())
    return tuple(Listed(c, frozenset(s.split(", ")), m.strip(), e.strip()) for c, s, m, e in rows)


def is_listed(code: str, severity: str) -> bool:
    """Whether the page lists the code with this severity."""
    return any(row.code == code and severity in row.severities for row in listed())
