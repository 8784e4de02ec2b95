"""Helpers for tests of the simulator: ideal configs, runs in memory, and a slow independent reading of the files."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import Any

from rankscope.simulate.device import DeviceOp
from rankscope.simulate.engine import Engine
from rankscope.simulate.ledger import Ledger
from rankscope.simulate.model import Hardware, HostCosts, Layout, Link, ModelShape, SimulationConfig
from rankscope.simulate.truth import TruthSink
from rankscope.simulate.windows import Step
from rankscope.store.schema import PARTS

NO_LINK = Link(alpha_ns=0, gbps=inf)
FREE_HOST = HostCosts(**{f.name: 0 for f in fields(HostCosts)})
FREE = Hardware(intra=NO_LINK, inter=NO_LINK, kernel_gap_ns=0, event_latency_ns=0, gpus_per_host=64)
SMALL: dict[str, Any] = {"layers": 4, "hidden": 512, "ffn": 1024, "heads": 8, "seq": 256, "vocab": 2048}
"""Options of a small model."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "tp": {"tp": 2},
    "dp": {"dp": 2},
    "pp4": {"pp": 4, "microbatches": 8, "detail": "layer"},
    "3d": {"tp": 2, "pp": 2, "dp": 2, "microbatches": 2, "gpus_per_host": 4, "detail": "layer"},
}
"""Options of the layouts that every check is made on."""
TINY = ModelShape(layers=4, hidden=256, ffn=512, heads=8, kv_heads=8, seq=128, vocab=1024)


def ideal(layout: Layout, **fields: Any) -> SimulationConfig:
    """A run in which hosts, links and gaps cost nothing and each stage is one kernel of a given time."""
    base = SimulationConfig(
        layout=layout,
        model=replace(TINY, layers=16),
        hardware=FREE,
        host=FREE_HOST,
        detail="stage",
        fixed_ns=(4_000, 8_000),
        has_grad_norm=False,
        has_loss_item=False,
        steps=1,
    )
    return replace(base, **fields).validated()


class Memory(TruthSink):
    """Keeps windows and calls instead of spooling them."""

    def __init__(self, config: SimulationConfig) -> None:
        super().__init__(config, None)
        self.windows: list[tuple[int, Step, int]] = []
        self.concluded: list[Any] = []

    def window(self, rank: int, step: Step, end_ns: int) -> None:
        super().window(rank, step, end_ns)
        self.windows.append((rank, step, end_ns))

    def call(self, call: Any) -> None:
        super().call(call)
        self.concluded.append(call)


class Watched(Engine):
    """An engine that keeps every activity."""

    def finished(self, op: DeviceOp) -> None:
        self.ops.append(op)
        super().finished(op)


def run_in_memory(config: SimulationConfig) -> tuple[Memory, list[DeviceOp]]:
    """Simulate; the truth's rows and all activities."""
    sink = Memory(config)
    engine = Watched(config, ledgers=[Ledger(r, sink) for r in range(config.layout.world)], truth=sink)
    engine.ops = []  # type: ignore[attr-defined]
    engine.run()
    return sink, engine.ops  # type: ignore[attr-defined]


def read(path: Path) -> dict[str, Any]:
    """A trace file as plain JSON."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.name.endswith(".gz") else data)  # type: ignore[no-any-return]


def ns(text: float) -> int:
    """Nanoseconds of a time in a trace (its three decimals survive a double below 2^53 ns)."""
    return round(text * 1000)


def class_of(event: dict[str, Any]) -> str:
    """Class of a device activity in a simulated trace, by the simplest rule that is right there."""
    if event["cat"] != "kernel":
        return "memcpy"
    return "comm" if event["name"].startswith("nccl") else "compute"


def parts_of(events: list[dict[str, Any]], start: int, end: int, shift: int) -> dict[str, int]:
    """The five parts of a window by counting elementary stretches between all end points, one by one."""
    spans = []
    for e in events:
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            s = ns(e["ts"]) - shift
            spans.append((max(s, start), min(s + ns(e["dur"]), end), class_of(e)))
    spans = [s for s in spans if s[0] < s[1]]
    marks: dict[int, list[tuple[str, int]]] = {start: [], end: []}
    for s, e, cls in spans:
        marks.setdefault(s, []).append((cls, 1))
        marks.setdefault(e, []).append((cls, -1))
    out = dict.fromkeys(PARTS, 0)
    active = {"compute": 0, "comm": 0, "memcpy": 0}
    times = sorted(marks)
    for t, following in zip(times, [*times[1:], end], strict=True):
        for cls, change in marks[t]:
            active[cls] += change
        out[_part(active)] += following - t
    return out


def _part(active: dict[str, int]) -> str:
    if active["compute"]:
        return "overlap_ns" if active["comm"] else "compute_only_ns"
    if active["comm"]:
        return "exposed_comm_ns"
    return "exposed_memcpy_ns" if active["memcpy"] else "idle_ns"
