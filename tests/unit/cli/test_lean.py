"""Packages kept out of a command's process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rankscope.cli.lean import KeepOut, owns_process


def test_a_package_kept_out_looks_not_installed_and_others_are_found() -> None:
    finder = KeepOut("pandas")
    with pytest.raises(ModuleNotFoundError):
        finder.find_spec("pandas.core", None)
    assert finder.find_spec("pandasnot", None) is None


def test_arrow_works_without_importing_pandas() -> None:
    code = (
        "import sys\nfrom rankscope.cli.lean import keep_out\nkeep_out('pandas')\nimport pyarrow as pa\n"
        "assert pa.table({'a': pa.array([1, None])}).to_pylist() == [{'a': 1}, {'a': None}]\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_process_of_ours_ends_with_its_code_after_every_other_exit_handler() -> None:
    code = (
        "import sys\nfrom rankscope.cli.lean import LastWord\nword = LastWord()\nword.code = 4\n"
        "import atexit, pyarrow\natexit.register(lambda: print('cleaned up'))\nsys.exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "cleaned up\n")


def test_a_process_that_merely_calls_us_is_not_ours() -> None:
    assert not owns_process("rankscope")
