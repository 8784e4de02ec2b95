"""The shipped samples are what the code makes, and their page says what their truth says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from builders_sim import read

from rankscope.simulate.run import simulate, truth_table
from rankscope.simulate.samples import RECORDED, SIMULATED, without_python_frames, write_page
from rankscope.store.schema import CAUSES, PARTS

SAMPLES = Path(__file__).resolve().parents[3] / "sample_traces"


@pytest.mark.parametrize("name", sorted(SIMULATED))
def test_a_simulated_sample_is_made_anew_to_the_same_text(name: str, tmp_path: Path) -> None:
    simulate(SIMULATED[name][1], tmp_path)
    for path in sorted(tmp_path.iterdir()):
        shipped = SAMPLES / name / path.name
        if path.suffix == ".gz":  # compressors differ between machines, what they hold must not
            assert gzip.decompress(path.read_bytes()) == gzip.decompress(shipped.read_bytes()), path.name
        else:
            assert path.read_bytes() == shipped.read_bytes(), path.name


def test_the_page_is_current() -> None:
    text = (SAMPLES / "README.md").read_text()
    write_page(SAMPLES)
    assert (SAMPLES / "README.md").read_text() == text


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recording_has_all_its_ranks_and_two_steps(name: str) -> None:
    world = RECORDED[name][1]
    for rank in range(world):
        trace = read(SAMPLES / name / f"rank{rank}.json.gz")
        info = trace["distributedInfo"]
        assert (info["rank"], info["world_size"], info["backend"]) == (rank, world, "gloo")
        steps = [e["name"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")]
        assert len(steps) == 2
        assert all(e.get("cat") != "python_function" for e in trace["traceEvents"])


@pytest.mark.parametrize("name", sorted(SIMULATED))
def test_the_truth_of_a_sample_closes(name: str) -> None:
    for row in truth_table(SAMPLES / name / "truth.json", "breakdown"):
        assert sum(row[c] for c in PARTS) == row["wall_ns"]
        assert sum(row[c] for c in CAUSES) == row["idle_ns"]
        assert row["bubble_ns"] == row["idle_ns"] + row["pipeline_wait_ns"] + row["straggler_wait_ns"]


def test_the_pipeline_sample_shows_the_bubble_of_the_textbook() -> None:
    # PP4, 8 microbatches: bubble over work = 3/8; compute of the stages is near equal, messages are small
    truth = SAMPLES / "sim_pp4_1f1b" / "truth.json"
    rows = [r for r in truth_table(truth, "pipeline") if r["step"] > 3]
    ratios = [r["bubble_to_ideal"] for r in rows]
    assert json.loads(truth.read_text())["schedule"]["ideal_bubble_to_ideal"] == 3 / 8
    assert all(3 / 8 < r < 0.46 for r in ratios), (min(ratios), max(ratios))


def test_python_frames_are_cut_out_of_a_recording_and_nothing_else() -> None:
    one = '{\n    "ph": "X", "cat": "cpu_op", "name": "a}",\n    "args": {\n      "x": 1\n    }\n  }'
    frame = '{\n    "ph": "X", "cat": "python_function", "name": "f"\n  }'
    text = '{"traceEvents": [\n  ' + ",\n  ".join([one, frame, one, frame]) + "\n  ]}"
    assert without_python_frames(text) == '{"traceEvents": [\n  ' + ",\n  ".join([one, one]) + "\n  ]}"
