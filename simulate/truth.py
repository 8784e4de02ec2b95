"""`truth.json`: the right answers of a simulated run, from the engine's own state.

Rows are spooled to disk as the run goes and put together at the end, so that memory does not grow with
ranks or steps. Times are true ns since `origin_ns`; a rank's file shows them plus its host's clock offset.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from rankscope.store.schema import BREAKDOWN, CAUSES

from .device import Call
from .model import SimulationConfig
from .record import BASE_NS, START_NS
from .schedules import ideal_bubble_to_ideal
from .windows import Step

BREAKDOWN_COLUMNS = tuple(
    c.name for c in BREAKDOWN.columns if c.name not in ("world", "window", "phase", "host", "gpu")
)
STEP_COLUMNS = ("rank", "step", "start_ns", "end_ns", "host_start_ns")
ROLE_PARTS = ("exposed_comm_ns", "overlap_ns", "transfer_ns", "pipeline_wait_ns", "straggler_wait_ns")
ROLE_COLUMNS = ("rank", "step", "role", *ROLE_PARTS, "n_calls")
CALL_COLUMNS = (
    "pg", "pg_description", "role", "op", "seq", "step", "message_bytes", "transfer_ns", "skew_ns", "last_rank",
    "src_rank", "dst_rank", "ranks", "arrival_ns", "end_ns", "wait_ns",
)  # fmt: skip
PIPELINE_COLUMNS = (
    "rank", "step", "pipeline", "stage", "phase_ns", "busy_ns", "phase_bubble_ns", "warmup_ns", "cooldown_ns",
    "bubble_fraction", "bubble_to_ideal",
)  # fmt: skip


class TruthSink:
    """Gathers rows of windows and calls.

    Attributes:
        step_ns: per step, the windows' lengths summed over ranks, for findings and the summary.
        transfer_by_role: transfer time of calls summed by role.
    """

    def __init__(self, config: SimulationConfig, folder: Path | None) -> None:
        self.config = config
        self.step_ns: dict[int, int] = defaultdict(int)
        self.n_windows: dict[int, int] = defaultdict(int)
        self.transfer_by_role: dict[str, int] = defaultdict(int)
        self._phases: dict[int, dict[int, tuple[int, int, int]]] = defaultdict(dict)
        self._folder = folder
        self._spools: dict[str, list[str]] = defaultdict(list)

    # what ledgers and engine report

    def window(self, rank: int, step: Step, end_ns: int) -> None:
        """A step's window of a rank is closed."""
        start = step.start_ns or 0
        self.step_ns[step.number] += end_ns - start
        self.n_windows[step.number] += 1
        if self._folder is None:
            return
        self._spool("steps", [rank, step.number, start, end_ns, step.host_start_ns])
        row = self.breakdown_row(rank, step, end_ns)
        self._spool("breakdown", [row[c] for c in BREAKDOWN_COLUMNS])
        roles = sorted({k.split(".")[0] for k in step.sums if "." in k})
        for role in roles:
            parts = [step.sums[f"{role}.{c}"] for c in (*ROLE_PARTS, "n_calls")]
            self._spool("roles", [rank, step.number, role, *parts])
        if step.act_start_ns is not None and step.act_end_ns is not None:
            self._phases[step.number][rank] = (step.act_start_ns, step.act_end_ns, step.busy_ns)
            if len(self._phases[step.number]) == self.config.layout.world:
                self._pipeline(step.number, self._phases.pop(step.number))

    def breakdown_row(self, rank: int, step: Step, end_ns: int) -> dict[str, Any]:
        """A row of `breakdown` as the engine knows it: no communication is left unsplit."""
        sums = step.sums
        row: dict[str, Any] = {c: sums[c] for c in BREAKDOWN_COLUMNS if c.endswith("_ns")}
        local = rank % self.config.hardware.gpus_per_host
        row |= {"rank": rank, "local_rank": local, "device": local, "coords": self.config.layout.coords(rank)}
        row |= {"step": step.number, "timeline": "device", "is_comm_recorded": True, "n": 1}
        row["wall_ns"] = end_ns - (step.start_ns or 0)
        comm = sums["communication_ns"]
        row["overlap_ratio"] = sums["overlap_ns"] / comm if comm else None
        waits = sums["pipeline_wait_ns"] + sums["straggler_wait_ns"]
        bubble = sums["idle_ns"] - sums["graph_gap_ns"] + waits
        row |= {"bubble_ns": bubble, "bubble_min_ns": bubble, "bubble_max_ns": bubble}
        row["pipeline_bubble_ns"] = sums["pipeline_wait_ns"] + sums["pipeline_idle_ns"]
        return row

    def call(self, call: Call) -> None:
        """A call is concluded."""
        self.transfer_by_role[call.group.role] += call.transfer_ns
        if self._folder is None:
            return
        arrivals = [m.start_ns for m in call.members]
        last = max(arrivals)
        lasts = [m.rank for m in call.members if m.start_ns == last]
        # a message is numbered on each side by itself: the sender's number stands for it
        sender = next(
            (m for m in call.members if m.comm is not None and m.comm.op == "send"), call.members[0]
        )
        facts, group = sender.facts, call.group
        seq = call.seq if facts is None else facts.seq
        row = [group.pg_name, group.pg_desc, group.role, call.op, seq, call.step, call.nbytes]
        row += [min(m.end_ns - m.start_ns for m in call.members), last - min(arrivals)]
        row += [lasts[0] if len(lasts) == 1 else None]
        row += [facts.src if facts else None, facts.dst if facts else None]
        row += [[m.rank for m in call.members], arrivals, [m.end_ns for m in call.members]]
        self._spool("calls", [*row, [min(m.wait_ns, m.end_ns - m.start_ns) for m in call.members]])

    def _pipeline(self, number: int, phases: dict[int, tuple[int, int, int]]) -> None:
        """Per rank, busy time and bubble of the pipeline phase: first action's start to last one's end."""
        lay = self.config.layout
        width = lay.tp * lay.cp * lay.dp
        for rank in sorted(phases):
            pipeline = rank % width
            members = [phases[r] for r in range(pipeline, lay.world, width)]
            start, end = min(m[0] for m in members), max(m[1] for m in members)
            own_start, own_end, busy = phases[rank]
            phase = end - start
            bubble = phase - busy
            row: list[Any] = [rank, number, pipeline, lay.place(rank)["pp"], phase, busy, bubble]
            row += [
                own_start - start,
                end - own_end,
                bubble / phase if phase else None,
                bubble / busy if busy else None,
            ]
            self._spool("pipeline", row)

    # spooling

    def _spool(self, name: str, row: list[Any]) -> None:
        lines = self._spools[name]
        lines.append(json.dumps(row, separators=(",", ":")))
        if len(lines) >= 512:
            self._write_out(name)

    def _part(self, name: str) -> Path:
        if self._folder is None:
            raise RuntimeError("no folder to write to")
        return self._folder / f".truth.{name}.part"

    def _write_out(self, name: str) -> None:
        if self._spools[name]:
            with self._part(name).open("a", encoding="utf-8") as f:
                f.write("\n".join(self._spools[name]) + "\n")
            self._spools[name] = []

    def _rows(self, name: str) -> Iterator[str]:
        self._write_out(name)
        part = self._part(name)
        if part.exists():
            with part.open(encoding="utf-8") as f:
                yield from (line.rstrip("\n") for line in f)
            part.unlink()

    def write(self, facts: dict[str, Any]) -> Path:
        """Put `truth.json` together: facts of the run, then the tables."""
        if self._folder is None:
            raise RuntimeError("no folder to write to")
        path = self._folder / "truth.json"
        tables = {
            "steps": STEP_COLUMNS,
            "breakdown": BREAKDOWN_COLUMNS,
            "roles": ROLE_COLUMNS,
            "pipeline": PIPELINE_COLUMNS,
            "calls": CALL_COLUMNS,
        }
        with path.open("w", encoding="utf-8") as f:
            f.write("{\n")
            for key, value in facts.items():
                f.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
            for i, (name, columns) in enumerate(tables.items()):
                self._table(f, name, columns)
                f.write(",\n" if i < len(tables) - 1 else "\n}\n")
        return path

    def _table(self, f: IO[str], name: str, columns: tuple[str, ...]) -> None:
        f.write(f'{json.dumps(name)}: {{"columns": {json.dumps(columns)}, "rows": [\n')
        for i, row in enumerate(self._rows(name)):
            f.write((",\n" if i else "") + row)
        f.write("\n]}")


