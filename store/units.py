"""Exact time from decimal text, and quantities as text for people.

Time stamps in traces are decimal microseconds. As doubles the absolute ones resolve 250 ns at best, so they are
read as digits; everything inside is int64 nanoseconds, and text is made only for the screen.
"""

from __future__ import annotations

import re

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


def us_from_ns(ns: int) -> str:
    """Decimal microseconds with three places, the exact inverse of `ns_from_us`; `1500` -> `1.500`."""
    sign = "-" if ns < 0 else ""
    whole, rest = divmod(abs(ns), NS_PER_US)
    return f"{sign}{whole}.{rest:03d}"


def decimal_text(value: int, unit: int, places: int) -> str:
    """`value / unit` with so many decimals, rounded half away from zero in integers; `(1250, 1000, 1)` -> `1.3`."""
    scale = 10**places
    scaled = (2 * abs(value) * scale + unit) // (2 * unit)
    whole, rest = divmod(scaled, scale)
    sign = "-" if value < 0 and scaled else ""
    return f"{sign}{whole}.{rest:0{places}d}" if places else f"{sign}{whole}"


def ms_text(ns: int | None) -> str:
    """Milliseconds with one decimal and no unit, for columns headed `ms`; `-` when unknown."""
    return "-" if ns is None else decimal_text(ns, NS_PER_MS, 1)


def time_text(ns: int | None) -> str:
    """A duration in the unit a person would choose: `850 ns`, `12.3 us`, `4.5 ms`, `61.2 s`; `-` when unknown."""
    if ns is None:
        return "-"
    size = abs(ns)
    if size < NS_PER_US:
        return f"{ns} ns"
    if size < NS_PER_MS:
        return f"{decimal_text(ns, NS_PER_US, 1)} us"
    if size < 10 * NS_PER_S:
        return f"{decimal_text(ns, NS_PER_MS, 1)} ms"
    return f"{decimal_text(ns, NS_PER_S, 1)} s"


def bytes_text(n_bytes: int | None) -> str:
    """A size in decimal units: `512 B`, `4.1 kB`, `2.5 GB`; `-` when unknown."""
    if n_bytes is None:
        return "-"
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(n_bytes) >= size:
            return f"{decimal_text(n_bytes, size, 1)} {unit}"
    return f"{n_bytes} B"


def rate_gbps(n_bytes: int | None, ns: int | None) -> float | None:
    """Decimal GB/s, which is bytes per nanosecond; None when either is unknown or no time passed."""
    return None if n_bytes is None or not ns else n_bytes / ns


def rate_text(gbps: float | None) -> str:
    """A bandwidth as `123.4 GB/s`; `-` when unknown."""
    return "-" if gbps is None else f"{gbps:.1f} GB/s"


def percent_text(ratio: float | None) -> str:
    """A ratio in [0, 1] as `12.3 %`; `-` when unknown."""
    return "-" if ratio is None else f"{100 * ratio:.1f} %"
