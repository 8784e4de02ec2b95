"""The end of a command's process: quick, whatever threads are left."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from pathlib import Path


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