def run_facts(config: SimulationConfig) -> dict[str, Any]:
    """What the run is, apart from its numbers: settings, clocks, ranks, schedule."""
    lay = config.layout
    world = lay.world
    hosts = sorted({config.host_of(r) for r in range(world)})
    ratio = ideal_bubble_to_ideal(config.schedule, p=lay.pp, m=config.microbatches, v=config.virtual_stages)
    return {
        "simulator": 1,
        "name": config.name,
        "origin_ns": BASE_NS + START_NS,
        "causes": list(CAUSES),
        "config": asdict(config),
        "clocks": [{"host": f"node{h:02d}", "offset_ns": config.disturbances.clock_offset(h)} for h in hosts],
        "ranks": [
            {
                "rank": r,
                "host": config.host_name(r),
                "local_rank": r % config.hardware.gpus_per_host,
                "coords": lay.coords(r),
            }
            for r in range(world)
        ],
        "schedule": {
            "name": config.schedule,
            "stages": config.n_stages,
            "microbatches": config.microbatches,
            "virtual_stages": config.virtual_stages,
            "ideal_bubble_to_ideal": ratio,
            "ideal_bubble_fraction": ratio / (1 + ratio),
            "layers_of_stage": [config.layers_of(s) for s in range(config.n_stages)],
        },
    }
