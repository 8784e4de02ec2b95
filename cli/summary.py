"""`rankscope summary`: the one screen to paste into a chat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import text
from .identity import Identity, devices_text, identity, ranks_text, versions_text, worlds_text
from .options import Cut, Format, Output, Source
from .parts import digits_for, shown_ms
from .render import chosen_format, emit, emit_text, is_unicode_terminal, rows_of
from .stepview import ROOMY, blocks_of, grouped

if TYPE_CHECKING:
    from rankscope.run import Run

QUESTION = "Where does a step go, what costs most, and what to look at next?"
WIDTH = 80
LINES = 30
FINDINGS = 4
FINDINGS_TIGHT = 2
PER_WINDOW = ("world", "rank", "device", "window", "step", "phase")


def summary(source: Source, cut: Cut, output: Output) -> None:
    """The one screen to paste into a chat.

    One screen: what run this is, the parts of the mean step with the worst rank beside each, what costs most,
    how good the data is, and the next command to type. json, csv and parquet give the findings as rows.
    """
    from .session import opened, run_text, run_title

    with opened(source, cut, output) as run:
        if chosen_format(output) in (Format.TABLE, Format.MARKDOWN):
            emit_text(screen(run, run_title(source), again=run_text(source)), output)
        else:
            emit(run.summary_table(), list, output)


def screen(run: Run, title: str, *, again: str) -> str:
    """The summary as text: at most 30 lines of 80 columns.

    Args:
        run: the run.
        title: its name in the heading.
        again: its name in the next command to type.
    """
    windows = list(rows_of(run.breakdown_table(by=list(PER_WINDOW))))
    findings = list(rows_of(run.summary_table()))
    quality = list(rows_of(run.table("quality")))
    who = identity(list(rows_of(run.table("sources"))), windows)
    head = head_lines(who, title, run.steps_note())
    top = FINDINGS if len(grouped(windows)) <= ROOMY else FINDINGS_TIGHT
    tail = [*finding_lines(findings[:top]), *quality_lines(quality), *next_lines(findings, again)]
    body = blocks_of(windows, room=LINES - len(head) - len(tail) - 1, bars=is_unicode_terminal())
    return "\n".join([*head, *body, "", *tail]) + "\n"


def head_lines(who: Identity, name: str, steps_note: str) -> list[str]:
    """What run this is: name, devices, layout and versions, ranks and steps used."""
    where = f" on {text.count(len(who.hosts), 'host')}" if who.hosts else ""
    facts = [devices_text(who) + where, who.layout, versions_text(who)]
    if not who.gpus and who.backends:
        facts.append("/".join(text.clean(b) for b in who.backends))
    used = [ranks_text(who), text.count(who.windows, "window"), steps_note, worlds_text(who)]
    lines = [text.shorten(text.clean(f"rankscope: {name}"), WIDTH)]
    for parts in (facts, used):
        lines += [f"  {line}" for line in text.wrap("; ".join(p for p in parts if p), WIDTH - 2)[:2]]
    return [*lines, ""]


def finding_lines(findings: Sequence[dict[str, Any]]) -> list[str]:
    """The costliest findings, a line each: cost, share of the step, what it is."""
    if not findings:
        return ["What costs most: nothing stands out."]
    lines = ["What costs most"]
    for finding in findings:
        step_ns = finding["cost_ns"] / finding["cost_ratio"] if finding["cost_ratio"] else finding["cost_ns"]
        (cost,) = shown_ms([finding["cost_ns"]], digits=digits_for(step_ns))
        share = text.ratio(finding["cost_ratio"])
        ceiling = (
            f" (saves at most {text.ms(finding['ceiling_ns'])} ms)"
            if finding["ceiling_ns"] is not None
            else ""
        )
        status = "" if finding["status"] == "measured" else f" [{finding['status']}]"
        numbers = f"{cost:>9} ms {share:>6}  "
        room = WIDTH - len(numbers) - len(status)
        title = text.clean(finding["title"]) + ceiling
        evidence = f"; {text.clean(finding['evidence'] or '')}"
        title += evidence if finding["evidence"] and len(title + evidence) <= room else ""
        lines.append(numbers + text.shorten(title, room) + status)
    return lines


def quality_lines(quality: Sequence[dict[str, Any]]) -> list[str]:
    """How good the data is: counts by severity, and the codes that may move a number."""
    bad = Counter(q["code"] for q in quality if q["severity"] != "info")
    counts = Counter(q["severity"] for q in quality)
    notes = f", {text.count(counts['info'], 'note')}" if counts["info"] else ""
    if not bad:
        return [f"Data quality: no warnings{notes}" if notes else "Data quality: nothing to report"]
    codes = ", ".join(
        f"{c} x{n}" if n > 1 else c for c, n in sorted(bad.items(), key=lambda i: (-i[1], i[0]))
    )
    worst = ", ".join(text.count(counts[s], s) for s in ("error", "warning") if counts[s])
    return text.wrap(f"Data quality: {worst} ({codes}){notes}", WIDTH, indent="  ")[:2]


def next_lines(findings: Sequence[dict[str, Any]], name: str) -> list[str]:
    """The command to type next: the costliest finding's, else the breakdown; a long name continues below it."""
    wanted = next((f["next_command"] for f in findings if f.get("next_command")), "rankscope breakdown RUN")
    line = f"Next: {text.clean(wanted.replace('RUN', name))}"
    if text.width(line) <= WIDTH:
        return [line]
    command = text.shorten(wanted.removesuffix(" RUN"), WIDTH - len("Next:  \\"))
    return [f"Next: {command} \\", f"  {text.shorten(text.clean(name), WIDTH - 2)}"]
