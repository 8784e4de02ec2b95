"""Numbers and untrusted names as text for a terminal: units, shortening, display width."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from rankscope.store.units import NS_PER_MS, NS_PER_US, number_ranges

ELLIPSIS = "..."
UNKNOWN = "-"
"""What stands on screen where a value is unknown."""


def ms(ns: float | None) -> str:
    """Nanoseconds as milliseconds with one decimal, `-` when unknown."""
    return UNKNOWN if ns is None else f"{ns / NS_PER_MS:.1f}"


def us(ns: float | None) -> str:
    """Nanoseconds as microseconds with one decimal, `-` when unknown."""
    return UNKNOWN if ns is None else f"{ns / NS_PER_US:.1f}"


def percent(part: float | None, whole: float | None) -> str:
    """Share of the whole in percent with one decimal, `-` when it is not defined."""
    if part is None or not whole:
        return UNKNOWN
    return f"{100 * part / whole:.1f}%"


def ratio(value: float | None) -> str:
    """A ratio in [0, 1] as percent with one decimal, `-` when unknown."""
    return UNKNOWN if value is None else f"{100 * value:.1f}%"


def count(n: int, singular: str, plural: str | None = None) -> str:
    """`1 warning`, `2 warnings`; thousands separated."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def clean(text: str) -> str:
    """Untrusted text made harmless for a terminal: control and unprintable characters become `?`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\t\n\r" else "?" for c in text)


def width(text: str) -> int:
    """Columns the text takes in a terminal: wide East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_char_width(c) for c in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """The text filled with spaces to a display width; `right` puts the text at the right edge."""
    space = " " * max(0, columns - width(text))
    return space + text if right else text + space


def shorten(text: str, columns: int) -> str:
    """The text cut in its middle to at most `columns`: both ends of a kernel's name tell something."""
    if width(text) <= columns:
        return text
    if columns <= len(ELLIPSIS):
        return _head(text, columns)
    room = columns - len(ELLIPSIS)
    tail = room // 2
    return _head(text, room - tail) + ELLIPSIS + _head(text[::-1], tail)[::-1]


def _head(text: str, columns: int) -> str:
    used = 0
    for i, char in enumerate(text):
        used += _char_width(char)
        if used > columns:
            return text[:i]
    return text


def ranges(numbers: Iterable[int]) -> str:
    """All of the integers as text with runs joined: `0-3,6,8-9`."""
    return number_ranges(numbers, most=None)


def wrap(text: str, columns: int, *, indent: str = "") -> list[str]:
    """Lines of at most `columns`, broken at spaces; a longer word is shortened in its middle."""
    lines: list[str] = []
    line = ""
    for word in clean(text).split():
        word = shorten(word, columns - width(indent if lines or line else ""))
        joined = f"{line} {word}" if line else (indent if lines else "") + word
        if width(joined) > columns and line.strip():
            lines.append(line)
            joined = indent + word
        line = joined
    return [*lines, line] if line else lines
