"""How a command's process ends."""

from __future__ import annotations

import subprocess
import sys

from rankscope.cli.process import owns_process


def test_a_process_of_ours_ends_with_its_code_after_every_other_exit_handler() -> None:
    code = (
        "import sys\nfrom rankscope.cli.process import LastWord\nword = LastWord()\nword.code = 4\n"
        "import atexit, pyarrow\natexit.register(lambda: print('cleaned up'))\nsys.exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "cleaned up\n")


def test_a_process_that_merely_calls_us_is_not_ours() -> None:
    assert not owns_process("rankscope")
