"""Keeping a command's process lean: no packages that no command needs, and a quick end.

`pyarrow` imports pandas (half a second) on the first `pa.array([...])`, only to ask whether its argument is
a Series; told that pandas is not there, it goes on without.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
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
            raise ModuleNotFoundError(f"{fullname} is kept out of rankscope's commands", name=fullname)
        return None


def keep_out(*packages: str) -> None:
    """Keep the packages from being imported by this process from now on; those already there stay."""
    sys.meta_path.insert(0, KeepOut(*(p for p in packages if p not in sys.modules)))


def owns_process(program: str) -> bool:
    """Whether this process was started as the program, and not by somebody who calls it as a function."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return (
        Path(getattr(main, "__file__", None) or "").stem == program
        or getattr(spec, "name", "") == f"{program}.cli.main"
    )


class LastWord:
    """The end of a process of our own: after every other exit handler, it is over at once.

    Threads of pyarrow's pools can outlive the interpreter and abort the process while C++ tears down
    ("terminate called without an active exception", exit code 134): a good result would be reported as a crash.
    """

    def __init__(self) -> None:
        self.code = 0
        atexit.register(self._leave)  # registered first, so it runs last

    def _leave(self) -> None:
        if "pyarrow" not in sys.modules:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.code)
