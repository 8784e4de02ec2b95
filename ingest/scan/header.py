"""The top-level keys of a trace beside its event list, however damaged.

User metadata is written into the header without escaping (PyTorch 2.13 turns `say "hi"` into `"say /"hi/"`), so
a header that is no valid JSON is normal: every readable key is kept, a broken value keeps its text.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from .brackets import UNTERMINATED, value_end
from .notes import Notes
from .repair import is_utf8, repaired

MAX_VALUE = 8 << 20
"""A longer value is skipped: nothing that describes a run is that long."""
MAX_BROKEN = 64 << 10
"""A broken value longer than this is dropped rather than kept as text."""

_VALUES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEY = re.compile(rb'[\s,]*+"((?:[^"\\]|\\.){0,512})"\s*+:\s*+', re.DOTALL)
_NEXT_KEY = re.compile(rb',\s{0,256}"(?:[^"\\\r\n]|\\.){1,200}"\s{0,64}:')
_AFTER_VALUE = re.compile(rb"\s*+(?:,|(?P<close>\})|\Z)")
_BLANK = b" \t\r\n,\0"
MAX_PASSES = 8
"""Work on a broken header is limited to reading it so many times over."""


def parse_header(text: bytes, *, offset: int, notes: Notes) -> tuple[dict[str, Any], bool]:
    """The keys and values of a stretch between the braces of a JSON object.

    Args:
        text: members of an object, without its opening brace; its closing brace may follow the last.
        offset: byte offset of the text, for messages.
        notes: receives what was mended.

    Returns:
        The values, and whether the object was closed in this text.
    """
    start = len(text) - len(text.lstrip(_BLANK))
    body = text.strip(_BLANK)
    offset += start
    if body.startswith(b"}"):
        return {}, True  # whatever follows the document
    if body.endswith(b"}"):
        inner = body[:-1].rstrip(_BLANK)
        values = _strict(inner)
        if values is not None:
            return _decoded_all(values, offset, notes), True
    else:
        inner = body
    values = _strict(body)
    if values is not None:
        return _decoded_all(values, offset, notes), False
    fixed, repairs = repaired(inner)
    values = _strict(fixed)
    if values is not None:
        notes.add_repairs(repairs, offset)
        return _decoded_all(values, offset, notes), inner is not body
    found, is_closed = _member_by_member(inner, offset, notes)
    return found, is_closed or inner is not body


def _strict(text: bytes) -> dict[str, msgspec.Raw] | None:
    if not is_utf8(text):
        return None
    try:
        return _VALUES.decode(b"{" + text + b"}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _decoded_all(values: dict[str, msgspec.Raw], offset: int, notes: Notes) -> dict[str, Any]:
    texts = {key: bytes(raw) for key, raw in values.items()}
    for key, text in texts.items():
        if len(text) > MAX_VALUE:
            _skip(key, text, offset, notes)
    return {key: _value(text) for key, text in texts.items() if len(text) <= MAX_VALUE}


def _skip(key: str, text: bytes, offset: int, notes: Notes) -> None:
    notes.add("header_skipped", f"{key}: {len(text)} bytes", offset=offset)


def _value(text: bytes) -> Any:
    """The value; its own text where it is no JSON that Python can hold (a number of a thousand digits)."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        pass
    try:
        return json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return text.decode("utf-8", "replace")


def _member_by_member(text: bytes, offset: int, notes: Notes) -> tuple[dict[str, Any], bool]:
    values: dict[str, Any] = {}
    position = 0
    budget = MAX_PASSES * len(text)
    while position < len(text):
        match = _KEY.match(text, position)
        if match is None:
            following = _NEXT_KEY.search(text, position + 1)
            position = following.start() if following else len(text)
            continue
        key = _value(b'"' + match[1] + b'"')
        start = match.end()
        end = value_end(text, start) if budget > 0 else UNTERMINATED
        budget -= (end if end > 0 else len(text)) - start
        after = _AFTER_VALUE.match(text, end) if end > 0 else None
        if after:
            if end - start > MAX_VALUE:
                _skip(key, text[start:end], offset + start, notes)
            else:
                values[key] = _mended_value(text[start:end], offset + start, notes)
            if after["close"] and not _NEXT_KEY.search(text, end):
                return values, True
            position = end
            continue
        following = _NEXT_KEY.search(text, start)
        position = following.start() if following else len(text)
        broken = text[start:position].strip(_BLANK)
        if len(broken) > MAX_BROKEN:
            _skip(key, broken, offset + start, notes)
            continue
        values[key] = broken.removeprefix(b'"').removesuffix(b'"').decode("utf-8", "replace")
        example = broken[:80].decode("utf-8", "backslashreplace")
        notes.add("string_repaired", f"{key}: {example}", offset=offset + start)
    return values, False


def _mended_value(text: bytes, offset: int, notes: Notes) -> Any:
    fixed, repairs = repaired(text)
    notes.add_repairs(repairs, offset)
    return _value(fixed)
