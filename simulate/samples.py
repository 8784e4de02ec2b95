"""Makes `sample_traces/` anew: simulated runs with their truth, recordings, and the page of right answers.

    python -m rankscope.simulate.samples sample_traces [--recordings FOLDER]

Without `--recordings` the recordings already there stay as they are. The same code gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankscope.store.schema import PARTS

from .disturb import Disturbances
from .model import Hardware, Layout, ModelShape, SimulationConfig
from .run import simulate, truth_table

MODEL = ModelShape(layers=4, hidden=2048, ffn=5632, heads=16, kv_heads=8, seq=2048, vocab=8192)

SIMULATED: dict[str, tuple[str, SimulationConfig]] = {
    "sim_tp2pp2dp2": (
        "TP2 x PP2 x DP2 on two hosts of four GPUs, 1F1B, 4 microbatches, 6 steps, every kernel; healthy",
        SimulationConfig(
            name="sim_tp2pp2dp2",
            layout=Layout(tp=2, pp=2, dp=2),
            model=MODEL,
            hardware=Hardware(gpus_per_host=4),
            microbatches=4,
            steps=6,
            disturbances=Disturbances(jitter=0.02),
        ),
    ),
    "sim_pp4_1f1b": (
        "PP4 on one host, 1F1B, 8 microbatches, 5 steps, two kernels a layer and pass, no gradient clipping; a textbook bubble",
        SimulationConfig(
            name="sim_pp4_1f1b",
            layout=Layout(pp=4),
            model=replace(MODEL, layers=8, vocab=1024),
            microbatches=8,
            steps=5,
            detail="layer",
            has_grad_norm=False,
        ),
    ),
    "sim_slow_rank": (
        "as the first in coarse detail, 6 steps, rank 5 computing 1.3 times slower, the second host 350 us ahead",
        SimulationConfig(
            name="sim_slow_rank",
            layout=Layout(tp=2, pp=2, dp=2),
            model=MODEL,
            hardware=Hardware(gpus_per_host=4),
            microbatches=4,
            steps=6,
            detail="layer",
            disturbances=Disturbances(jitter=0.02, slow_ranks=((5, 1.3),), clock_offsets=((1, 350_000),)),
        ),
    ),
}

RECORDED: dict[str, tuple[str, int, str]] = {
    "rec_ddp_w2": ("DistributedDataParallel", 2, "2 steps; 4 gradient all-reduces a step"),
    "rec_fsdp2_w4": ("FSDP2 (fully_shard)", 4, "2 steps; `FSDP::` annotations of every unit"),
    "rec_tp_w2": ("tensor parallelism with DTensor", 2, "2 steps; Python frames left out to save space"),
    "rec_moe_w4": ("mixture of experts, all-to-all", 4, "2 steps; all-to-all and all-reduce; memory events"),
    "rec_pp_gpipe_w4": ("pipeline, ScheduleGPipe", 4, "2 steps, 4 microbatches; `Forward i`, `Backward i`"),
    "rec_pp_1f1b_w4": (
        "pipeline, Schedule1F1B",
        4,
        "2 steps, 4 microbatches; no annotations, send and recv only",
    ),
    "rec_pp_int1f1b_w4": (
        "pipeline, ScheduleInterleaved1F1B, 2 chunks",
        4,
        "2 steps; `PP:` annotations of 8 stages",
    ),
}
"""Folder: what was recorded, ranks, what is in it."""

SPLIT = ("transfer_ns", "pipeline_wait_ns", "straggler_wait_ns")


FRAME = re.compile(r',\s+\{\n    "ph": "X",\s+"cat": "python_function".*?\n  \}(?=,?\n)', re.DOTALL)
"""An event of a Python frame as PyTorch prints it, with the comma before it."""


def without_python_frames(text: str) -> str:
    """The trace without its python_function events; everything else stays as it was, to the byte."""
    return FRAME.sub("", text)


def copy_recordings(source: Path, out: Path) -> None:
    """Copy the recordings, one folder a run, one file a rank."""
    for name, (_, world, _) in RECORDED.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(world):
            data = gzip.decompress((source / f"{name}_rank{rank}.json.gz").read_bytes())
            if name == "rec_tp_w2":
                data = without_python_frames(data.decode()).encode()
            (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))


HEAD = (
    "| rank | coords | wall | compute only | overlap | exposed comm | exposed memcpy | idle "
    "| transfer | pipeline wait | straggler wait |"
)


def _steady(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the steps that reports use: first and last left out when there are four or more."""
    steps = sorted({r["step"] for r in rows})
    kept = steps[1:-1] if len(steps) >= 4 else steps
    return [r for r in rows if r["step"] in kept]


