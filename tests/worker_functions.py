"""Functions for worker processes, which find them here by name."""

from __future__ import annotations

import os


def squared(x: int) -> int:
    """The square."""
    return x * x


def squared_or_dead(x: int) -> int:
    """Kills its process for one argument, as a lack of memory does."""
    if x == 3:
        os._exit(9)
    return x * x
