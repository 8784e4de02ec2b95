"""A whole simulation: config in, a folder of trace files and their truth out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankscope.store.errors import UnreadableFile, UsageError

from .disturb import Disturbances
from .engine import Engine
from .groups import Group, build_groups
from .ledger import Ledger
from .model import SimulationConfig
from .record import Recorder
from .truth import TruthSink, run_facts
from .writers import MANY_RANKS, RankFile, cut, file_name, footer, header

UNFINISHED = '{"simulator": 1, "status": "unfinished"}\n'
"""Stands in `truth.json` until the run is whole, so that a folder left behind is known as ours."""

MOST_RANKS_FOR_COST = 64
"""Up to this world size each disturbance's cost is found by simulating the run without it."""


@dataclass(frozen=True)
class SimulationResult:
    """What was written.

    Attributes:
        out: the folder.
        files: trace files, by rank (those of missing ranks are not there).
        truth: path of `truth.json`.
        mean_step_ns: mean length of all ranks' step windows.
        findings: the disturbances with what they cost, as in `truth.json`.
    """

    out: Path
    files: tuple[Path, ...]
    truth: Path
    world: int
    steps: int
    mean_step_ns: int
    findings: tuple[dict[str, Any], ...]


def simulate(config: SimulationConfig, out: str | Path) -> SimulationResult:
    """Simulate a run and write one trace file per rank and `truth.json`.

    The same config gives the same bytes. Memory does not grow with steps, and by about 100 kB per rank.

    Args:
        config: what to simulate.
        out: folder to write into; made when absent. Files of an earlier simulation in it are replaced.

    Returns:
        Paths and a summary.

    Raises:
        UsageError: sizes that do not fit, or a folder that holds something else.
        UnreadableFile: the folder cannot be written.
    Source: this project.
    """
    config = config.validated()
    folder = Path(out)
    try:
        _prepare(folder)
        return _write_run(config, folder)
    except OSError as e:
        reason = e.strerror or str(e)
        raise UnreadableFile(
            f"cannot write: {reason}", path=str(folder), hint="Choose another folder."
        ) from e


def _write_run(config: SimulationConfig, folder: Path) -> SimulationResult:
    world, dist = config.layout.world, config.disturbances
    groups = build_groups(config)
    files = _files(config, folder)
    recorders: list[Recorder | None] = [None] * world
    for rank, file in files.items():
        recorders[rank] = _recorder(config, rank, file, groups)
    sink = TruthSink(config, folder)
    Engine(config, recorders=recorders, ledgers=[Ledger(r, sink) for r in range(world)], truth=sink).run()
    for rank, file in files.items():
        recorder = recorders[rank]
        if recorder is not None:
            recorder.closing()
        file.close(footer(config, rank))
    for rank, fraction in dist.truncated:
        if rank in files:
            cut(files[rank].path, fraction)
    findings = _findings(config, sink)
    facts = run_facts(config) | {
        "files": _file_rows(config),
        "groups": _group_rows(groups),
        "findings": findings,
    }
    truth = sink.write(facts)
    windows = sum(sink.n_windows.values())
    return SimulationResult(
        folder,
        tuple(f.path for f in files.values()),
        truth,
        world,
        config.steps,
        sum(sink.step_ns.values()) // max(1, windows),
        tuple(findings),
    )


def _prepare(folder: Path) -> None:
    """The folder exists and holds no trace but those of an earlier simulation, which go."""
    if folder.exists() and not folder.is_dir():
        raise UsageError("not a folder", path=str(folder), hint="Name a folder to write into.")
    folder.mkdir(parents=True, exist_ok=True)
    for part in sorted(folder.glob(".truth.*.part")):
        part.unlink()
    old = [p for pattern in ("rank*.json", "rank*.json.gz") for p in sorted(folder.glob(pattern))]
    if old and not _is_ours(folder / "truth.json"):
        raise UsageError(
            "the folder holds traces that were not simulated", path=str(folder), hint="Name an empty folder."
        )
    for path in old:
        path.unlink()
    (folder / "truth.json").write_text(UNFINISHED, encoding="utf-8")


def _is_ours(truth: Path) -> bool:
    """Whether an earlier simulation, finished or not, made the folder."""
    return truth.is_file() and '"simulator": 1' in truth.read_text(encoding="utf-8", errors="replace")[:64]


def _files(config: SimulationConfig, folder: Path) -> dict[int, RankFile]:
    world = config.layout.world
    return {
        rank: RankFile(
            folder / file_name(config, rank),
            is_compressed=config.is_compressed,
            is_one_of_many=world > MANY_RANKS,
        )
        for rank in range(world)
        if rank not in config.disturbances.missing_ranks
    }