def _ms(rows: list[dict[str, Any]], column: str) -> str:
    return f"{sum(r[column] for r in rows) / len(rows) / 1e6:.3f}"


def answers(truth: Path) -> Iterator[str]:
    """Rows of the table of right answers: per rank, the mean step in ms."""
    rows = _steady(truth_table(truth, "breakdown"))
    for rank in sorted({r["rank"] for r in rows}):
        mine = [r for r in rows if r["rank"] == rank]
        values = [_ms(mine, c) for c in ("wall_ns", *PARTS, *SPLIT)]
        yield f"| {rank} | {mine[0]['coords']} | {' | '.join(values)} |"


def _simulated_section(out: Path) -> list[str]:
    lines: list[str] = []
    for name, (text, config) in SIMULATED.items():
        truth = out / name / "truth.json"
        rows = _steady(truth_table(truth, "breakdown"))
        facts = _facts(truth)
        causes = [c for c in facts["causes"] if any(r[c] for r in rows)]
        idle = ", ".join(f"{c[:-3]} {_ms(rows, c)}" for c in causes)
        findings = ", ".join(_finding(f) for f in facts["findings"]) or "none"
        lines += [
            f"### {name}",
            "",
            f"{text[0].upper()}{text[1:]}. Mean of the steady steps, in ms:",
            "",
            HEAD,
            "|" + "---|" * HEAD.count(" | ") + "---|",
            *answers(truth),
            "",
            f"Idle by cause, mean over ranks: {idle}. Faults: {findings}.",
            f"Ideal bubble of the schedule: {facts['schedule']['ideal_bubble_to_ideal']:.4f} of the work.",
            f"Steps {config.first_step} to {config.first_step + config.steps - 1} are recorded.",
            "",
        ]
    return lines


def _finding(finding: dict[str, Any]) -> str:
    place = finding.get("host") or f"ranks {finding.get('ranks')}"
    return f"{finding['code']} ({place}; costs {finding['cost_ns'] / 1e6:.3f} ms a rank over the run)"


def _facts(truth: Path) -> dict[str, Any]:
    return dict(json.loads(truth.read_text(encoding="utf-8")))


INTRODUCTION = """# Sample traces

Small runs with their answers. This page is made by `python -m rankscope.simulate.samples sample_traces`.

## Recorded

Recorded with PyTorch 2.13 on CPU with the gloo backend, for this project; no GPU, so every number in them is a
host time. One folder a run, one `rank<N>.json.gz` a rank.
"""

MIDDLE = """
## Simulated

Made by `rankscope simulate`: GPU-shaped traces as PyTorch 2.12 and later write them, of a run that never was. Every
folder has a `truth.json`, written by the simulator from its own state and not from the trace: per rank and step the
columns of `breakdown`, step windows, the split of exposed communication, every call with arrivals and waits, groups,
clocks, the pipeline, and the faults that were put in with what they cost. Times in it are true ns since `origin_ns`;
a file's clock is ahead by its host's `offset_ns`.

Each row sums: wall = compute only + overlap + exposed comm + exposed memcpy + idle, and exposed comm = transfer +
pipeline wait + straggler wait. From one rank's file alone that last split cannot be known.
"""


def write_page(out: Path) -> None:
    """Write the page of right answers from the truths."""
    lines = [INTRODUCTION, "| folder | what | ranks | in it |", "|---|---|---|---|"]
    lines += [f"| {n} | {what} | {world} | {text} |" for n, (what, world, text) in RECORDED.items()]
    lines += [MIDDLE, *_simulated_section(out)]
    (out / "README.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Make the samples."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="the sample_traces folder")
    parser.add_argument("--recordings", type=Path, help="folder of <run>_rank<N>.json.gz to copy from")
    given = parser.parse_args(argv)
    if given.recordings is not None:
        copy_recordings(given.recordings, given.out)
    for name, (_, config) in SIMULATED.items():
        simulate(config, given.out / name)
    write_page(given.out)


if __name__ == "__main__":
    main()
