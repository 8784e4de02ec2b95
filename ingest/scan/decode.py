"""JSON text of events to Python objects whose values stay text."""

from __future__ import annotations

import msgspec

from .repair import Repairs, is_utf8, repaired

Event = dict[str, msgspec.Raw]

_EVENTS = msgspec.json.Decoder(list[Event])


def decoded(text: bytes) -> list[Event] | None:
    """The events of a comma-separated text, or None when it is not valid JSON of objects alone.

    Values are not interpreted: a value of an unexpected type never fails the whole.
    """
    if not is_utf8(text):
        return None
    try:
        return _EVENTS.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decoded_or_repaired(text: bytes) -> tuple[list[Event] | None, Repairs | None]:
    """The same, mending tokens if need be; the repairs are None when none were needed."""
    events = decoded(text)
    if events is not None:
        return events, None
    fixed, repairs = repaired(text)
    if not repairs.counts:
        return None, None
    events = decoded(fixed)
    return events, repairs if events is not None else None
