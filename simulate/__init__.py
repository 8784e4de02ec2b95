"""A model of a training run, and the trace files and true answers it gives.

`run_simulation(out, tp=2, pp=2, slow_rank="3:1.5")` takes options as a user writes them; `simulate(config, out)`
takes a `SimulationConfig`. Both write `rank<N>.json.gz` per rank and `truth.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .model import SimulationConfig
    from .run import SimulationResult


def run_simulation(out: str | Path, **options: Any) -> SimulationResult:
    """Simulate the run that the options describe, and write it into a folder.

    Args:
        out: folder for the trace files and `truth.json`.
        options: any of `options.OPTIONS` (which gives each one's meaning); None keeps the default.
            Layout: `tp, cp, dp, pp, ep` (sizes), `fsdp, sequence_parallel` (bool), `gpus_per_host`.
            Work: `schedule, microbatches, virtual_stages, steps, seed, detail`.
            Model: `layers, hidden, ffn, heads, kv_heads, seq, vocab, microbatch, experts, topk`.
            Disturbances: `jitter, slow_rank, slow_link, data_stall, gc_pause, checkpoint, host_bound,
            clock_offset, missing_seq, missing_ranks, truncate, drop_launches`.
            Record: `compress` (`gz` or `plain`), `group_names`, `gpu`, `peak_tflops`; and `preset`.

    Returns:
        Paths and a summary.

    Raises:
        UsageError: an option or value that is not understood, or sizes that do not fit together.
        UnreadableFile: the folder cannot be written.
    Source: this project.
    """
    from .options import config_from_options
    from .run import simulate as run

    return run(config_from_options(**options), out)


def simulate(config: SimulationConfig, out: str | Path) -> SimulationResult:
    """Simulate a config and write it into a folder; see `rankscope.simulate.run.simulate`."""
    from .run import simulate as run

    return run(config, out)


def preset_texts() -> dict[str, str]:
    """Names of the ready-made runs and what each shows."""
    from .presets import PRESETS

    return {name: text for name, (text, _) in PRESETS.items()}
