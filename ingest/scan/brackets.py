"""Where values begin and end in JSON text that may be damaged."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

MAX_DEPTH = 400
"""Nesting beyond this is no event; the decoder's own limit lies near 1,000."""
UNTERMINATED = -1
"""The text ends before the value does."""
BROKEN = -2
"""The brackets do not match, or nest too deep: more text will not help."""

_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]"]', re.DOTALL)
_BARE = re.compile(rb"[^\s,}\]]+")
_CLOSER_OF = {ord("{"): ord("}"), ord("["): ord("]")}

_KEYS = (
    rb'"(?:ph|cat|name|pid|tid|ts|dur|id|args|bp|s|tts|tdur|cname|sf|attr|scope|id2|stack|estack)"\s{0,64}:'
)
EVENT_START = re.compile(rb"\{\s{0,256}" + _KEYS)
"""Plausible first bytes of an event."""
BOUNDARY = re.compile(rb"\}\s{0,256},\s{0,256}(?=\{\s{0,256}" + _KEYS + rb")")
"""Between two events, most probably: the match ends at the second one's brace."""
ANY_BOUNDARY = re.compile(rb"\}\s{0,256},\s{0,256}(?=\{)")
"""Between two events whose first key is none of the usual ones."""
_CLOSING = re.compile(rb"\}[\s,]{0,256}\]")
_LOOK_AHEAD = 4096
_LIST_END = re.compile(rb'[\s,\x00]*+\][\s\x00]*+(?:,\s*+"|\}[\s\x00]*+\Z|\Z)')

_SURE_END = re.compile(
    rb'\][\s\x00]*+(?:,\s*+"(?:traceName|displayTimeUnit|baseTimeNanoseconds|schemaVersion|distributedInfo|trace_id'
    rb'|(?:device|compute)Properties|otherData|metadata|INFO|ERROR|systemTraceEvents|stackFrames|samples)"'
    rb"|\}?+[\s\x00]*+(?![,}\]\"\s\x00]))"
)
_LOOSE_END = re.compile(rb'[\s,\x00]*+\][\s\x00]*+\}?+[\s\x00]*+(?![,}\]"])')


def list_end(text: bytes) -> int:
    """Length up to where the text shows that the event list's closing bracket comes next; 0 if it does not.

    A stray bracket, with another event behind it, is none.
    """
    match = _LIST_END.match(text)
    if match is None:
        # Something foreign behind the end of the document, unless it is more events.
        match = _LOOSE_END.match(text)
        if match is None or EVENT_START.search(text, match.end()):
            return 0
    return match.end()


def list_ends(text: bytes) -> Iterator[tuple[int, int]]:
    """Probable ends of the event list: behind its last event, and where its closing bracket stands."""
    for match in _CLOSING.finditer(text):
        bracket = match.end() - 1
        if list_end(text[bracket : bracket + _LOOK_AHEAD]):
            yield match.start() + 1, bracket


def sure_list_end(text: bytes) -> tuple[int, int] | None:
    """The last end of an event list that cannot be the end of a list inside an event's arguments."""
    last = None
    for stop, bracket in list_ends(text):
        if _SURE_END.match(text, bracket):
            last = stop, bracket
    return last


def value_end(text: bytes, start: int, limit: int | None = None) -> int:
    """Position behind the value that starts at `start`, else `UNTERMINATED` or `BROKEN`."""
    return value_extent(text, start, limit)[0]


def value_extent(text: bytes, start: int, limit: int | None = None) -> tuple[int, int]:
    """The same, and how far the text had to be read to tell."""
    limit = len(text) if limit is None else limit
    if start >= limit:
        return UNTERMINATED, limit
    if text[start] not in b'{["':
        bare = _BARE.match(text, start, limit)
        return (bare.end(), bare.end()) if bare else (BROKEN, start)
    open_brackets: list[int] = []
    for match in _STRUCTURE.finditer(text, start, limit):
        char = text[match.start()]
        if char == ord('"'):
            if match.end() - match.start() == 1:
                return UNTERMINATED, limit  # a string that does not end
        elif char in _CLOSER_OF:
            open_brackets.append(_CLOSER_OF[char])
            if len(open_brackets) > MAX_DEPTH:
                return BROKEN, match.end()
        elif not open_brackets or open_brackets.pop() != char:
            return BROKEN, match.end()
        if not open_brackets:
            return match.end(), match.end()
    return UNTERMINATED, limit


def last_boundary(text: bytes) -> re.Match[bytes] | None:
    """The last probable boundary between two events, found from the end backwards."""
    for pattern in (BOUNDARY, ANY_BOUNDARY):
        reach = 1 << 16
        while True:
            start = max(len(text) - reach, 0)
            found = deque(pattern.finditer(text, start), maxlen=1)
            if found:
                return found[0]
            if start == 0:
                break
            reach *= 8
    return None


def boundaries(text: bytes) -> list[tuple[int, int]]:
    """Start and end of every stretch between probable boundaries: events, if the text is undamaged."""
    cuts = [(m.start() + 1, m.end()) for m in BOUNDARY.finditer(text)]
    if not cuts:
        cuts = [(m.start() + 1, m.end()) for m in ANY_BOUNDARY.finditer(text)]
    starts = [0, *(start for _, start in cuts)]
    ends = [*(end for end, _ in cuts), len(text)]
    return list(zip(starts, ends, strict=True))
