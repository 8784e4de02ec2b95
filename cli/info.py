"""`rankscope info`: what was read, what is wrong with it, and which questions it can answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import text
from .answers import Answer, Facts, answers
from .identity import (
    Identity,
    devices_text,
    groups_of,
    identity,
    metadata_of,
    ranks_text,
    versions_text,
    worlds_text,
)
from .options import Cut, Output, Source
from .render import emit, rows_of
from .table import Block, Col

if TYPE_CHECKING:
    import pyarrow as pa

    from rankscope.run import Run

QUESTION = "What was read, and which questions can this capture answer?"
KINDS = {"torch_profiler": "trace"}
RANK_FROM = {"distributed_info": "trace", "name": "file name"}
SHOWN_SOURCES = 32
SHOWN_GROUPS = 12
STEP_KEYS = ("world", "timeline", "source", "phase")
WORST_FIRST = {"error": 0, "warning": 1, "info": 2}
FLAGS = ("record_shapes", "with_stack", "profile_memory")
Row = Mapping[str, Any]


class Part(StrEnum):
    """Which table json, csv and parquet give."""

    QUALITY = "quality"
    SOURCES = "sources"
    STEPS = "steps"
    ANSWERS = "answers"


@dataclass(frozen=True)
class Shown:
    """Which part."""

    part: Annotated[
        Part,
        typer.Option(help="The rows json, csv and parquet give; the screen and markdown show everything."),
    ] = Part.QUALITY


def info(source: Source, cut: Cut, shown: Shown, output: Output) -> None:
    """Everything about the data itself.

    The sources with their ranks, devices, versions and groups, the steps found, every quality row, missing ranks,
    and a table of questions: yes, bound or no, because of what, and what to collect instead.
    """
    from .session import opened

    with opened(source, cut, output, may_be_empty=True) as run:
        emit(_machine_table(run, shown.part), lambda: screen(run), output)


def _machine_table(run: Run, part: Part) -> pa.Table:
    if part is not Part.ANSWERS:
        return run.table(part.value)
    import pyarrow as pa

    found = answers(facts_of(run))
    return pa.table(
        {
            "question": [a.question for a in found],
            "answer": [a.answer for a in found],
            "because": [a.because for a in found],
            "collect": [a.collect or None for a in found],
        },
        schema=pa.schema([(name, pa.string()) for name in ("question", "answer", "because", "collect")]),
    )


def screen(run: Run) -> list[Block]:
    """Everything `info` shows, block by block."""
    sources = list(rows_of(run.table("sources")))
    windows = _windows(run)
    who = identity(sources, windows)
    return [
        *source_blocks(sources),
        facts_block(who, [s for s in sources if s["world"] not in who.other_worlds]),
        *steps_blocks(list(rows_of(run.table("steps"))), run.steps_note()),
        *quality_blocks(list(rows_of(run.table("quality")))),
        answers_block(answers(facts_of(run))),
    ]


def _windows(run: Run) -> list[dict[str, Any]]:
    return list(rows_of(run.breakdown_table(by=["world", "rank", "device", "window", "step"])))


def source_blocks(sources: Sequence[Row]) -> list[Block]:
    """The files, those with a problem first when there are too many to show."""
    from rankscope.ingest.walk import natural_key

    ordered = sorted(sources, key=lambda s: (s["status"] == "whole", natural_key(s["path"])))[:SHOWN_SOURCES]
    if len(sources) <= SHOWN_SOURCES:
        ordered = sorted(sources, key=lambda s: natural_key(s["path"]))
    several = {k: len({s[k] for s in sources}) > 1 for k in ("kind", "world")}
    shown: list[tuple[Col, Callable[[Row], str]]] = [
        (Col("file", right=False, shrink=16), lambda s: str(s["path"])),
        (Col("kind", right=False, shrink=8), lambda s: KINDS.get(s["kind"], s["kind"] or text.UNKNOWN)),
        (Col("rank"), lambda s: _shown(s["rank"])),
        (Col("rank from", right=False), lambda s: RANK_FROM.get(s["rank_source"], _shown(s["rank_source"]))),
        (Col("world", right=False, shrink=5), lambda s: _shown(s["world"])),
        (Col("window"), lambda s: _shown(s["window"])),
        (Col("events"), lambda s: _shown(s["n_events"])),
        (Col("on GPU"), lambda s: _shown(s["n_activities"])),
        (Col("status", right=False), lambda s: _shown(s["status"])),
    ]
    shown = [(col, cell) for col, cell in shown if several.get(col.header, True)]
    rows = [[cell(s) for _, cell in shown] for s in ordered]
    notes = [f"{s['path']}: {s['reason']}" for s in ordered if s["reason"]]
    if len(sources) > len(ordered):
        notes.append(f"{len(sources) - len(ordered)} more files: --part sources --format csv lists all.")
    return [
        Block(
            title=f"What was read: {text.count(len(sources), 'file')}",
            columns=[col for col, _ in shown],
            rows=rows,
            notes=notes,
        )
    ]


def facts_block(who: Identity, sources: Sequence[Row]) -> Block:
    """Devices, hosts, versions, ranks and process groups, a line each."""
    lines = [f"devices: {devices_text(who)}"]
    lines += [f"hosts: {', '.join(text.clean(h) for h in who.hosts)}"] if who.hosts else []
    lines += [f"layout: {who.layout}"] if who.layout else []
    lines += [f"versions: {versions_text(who)}"] if who.versions else []
    lines += [f"backends: {', '.join(text.clean(b) for b in who.backends)}"] if who.backends else []
    lines.append(ranks_text(who))
    if who.world_size is not None:
        missing = sorted(set(range(min(who.world_size, 1_000_000))) - set(who.ranks))
        lines += [f"ranks without data: {text.ranges(missing)}"] if missing else []
    lines += [worlds_text(who)] if who.other_worlds else []
    groups = groups_of(sources)
    lines += [f"group {g}" for g in groups[:SHOWN_GROUPS]]
    lines += [text.count(len(groups) - SHOWN_GROUPS, "more group")] if len(groups) > SHOWN_GROUPS else []
    return Block(title="What run this is", notes=lines)


def steps_blocks(steps: Sequence[Row], note: str) -> list[Block]:
    """The steps found: by world, timeline, source and phase, how many, and which numbers."""
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for s in steps:
        found[tuple(_shown(s[k]) for k in STEP_KEYS)].append(s)
    keys = [k for k in STEP_KEYS if k != "world" or len({key[0] for key in found}) > 1]
    columns = [Col(k, right=False) for k in keys]
    columns += [Col("ranks"), Col("steps"), Col("numbers", right=False, shrink=12)]
    rows = []
    for key, some in sorted(found.items()):
        counts = [len({s["rank"] for s in some}), len({(s["window"], s["step"]) for s in some})]
        numbers = text.ranges([s["step"] for s in some if s["step"] is not None]) or text.UNKNOWN
        rows.append([*key[len(STEP_KEYS) - len(keys) :], *map(str, counts), numbers])
    notes = [f"Used: {note}"] if note else []
    return [Block(title="Steps found", columns=columns if rows else (), rows=rows, notes=notes)]


def quality_blocks(quality: Sequence[Row]) -> list[Block]:
    """Every quality row, worst first; equal ones of several ranks on one line."""
    if not quality:
        return [Block(title="Data quality: nothing to report")]
    groups: dict[tuple[int, str, str], list[Row]] = defaultdict(list)
    for q in quality:
        groups[(WORST_FIRST.get(q["severity"], 3), q["code"], q["effect"] or "")].append(q)
    columns = [
        Col("severity", right=False),
        Col("code", right=False),
        Col("ranks", right=False, shrink=6),
        Col("count"),
    ]
    columns.append(Col("effect", right=False, shrink=24, wrap=True))
    rows, details = [], []
    for key in sorted(groups):
        some = groups[key]
        ranks = text.ranges([q["rank"] for q in some if q["rank"] is not None]) or text.UNKNOWN
        rows.append([some[0]["severity"], key[1], ranks, str(sum(q["count"] or 0 for q in some)), key[2]])
        example = next((q["example"] for q in some if q["example"]), "")
        details.append(f"e.g. {text.clean(example)}" if example else "")
    return [
        Block(
            title=f"Data quality: {text.count(len(quality), 'row')}",
            columns=columns,
            rows=rows,
            details=details,
            detail="example",
        )
    ]


def answers_block(found: Sequence[Answer]) -> Block:
    """The closing table: question, answer, why, what to collect instead."""
    columns = [Col("question", right=False, shrink=22, wrap=True), Col("answer", right=False)]
    columns += [
        Col("because", right=False, shrink=24, wrap=True),
        Col("collect instead", right=False, shrink=18, wrap=True),
    ]
    rows = [[a.question, a.answer, a.because, a.collect] for a in found]
    return Block(title="What this capture can answer", columns=columns, rows=rows)


def facts_of(run: Run) -> Facts:
    """What the answers depend on, counted in the stored tables."""
    import pyarrow.compute as pc

    windows = _windows(run)
    worlds = sorted({w["world"] for w in windows if w["world"] is not None})
    sources = [s for s in rows_of(run.table("sources")) if s["world"] in worlds]
    activities = run.store.table("activities", columns=["class", "operation", "launch_id"], worlds=worlds)
    classes = Counter(_counts(activities.column("class")))
    operations = Counter(_counts(activities.column("operation")))
    operations.update(_counted(run, "host_activities", "operation", worlds))
    by_timeline = defaultdict(set)
    for w in windows:
        by_timeline[w["timeline"]].add(w["rank"])
    metadata = [metadata_of(s) for s in sources]
    return Facts(
        n_ranks=len({w["rank"] for w in windows}),
        world_size=identity(sources, windows).world_size,
        n_device=len(by_timeline["device"]),
        n_host=len(by_timeline["host"] - by_timeline["device"]),
        n_comm=classes["comm"] + _counted(run, "host_activities", "class", worlds).get("comm", 0),
        n_comm_missing=sum(w.get("is_comm_recorded") is False for w in windows),
        n_linked=pc.count(activities.column("launch_id")).as_py(),
        n_activities=activities.num_rows,
        categories=_counted(run, "events", "cat", worlds),
        step_sources=_counted(run, "steps", "source", worlds),
        flags=frozenset(f for m in metadata for f in FLAGS if m.get(f) not in (None, 0, False)),
        unsplit_ns=sum(w["unsplit_comm_ns"] or 0 for w in windows),
        n_p2p=sum(n for name, n in operations.items() if name and ("send" in name or "recv" in name)),
    )


def _counted(run: Run, table: str, column: str, worlds: Sequence[str]) -> dict[str, int]:
    return _counts(run.store.table(table, columns=[column], worlds=worlds).column(column))


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {
        str(row["values"]): row["counts"]
        for row in column.value_counts().to_pylist()
        if row["values"] is not None
    }


def _shown(value: Any) -> str:
    return text.UNKNOWN if value is None else str(value)
