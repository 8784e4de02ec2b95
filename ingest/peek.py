"""A lenient look at a piece of an event list: times, categories and process names, without a whole file.

Used by `probe` on the head and the tail. Events that do not decode are passed over; times far away from the
others (damaged stamps) are ignored, so that the range given never lies outside the file's true one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from statistics import median_low
from typing import Any

from .fused import RANK_LABEL

FAR_NS = 24 * 3600 * 10**9
"""One capture does not span a day: stamps farther than this from the median are damage."""
MAX_EVENTS = 4000
MAX_BROKEN = 64
"""Objects that may fail to decode before the piece is given up: bounds the work on hostile bytes."""
_OPEN = re.compile(r"\{\s*\"")
_DECODER = json.JSONDecoder(parse_float=Decimal, parse_int=Decimal, strict=False)


@dataclass(frozen=True)
class Peek:
    """What was seen: times relative to the file's base, categories, names and ranks of processes."""

    first_ns: int | None
    last_ns: int | None
    cats: frozenset[str]
    process_names: tuple[str, ...]
    ranks: tuple[int, ...]

    def has_cat(self, cats: Collection[str]) -> bool:
        """Whether one of the categories was seen."""
        return not self.cats.isdisjoint(cats)


def peek_events(head: bytes, tail: bytes = b"") -> Peek:
    """Times, categories and process names in the first and last events. Never raises.

    Args:
        head: bytes from the first event on.
        tail: the last bytes of the file; may overlap the head.
    """
    starts: list[int] = []
    ends: list[int] = []
    cats: set[str] = set()
    pids: set[str] = set()
    names: dict[str, None] = {}
    for event in (*_events(head), *_events(tail)):
        cat = event.get("cat")
        if isinstance(cat, str):
            cats.add(cat)
        if isinstance(event.get("pid"), str) and len(pids) < MAX_EVENTS:
            pids.add(event["pid"][:200])
        if event.get("ph") == "M":
            _note_name(event, names)
            continue
        start, duration = _ns(event.get("ts")), _ns(event.get("dur"))
        if start is not None and start != 0:
            starts.append(start)
            ends.append(start + duration if duration is not None and 0 <= duration < FAR_NS else start)
    first, last = _range(starts, ends)
    ranks = {int(m.group(1)) for label in (*names, *pids) if (m := RANK_LABEL.match(label))}
    return Peek(first, last, frozenset(cats), tuple(names)[:64], tuple(sorted(ranks)))


def _events(data: bytes) -> Iterator[dict[str, Any]]:
    """Objects that decode whole; the search goes on behind anything that does not."""
    text = data.decode("utf-8", "replace")
    at = n_broken = 0
    for _ in range(MAX_EVENTS):
        match = _OPEN.search(text, at)
        if match is None or n_broken > MAX_BROKEN:
            return
        try:
            value, at = _DECODER.raw_decode(text, match.start())
        except (ValueError, DecimalException, RecursionError):
            at, n_broken = match.end(), n_broken + 1
            continue
        if isinstance(value, dict) and "ph" in value:
            yield value


def _note_name(event: dict[str, Any], names: dict[str, None]) -> None:
    args = event.get("args")
    if event.get("name") in ("process_name", "process_labels") and isinstance(args, dict):
        for key in ("name", "labels"):
            value = args.get(key)
            if isinstance(value, str) and value and len(names) < 4096:
                names.setdefault(value[:200])


def _ns(value: Any) -> int | None:
    """Decimal microseconds, as a number or as text, in ns; None when they are not a time."""
    try:
        number = Decimal(value) if isinstance(value, str) and len(value) < 40 else value
        if not isinstance(number, Decimal) or not number.is_finite() or abs(number) >= 10**16:
            return None
        return int(number * 1000)
    except DecimalException:
        return None


def _range(starts: list[int], ends: list[int]) -> tuple[int | None, int | None]:
    if not starts:
        return None, None
    middle = median_low(starts)
    near = [(s, e) for s, e in zip(starts, ends, strict=True) if abs(s - middle) < FAR_NS]
    return min(s for s, _ in near), max(e for _, e in near)
