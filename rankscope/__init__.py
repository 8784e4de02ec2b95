"""Rankscope: where did every GPU-nanosecond of a multi-GPU LLM run go, why, and what would fixing it save."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run import Run as Run
    from .run import ingest_run as ingest_run
    from .run import open as open  # noqa: A004 - the public name

__version__ = "0.1.0"

__all__ = ["Run", "__version__", "ingest_run", "open"]

_LAZY = {"Run": "run", "open": "run", "ingest_run": "run"}


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that importing a submodule stays cheap."""
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
