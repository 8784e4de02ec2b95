"""The same results in process, in a pool and on any executor; a dead worker costs one item."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from worker_functions import squared, squared_or_dead

from rankscope.ingest.workers import default_jobs, estimated_bytes, mapped

ITEMS = [1, 2, 3, 4, 5]


def _fail(item: int) -> int:
    raise AssertionError(item)


def test_one_job_runs_in_this_process_in_order() -> None:
    assert list(mapped(squared, ITEMS, jobs=1, lost=_fail)) == [(i, i * i) for i in ITEMS]
    assert list(mapped(squared, [], jobs=4, lost=_fail)) == []


def test_the_executor_given_is_used_and_left_open() -> None:
    with ThreadPoolExecutor(2) as executor:
        assert dict(mapped(squared, ITEMS, executor=executor, jobs=9, lost=_fail)) == {
            i: i * i for i in ITEMS
        }
        assert executor.submit(squared, 7).result() == 49


def test_a_worker_that_dies_costs_its_own_item_only() -> None:
    found = dict(mapped(squared_or_dead, ITEMS, jobs=2, lost=lambda item: -item))
    assert found == {1: 1, 2: 4, 3: -3, 4: 16, 5: 25}


def test_an_error_of_the_call_reaches_the_caller() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(AssertionError):
        list(mapped(_fail, ITEMS, executor=executor, lost=_fail))


def test_packed_files_count_as_what_they_hold() -> None:
    assert estimated_bytes("a.json", 100) == 100
    assert estimated_bytes("a.json.gz", 100) == 1200
    assert estimated_bytes("a.json", None) == 0
    assert default_jobs() >= 1


def test_workers_do_not_run_the_callers_script_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('script runs')\n"
        "import math\n"
        "from rankscope.ingest.workers import mapped\n"
        "print(sorted(mapped(math.factorial, [3, 4], jobs=2, lost=lambda i: None)))\n"
        "print(__file__, __spec__)\n"
    )
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["script runs", "[(3, 6), (4, 24)]", f"{script} None"]
