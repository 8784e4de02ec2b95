"""Many JSON tokens at once: to Arrow text, exact nanoseconds, integers, flags and coded words.

A token is the JSON text of one value, as it stands in the file. Well-formed columns convert in bulk; only a
column with an unusual token is looked at value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rankscope.store.units import INT64_MAX, NS_PER_US, fits_int64, ns_from_us

from .keys import Kind

Token = bytes | msgspec.Raw
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SEPARATOR = 0x1E
"""A control character, which valid JSON never contains unescaped: safe between tokens."""
_MAX_INT_DIGITS = 20
_MAX_US = INT64_MAX // NS_PER_US


def token_array(tokens: Sequence[Token]) -> pa.StringArray:
    """The tokens as one Arrow string array."""
    n = len(tokens)
    joined = bytes([_SEPARATOR]).join(tokens)
    offsets = np.zeros(n + 1, np.int32)
    offsets[1:-1] = np.flatnonzero(np.frombuffer(joined, np.uint8) == _SEPARATOR) - np.arange(n - 1)
    offsets[-1] = len(joined) - max(n - 1, 0)
    data = joined.translate(None, bytes([_SEPARATOR]))
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(data))


def _raw_buffers(tokens: pa.StringArray) -> tuple[npt.NDArray[np.int32], bytes]:
    _, offsets, data = tokens.buffers()
    ends = np.frombuffer(offsets, np.int32, len(tokens) + 1)
    return ends, data.to_pybytes() if data is not None else b""


def ns_column(tokens: pa.StringArray) -> tuple[Ints, Mask]:
    """Decimal microseconds to ns; the mask says which tokens were numbers that fit int64."""
    bulk = _ns_in_bulk(tokens)
    if bulk is not None:
        return bulk, np.ones(len(tokens), np.bool_)
    values = [ns_from_us(t.strip('"')) for t in tokens.to_pylist()]
    return _from_optional(values)


def _ns_in_bulk(tokens: pa.StringArray) -> Ints | None:
    ends, data = _raw_buffers(tokens)
    n_dots = data.count(b".")
    if n_dots == 0:
        values = _plain_ints(tokens)
        if values is None or np.any(np.abs(values) > _MAX_US):
            return None
        return values * NS_PER_US
    if n_dots != len(tokens) or np.any(np.diff(ends) < 5):
        return None
    bytes_ = np.frombuffer(data, np.uint8)
    if not np.all(bytes_[ends[1:] - 4] == ord(".")):
        return None
    # Every token has exactly three decimals (libkineto's format): drop the dot and it is nanoseconds.
    shifted = ends - np.arange(len(ends), dtype=np.int32)
    squeezed = pa.StringArray.from_buffers(
        len(tokens), pa.py_buffer(shifted), pa.py_buffer(data.translate(None, b"."))
    )
    return _plain_ints(squeezed)


def _plain_ints(tokens: pa.StringArray) -> Ints | None:
    try:
        values: Ints = pc.cast(tokens, pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return values


def int_column(tokens: pa.StringArray) -> tuple[Ints, Mask, Mask]:
    """Integers to int64.

    Returns:
        values; a mask of those that are integers; a mask of those written as such (a string that holds an
        integer, as ROCm writes `bytes`, is one but is not written as one).
    """
    values = _plain_ints(tokens)
    if values is not None:
        everything = np.ones(len(tokens), np.bool_)
        return values, everything, everything
    texts = tokens.to_pylist()
    found, known = _from_optional([_int_or_none(t.strip('"')) for t in texts])
    return found, known, known & np.array([not t.startswith('"') for t in texts], np.bool_)


def _int_or_none(text: str) -> int | None:
    if len(text) > _MAX_INT_DIGITS or not text.lstrip("-").isdecimal() or not text.isascii():
        return None
    try:
        value = int(text)
    except ValueError:  # "--1"
        return None
    return value if fits_int64(value) else None


def flag_column(tokens: pa.StringArray) -> tuple[Mask, Mask]:
    """true/1 and false/0 to booleans; the mask says which tokens were one of them."""
    words = {"true": True, "1": True, "false": False, "0": False}
    found = [words.get(t) for t in tokens.to_pylist()]
    return np.array([bool(f) for f in found], np.bool_), np.array([f is not None for f in found], np.bool_)


def _from_optional(values: Sequence[int | None]) -> tuple[Ints, Mask]:
    known = np.array([v is not None for v in values], np.bool_)
    return np.array([v or 0 for v in values], np.int64), known


def word_column(
    tokens: pa.StringArray, kind: Kind, rename: Callable[[str], str] | None = None
) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Text values as codes into a list of distinct words; code -1 where the token is not of that kind."""
    coded = tokens.dictionary_encode()
    words: dict[str, int] = {}
    code_of = np.empty(max(len(coded.dictionary), 1), np.int32)
    for i, token in enumerate(coded.dictionary.to_pylist()):
        text = token_text(token, kind)
        if text is None:
            code_of[i] = -1
            continue
        text = rename(text) if rename else text
        code_of[i] = words.setdefault(text, len(words))
    return code_of[coded.indices.to_numpy()], list(words)


def token_text(text: str, kind: Kind) -> str | None:
    """The text of one token where it is of the kind, else None."""
    if text.startswith('"'):
        return text[1:-1] if "\\" not in text else _unescaped(text)
    if kind is Kind.ANY:
        return text if text != "null" else None
    if kind is Kind.ID and text not in ("null", "true", "false") and text[:1] not in ("{", "["):
        return text
    return None


def _unescaped(token: str) -> str | None:
    try:
        value: Any = msgspec.json.decode(token.encode())
    except (msgspec.DecodeError, UnicodeError):
        return None
    return str(value)
