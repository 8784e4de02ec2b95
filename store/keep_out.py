"""Keeping packages that no process of ours needs from being imported.

`pyarrow` imports pandas (half a second) on the first `pa.array([...])`, only to ask whether its argument is
a Series; told that pandas is not there, it goes on without.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class KeepOut(MetaPathFinder):
    """An import finder that says of some packages that they are not installed."""

    def __init__(self, *packages: str) -> None:
        self.packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing for any other module; the usual error for ours."""
        del path, target
        if fullname.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"{fullname} is kept out of rankscope's processes", name=fullname)
        return None


def keep_out(*packages: str) -> None:
    """Keep the packages from being imported by this process from now on; those already there stay."""
    sys.meta_path.insert(0, KeepOut(*(p for p in packages if p not in sys.modules)))
