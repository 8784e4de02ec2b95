"""Exact time from decimal text, and lists of whole numbers as text for people.

Time stamps in traces are decimal microseconds. As doubles the absolute ones resolve 250 ns at best, so they are
read as digits; everything inside is int64 nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)

_DECIMAL = re.compile(r"\s*([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,9}))?\s*", re.ASCII)
_MAX_DIGITS = 400
"""Longer numbers are no time: refusing them keeps the arithmetic short whatever the file says."""


def fits_int64(value: int) -> bool:
    """Whether the integer can be stored in an int64 column."""
    return INT64_MIN <= value <= INT64_MAX


def ns_from_us(text: str) -> int | None:
    """Nanoseconds of a decimal number of microseconds, exactly.

    Digits beyond the nanosecond round to nearest, halves away from zero. Exponents are understood.

    Args:
        text: such as `12`, `-0.5`, `1712345678901234.567`, `1.5e3`.

    Returns:
        int64 nanoseconds; None when the text is no number or the value does not fit.
    """
    match = _DECIMAL.fullmatch(text) if len(text) <= _MAX_DIGITS else None
    if match is None:
        return None
    sign, whole, fraction, exponent = match.groups()
    digits = whole + (fraction or "")
    if not digits:
        return None
    shift = 3 - len(fraction or "") + int(exponent or 0)
    value = _shifted(int(digits), shift, len(digits))
    if value is None:
        return None
    value = -value if sign == "-" else value
    return value if fits_int64(value) else None


def _shifted(value: int, shift: int, n_digits: int) -> int | None:
    """`value` times ten to the `shift`, halves rounded up; None when it is certainly beyond int64."""
    if value == 0 or shift < -n_digits:
        return 0
    if shift >= 0:
        return value * int(10**shift) if shift <= 20 else None
    unit = int(10**-shift)
    return (2 * value + unit) // (2 * unit)


def number_ranges(numbers: Iterable[int], *, most: int | None = 6) -> str:
    """Whole numbers as people write them, runs joined: `0-3,8`; after `most` runs the rest is counted."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    shown = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:most])
    left = 0 if most is None else sum(b - a + 1 for a, b in runs[most:])
    return shown + (f" and {left} more" if left else "")
