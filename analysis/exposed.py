"""Who owns an instant of exposed communication: what the design can tell without looking at other ranks."""

from __future__ import annotations

import numpy as np

from .intervals import EMPTY, I64, LARGEST, SMALLEST, Flags, Intervals, merge


def solo_transfer(start: I64, end: I64, is_solo: Flags) -> Intervals:
    """When the communication that ends last among those in flight is a call of a group of one.

    Such a call waits for nobody, so the instants it owns are transfer. An instant belongs to the call in flight
    that ends last; where one of a larger group ends at the same time the owner depends on roles, and the
    instant is left out.

    Args:
        start, end: communication activities of one device, any order.
        is_solo: whether each is a call of a group of one.

    Returns:
        The union of those instants.

    Cost: O(n log n), nothing where no call is of a group of one.
    Source: CONTRACT section 5 of this project's design.
    """
    if not is_solo.any():
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, end, is_solo = start[order], end[order], is_solo[order]
    solo = np.maximum.accumulate(np.where(is_solo, end, SMALLEST))
    other = np.maximum.accumulate(np.where(is_solo, SMALLEST, end))
    until = np.minimum(np.append(start[1:], LARGEST), solo)
    owned = (solo > other) & (until > start)
    return merge(start[owned], until[owned])
