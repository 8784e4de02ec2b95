"""Ready-made runs: what a healthy layout looks like, and one known fault each."""

from __future__ import annotations

from dataclasses import replace

from rankscope.store.errors import UsageError

from .disturb import Disturbances, SlowLink, Stall
from .model import Hardware, HostCosts, Layout, ModelShape, SimulationConfig

SMALL = ModelShape(layers=8, hidden=2048, ffn=5632, heads=16, kv_heads=8, seq=2048, vocab=16384)
NODE4 = Hardware(gpus_per_host=4)

_HEALTHY = SimulationConfig(
    name="healthy-3d",
    layout=Layout(tp=2, dp=2, pp=2),
    model=SMALL,
    hardware=NODE4,
    microbatches=4,
    steps=6,
    disturbances=Disturbances(jitter=0.02),
)


def _with(name: str, disturbances: Disturbances) -> SimulationConfig:
    return replace(_HEALTHY, name=name, disturbances=disturbances)


PRESETS: dict[str, tuple[str, SimulationConfig]] = {
    "healthy-3d": ("TP2 x PP2 x DP2 on two hosts, nothing wrong", _HEALTHY),
    "data-parallel": (
        "DDP on 4 GPUs, gradient buckets under the backward",
        replace(_HEALTHY, name="data-parallel", layout=Layout(dp=4), microbatches=1),
    ),
    "fsdp": (
        "FSDP on 8 GPUs of two hosts, parameters gathered one layer ahead",
        replace(_HEALTHY, name="fsdp", layout=Layout(dp=8, fsdp=True), microbatches=1),
    ),
    "tensor-parallel": (
        "TP4 in one host, all-reduce in every layer",
        replace(_HEALTHY, name="tensor-parallel", layout=Layout(tp=4), microbatches=1),
    ),
    "pipeline": (
        "PP4 with 8 microbatches, 1F1B: a textbook bubble",
        replace(_HEALTHY, name="pipeline", layout=Layout(pp=4), microbatches=8),
    ),
    "interleaved": (
        "PP4 with two chunks a rank, interleaved 1F1B, 8 microbatches",
        replace(
            _HEALTHY,
            name="interleaved",
            layout=Layout(pp=4),
            microbatches=8,
            schedule="interleaved",
            virtual_stages=2,
        ),
    ),
    "experts": (
        "mixture of 8 experts over EP4 x DP4, uneven all-to-all",
        replace(
            _HEALTHY,
            name="experts",
            layout=Layout(dp=4, ep=4),
            model=replace(SMALL, layers=4, experts=8, ffn=2048),
            microbatches=1,
        ),
    ),
    "context-parallel": (
        "CP4 ring attention over a long sequence",
        replace(
            _HEALTHY,
            name="context-parallel",
            layout=Layout(cp=4),
            model=replace(SMALL, layers=4, seq=16384),
            microbatches=1,
        ),
    ),
    "slow-rank": (
        "as healthy-3d, with rank 5 computing 1.3 times slower",
        _with("slow-rank", Disturbances(jitter=0.02, slow_ranks=((5, 1.3),))),
    ),
    "slow-link": (
        "as healthy-3d, with messages between the two hosts 4 times slower",
        _with("slow-link", Disturbances(jitter=0.02, slow_links=(SlowLink(4.0, hosts=(0, 1)),))),
    ),
    "data-stall": (
        "as healthy-3d, with rank 2 waiting 20 ms for data in steps 5 and 6",
        _with("data-stall", Disturbances(jitter=0.02, data_stalls=(Stall((2,), (5, 6), 20_000_000),))),
    ),
    "host-bound": (
        "small kernels behind a slow host: the GPU waits for launches",
        replace(
            _HEALTHY,
            name="host-bound",
            layout=Layout(dp=2),
            model=replace(SMALL, hidden=512, ffn=1536, heads=8, kv_heads=8, seq=512),
            host=replace(HostCosts(), op_ns=9_000, launch_ns=6_000, python_ns=6_000),
            microbatches=1,
        ),
    ),
    "clock-skew": (
        "as healthy-3d, with the second host's clock 350 us ahead",
        _with("clock-skew", Disturbances(jitter=0.02, clock_offsets=((1, 350_000),))),
    ),
    "scale": (
        "TP8 x PP4 x DP32 = 1024 ranks in coarse detail: a load test",
        replace(
            _HEALTHY,
            name="scale",
            layout=Layout(tp=8, pp=4, dp=32),
            hardware=Hardware(),
            detail="layer",
            steps=3,
            model=replace(SMALL, hidden=4096, ffn=11008, heads=32, kv_heads=8),
        ),
    ),
}


def preset(name: str) -> SimulationConfig:
    """The config of a preset.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in PRESETS:
        raise UsageError(f"no preset {name!r}", hint=f"Choose from {', '.join(sorted(PRESETS))}.")
    return PRESETS[name][1]
