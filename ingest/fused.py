"""Files that hold several ranks: traces fused into one, told by their process labels."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping

from rankscope.store.schema import Quality, Severity

RANK_LABEL = re.compile(r"(?:\W*|[^()\[\]]{0,200}[(\[]\s*)rank[\s_#:=-]*(\d{1,7})(?!\d)", re.IGNORECASE)
"""A process's name, label or id that names its rank: `Rank 0: python`, `[rank 0]`, `python (rank=0)`."""


def ranks_of_pids(
    labels: Mapping[str, Collection[str]], pids: Collection[str]
) -> tuple[tuple[int, ...], dict[str, int], list[Quality]]:
    """Which rank each process of a file belongs to, when the file fuses several.

    A file is fused when labels or process ids that begin with `rank N`, or have it in brackets, give at least two
    ranks to processes that have events of their own. (`python 0` names no rank, and one `Rank 0 training loop` is one rank's own file.) A process
    without such a label belongs to the labelled process with the nearest smaller number, because fusing tools
    shift all process ids of a rank by one offset; where there is none, or its id is no number, to the first.

    Args:
        labels: process id -> its names and labels.
        pids: process ids that have events other than metadata.

    Returns:
        The ranks, sorted, the rank of every process, and a quality row for the attributed ones; empty for a
        file of one rank.
    """
    rank_of: dict[str, int] = {}
    for pid in {*labels, *pids}:
        found = [m for m in map(RANK_LABEL.match, [*sorted(labels.get(pid, ())), pid]) if m]
        if found:
            rank_of[pid] = int(found[0][1])
    named = {pid: rank for pid, rank in rank_of.items() if pid in set(pids)}
    if len(set(named.values())) < 2:
        return (), {}, []
    anchors = sorted((int(pid), rank) for pid, rank in rank_of.items() if _is_number(pid))
    fallback = min(rank_of.values())
    assumed = []
    for pid in sorted({*pids, *labels}):
        if pid not in rank_of:
            rank_of[pid] = _nearest(pid, anchors, fallback)
            assumed.append(f"process {pid} -> rank {rank_of[pid]}")
    quality = []
    if assumed:
        effect = "events of processes without a rank label follow the labelled process numbered below them"
        quality.append(Quality("rank_assumed", Severity.INFO, None, len(assumed), assumed[0], effect))
    return tuple(sorted(set(rank_of.values()))), rank_of, quality


def _nearest(pid: str, anchors: list[tuple[int, int]], fallback: int) -> int:
    if not anchors or not _is_number(pid):
        return fallback
    at = bisect_right([number for number, _ in anchors], int(pid)) - 1
    return anchors[max(at, 0)][1]


def _is_number(pid: str) -> bool:
    return len(pid) <= 20 and pid.removeprefix("-").isdecimal()
