"""Broken JSON text made readable: escapes, control characters, encoding, non-finite numbers, commas, quotes.

Profilers write names, paths and user metadata into strings without escaping them; the text is still there and
only its quoting is wrong. Nothing here guesses at structure: brackets are left alone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import msgspec

_TOKEN = re.compile(
    rb'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<comma>,(?=\s{0,256}[}\]]))|(?P<bare>[^\s,:{}\[\]"]+)',
    re.DOTALL,
)
_GOOD_STRING = re.compile(
    rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"', re.DOTALL
)
_GOOD_ESCAPES = re.compile(rb'"[^"\\]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*+)*+"', re.DOTALL)
_GOOD_BARE = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_NOT_FINITE = re.compile(rb"[-+]?(?:nan(?:\(\w*\))?|inf(?:inity)?|1\.#\w+)", re.IGNORECASE)
_BACKSLASH = re.compile(rb'\\(["\\]?)')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_CONTROL = bytes(32 if c in b"\t\n\r" else min(c, 1) if c < 32 else c for c in range(256))
"""Translation that makes line ends and tabs spaces and leaves other control characters as 0 or 1."""
_MAX_BARE = 1 << 10
"""A longer run without quotes or separators is no value but a hole in the file."""
_PYTHON_WORDS = {b"True": b"true", b"False": b"false", b"None": b"null"}
STRING_REPAIRED = "string_repaired"
NUMBER_NOT_FINITE = "number_not_finite"
SYNTAX_REPAIRED = "syntax_repaired"
REPLACEMENT = "\ufffd".encode()

# A quote inside a string ends it only where the text goes on like JSON after a string.
_AFTER = rb'(?=\s{0,256}(?:[:}\]]|,\s{0,256}(?:["{\[\d-]|true|false|null)|\Z))'
_NOT_AFTER = _AFTER.replace(b"(?=", b"(?!", 1)
_LOOSE_STRINGS = (
    re.compile(rb'"((?:[^"\\]|\\.|"' + _NOT_AFTER + rb')*+)"' + _AFTER, re.DOTALL),
    # The same, where a path's last backslash stands before the closing quote.
    re.compile(
        rb'"((?:[^"\\]|\\"'
        + _NOT_AFTER
        + rb'|\\[^"]|\\(?="'
        + _AFTER
        + rb')|"'
        + _NOT_AFTER
        + rb')*+)"'
        + _AFTER,
        re.DOTALL,
    ),
)
_INNER_QUOTE = re.compile(rb'(\\.)|"', re.DOTALL)


@dataclass
class Repairs:
    """What was changed: per code how often, the first instance, and its offset in the text given."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)

    def add(self, code: str, token: bytes, offset: int) -> None:
        """Count one change."""
        self.counts[code] = self.counts.get(code, 0) + 1
        if code not in self.examples:
            self.examples[code] = token[:80].decode("utf-8", "backslashreplace")
            self.offsets[code] = offset


def is_utf8(text: bytes) -> bool:
    """Whether the bytes are valid UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def repaired(text: bytes) -> tuple[bytes, Repairs]:
    """The text with every token made valid; its brackets and separators are as they were, but for stray commas."""
    done = Repairs()

    def fix(match: re.Match[bytes]) -> bytes:
        token = match[0]
        if match.lastgroup == "string":
            fixed, code = repaired_string(token), STRING_REPAIRED
        elif match.lastgroup == "comma":
            fixed, code = b"", SYNTAX_REPAIRED
        else:
            fixed, code = _repaired_bare(token)
        if fixed != token:
            done.add(code, token, match.start())
        return fixed

    return _TOKEN.sub(fix, text), done


def repaired_string(token: bytes) -> bytes:
    """One string with its quotes, valid.

    Where one escape is invalid none of them was meant as one: backslashes are then path separators and stay.
    Raw tabs and line ends become spaces, other control characters and bytes that are no UTF-8 become U+FFFD.
    """
    if not _GOOD_STRING.fullmatch(token):
        if not _GOOD_ESCAPES.fullmatch(token):
            token = b'"' + _BACKSLASH.sub(_kept_backslash, token[1:-1]) + b'"'
        token = token.translate(_NO_CONTROL).replace(b"\0", REPLACEMENT).replace(b"\1", REPLACEMENT)
    if not is_utf8(token):
        token = token.decode("utf-8", "replace").encode()
    return _paired_surrogates(token) if _SURROGATE.search(token) else token


def _kept_backslash(match: re.Match[bytes]) -> bytes:
    return match[0] if match[1] else b"\\\\"


def _paired_surrogates(token: bytes) -> bytes:
    try:
        msgspec.json.decode(token)
    except msgspec.DecodeError:
        value: str = json.loads(token)
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return json.dumps(value, ensure_ascii=False).encode()
    return token


def _repaired_bare(token: bytes) -> tuple[bytes, str]:
    if len(token) > _MAX_BARE or _GOOD_BARE.fullmatch(token):
        return token, SYNTAX_REPAIRED
    if _NOT_FINITE.fullmatch(token):
        return b"null", NUMBER_NOT_FINITE
    word = _PYTHON_WORDS.get(token)
    # `1.`, `+5`, `007` or a stray word: kept as text, so that it is neither lost nor read as something else.
    return word or repaired_string(b'"' + token.replace(b"\\", b"\\\\") + b'"'), SYNTAX_REPAIRED


def requoted(text: bytes) -> list[tuple[bytes, Repairs]]:
    """Readings of a text whose strings contain unescaped quotes, likeliest first."""
    return [_requoted(text, pattern) for pattern in _LOOSE_STRINGS]


def _requoted(text: bytes, pattern: re.Pattern[bytes]) -> tuple[bytes, Repairs]:
    changed: list[tuple[bytes, int]] = []

    def fix(match: re.Match[bytes]) -> bytes:
        inner = _INNER_QUOTE.sub(_escaped_quote, match[1])
        token = b'"' + (inner + b"\\" if _is_odd_tail(inner) else inner) + b'"'
        fixed = repaired_string(token)
        if fixed != match[0]:
            changed.append((match[0], match.start()))
        return fixed

    fixed, done = repaired(pattern.sub(fix, text))
    for token, offset in changed:
        done.add(STRING_REPAIRED, token, offset)
    return fixed, done


def _escaped_quote(match: re.Match[bytes]) -> bytes:
    return match[1] or b'\\"'


def _is_odd_tail(text: bytes) -> bool:
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1
