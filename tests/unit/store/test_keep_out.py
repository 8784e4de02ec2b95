"""Packages kept out of our processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rankscope.store.keep_out import KeepOut


def test_a_package_kept_out_looks_not_installed_and_others_are_found() -> None:
    finder = KeepOut("pandas")
    with pytest.raises(ModuleNotFoundError):
        finder.find_spec("pandas.core", None)
    assert finder.find_spec("pandasnot", None) is None


def test_arrow_works_without_importing_pandas() -> None:
    code = (
        "import sys\nfrom rankscope.store.keep_out import keep_out\nkeep_out('pandas')\nimport pyarrow as pa\n"
        "assert pa.table({'a': pa.array([1, None])}).to_pylist() == [{'a': 1}, {'a': None}]\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