def _recorder(config: SimulationConfig, rank: int, file: RankFile, groups: list[Group]) -> Recorder:
    file.head(header(config, rank, groups))
    recorder = Recorder(
        file,
        rank=rank,
        pid=20_000 + 64 * rank,
        device=rank % config.hardware.gpus_per_host,
        offset_ns=config.disturbances.clock_offset(config.host_of(rank)),
        has_seq=not config.disturbances.missing_seq,
    )
    recorder.opening()
    return recorder


def _file_rows(config: SimulationConfig) -> list[dict[str, Any]]:
    dist = config.disturbances
    cut_ranks = {r for r, _ in dist.truncated}
    rows = []
    for rank in range(config.layout.world):
        status = "missing" if rank in dist.missing_ranks else "truncated" if rank in cut_ranks else "whole"
        rows.append({"rank": rank, "path": file_name(config, rank), "status": status})
    return rows


def _group_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    return [
        {
            "pg": g.pg_name,
            "description": g.pg_desc,
            "axis": g.axis,
            "role": g.role,
            "ranks": list(g.ranks),
            "n_ranks": g.size,
            "is_inter_host": g.is_inter_host,
        }
        for g in groups
    ]


# what each disturbance cost


def _findings(config: SimulationConfig, sink: TruthSink) -> list[dict[str, Any]]:
    """One row per disturbance: what, where, and the time per rank that the run would have saved without it."""
    dist = config.disturbances
    total = sum(sink.step_ns.values())
    is_affordable = config.layout.world <= MOST_RANKS_FOR_COST
    out = []
    for code, items, without in _injected(dist):
        for i, item in enumerate(items):
            change: dict[str, Any] = {without: items[:i] + items[i + 1 :]}
            rest = replace(dist, **change)
            cost = None
            if is_affordable:
                cost = (total - quiet_total(replace(config, disturbances=rest))) // config.layout.world
            out.append({"code": code, **_place(config, code, item), "cost_ns": cost})
    return out + _record_findings(dist)


def _injected(dist: Disturbances) -> list[tuple[str, tuple[Any, ...], str]]:
    return [
        ("slow_rank", dist.slow_ranks, "slow_ranks"),
        ("slow_link", dist.slow_links, "slow_links"),
        ("data_stall", dist.data_stalls, "data_stalls"),
        ("gc_pause", dist.gc_pauses, "gc_pauses"),
        ("checkpoint", dist.checkpoints, "checkpoints"),
        ("host_bound", dist.host_bound, "host_bound"),
    ]


def _place(config: SimulationConfig, code: str, item: Any) -> dict[str, Any]:
    world, first = config.layout.world, config.first_step
    if code in ("slow_rank", "host_bound"):
        return {"ranks": [item[0]] if item[0] >= 0 else list(range(world)), "factor": item[1]}
    if code == "slow_link":
        return {
            "role": item.role,
            "group": item.group,
            "hosts": list(item.hosts or ()),
            "factor": item.factor,
        }
    steps = [s for s in range(first, first + config.steps) if not item.steps or s in item.steps]
    return {"ranks": list(item.ranks) or list(range(world)), "steps": steps, "injected_ns": item.ns}


def _record_findings(dist: Disturbances) -> list[dict[str, Any]]:
    """Disturbances of the record alone: they cost the run nothing."""
    out: list[dict[str, Any]] = [
        {"code": "clock_offset", "host": f"node{h:02d}", "offset_ns": ns, "cost_ns": 0}
        for h, ns in dist.clock_offsets
    ]
    out += [{"code": "rank_missing", "ranks": [r], "cost_ns": 0} for r in dist.missing_ranks]
    out += [{"code": "file_truncated", "ranks": [r], "fraction": f, "cost_ns": 0} for r, f in dist.truncated]
    if dist.missing_seq:
        out.append({"code": "missing_seq", "cost_ns": 0})
    if dist.dropped_launches:
        out.append({"code": "launches_dropped", "share": dist.dropped_launches, "cost_ns": 0})
    return out


def quiet_total(config: SimulationConfig) -> int:
    """Length of all step windows of a run, summed over ranks, without writing anything."""
    sink = TruthSink(config, None)
    world = config.layout.world
    Engine(config, ledgers=[Ledger(r, sink) for r in range(world)], truth=sink).run()
    return sum(sink.step_ns.values())


def truth_table(path: str | Path, name: str) -> list[dict[str, Any]]:
    """Rows of one table of a `truth.json`, as dicts.

    Raises:
        KeyError: there is no such table.
    """
    table = json.loads(Path(path).read_text(encoding="utf-8"))[name]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
