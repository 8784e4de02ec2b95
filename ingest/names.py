"""What the name of a trace file tells: rank, host, process, parallel coordinates, capture, place in the tree.

Every pattern belongs to a producer that writes it (named beside it). A number is a rank only where the name
says so: process ids, time stamps, sizes (`tp8`) and counters never become ranks here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENDINGS = re.compile(
    r"(?:\.(?:json|jsonl|gz|gzip|zst|zstd|zip|trace|pt|traces|kineto|log|bz2|txt|pickle|pkl))+$",
    re.IGNORECASE,
)
_RANK = re.compile(
    r"(?:(?<![a-z])|(?<=global))(?P<of>(?:local|node|group|tp|pp|dp|cp|ep|etp|fsdp|replica|role)[_-]?)?"
    r"rank[_\-.=\[(]?(?P<rank>\d{1,6})(?!\d)",
    re.IGNORECASE,
)
"""`rank0`, `rank_0`, `rank-3`, `rank[3]`, `GlobalRank3`; not `local_rank_0` or `tp_rank_1`, which count something else."""
_WORKER = re.compile(r"(?<![a-z])worker[_-]?(\d{1,5})(?!\d)", re.IGNORECASE)
"""tensorboard_trace_handler with `worker_name="worker0"`, as PyTorch's own examples do."""
_SHORT_RANK = re.compile(r"^r(\d{1,5})(?=[_\-.]|$)")
"""torchtune: `r0-2024-...`."""
_DUMP = re.compile(r"^(?:nccl|comm_lib)_trace_rank_(?P<host>[A-Za-z][\w.\-]*)_(?P<rank>\d{1,6})$")
"""Flight recorder dumps whose prefix was given a host name."""
_HANDLER = re.compile(r"^(?P<host>.+?)_(?P<pid>\d{1,10})(?:\.(?P<label>[A-Za-z_]\w*))?\.(?P<stamp>\d{4,20})$")
"""tensorboard_trace_handler: `{host}_{pid}.{time}`; vLLM puts `.async_llm` between."""
_STAMP = re.compile(r"\.\d{9,20}$")
_SGLANG = re.compile(r"(?:^|-)(TP|DP|PP|EP|CP)-(\d{1,5})(?=[-.]|$)")
"""SGLang: `{id}-TP-0-DP-0-PP-0-EP-0`, in later versions with `-EXTEND` or `-DECODE` behind."""
_VLLM = re.compile(r"(?:^|_)(dp|pp|tp|cp|ep)(\d{1,5})(?=_)")
"""vLLM: `dp0_pp0_tp0_dcp0_ep0_rank0`."""
_VLLM_NAME = re.compile(r"^dp\d{1,5}_pp\d{1,5}_tp\d{1,5}_(?:[a-z]{2,4}\d{1,5}_)+rank\d{1,6}$")
_NAMED_INDEX = re.compile(r"(?<![a-z])(tp|pp|dp|cp|ep)[_-]?rank[_-]?(\d{1,5})(?!\d)", re.IGNORECASE)
_HOSTLIKE = re.compile(
    r"^(?:node|host|server|machine|nid|cn|pod|vm|compute|ip)[-_]?(?:[\w.\-]*\d[\w.\-]*|[A-Z])$", re.IGNORECASE
)
_FRONTEND = re.compile(
    r"async_?llm|api_?server|front_?end|engine_?core|tokenizer_?manager|(?<![a-z])scheduler(?![a-z])",
    re.IGNORECASE,
)

_WINDOW_FOLDER = re.compile(
    r"^(?:global_?)?(?:iteration|iter|step|window|cycle|epoch)s?[_-]?(\d{1,12})$", re.IGNORECASE
)
"""torchtitan and torchtune: `iteration_10/`."""
_CAPTURE = re.compile(
    r"(?<![a-z])(?:iteration|iter|step|window|cycle|epoch)s?[_-]?(\d{1,12})(?!\d)", re.IGNORECASE
)
"""A loop that exports by step: `trace_step_100.json`."""
_RANK_FOLDER = re.compile(r"^rank[_-]?(\d{1,6})$", re.IGNORECASE)
_REPLICA_FOLDER = re.compile(r"^(?:replica|engine|instance)[_-]?(?:id|rank|group)?[_-]?\w*$", re.IGNORECASE)
"""torchtitan with fault tolerance: `replica_0/`; inference engines side by side."""


@dataclass(frozen=True)
class NameFacts:
    """What a name tells; None or empty where it is silent.

    Attributes:
        rank: rank named by the file, else by its folder.
        host: host name, where the pattern is certain.
        prefix: text in front of the rank; a host if it varies like one over the set of files.
        process: (host, pid) of tensorboard_trace_handler: the same process writes one file per capture.
        indices: parallel coordinates, such as (("tp", 1), ("pp", 0)).
        place: folders, without those that name a capture or a rank.
        window: numbers of the folders that name a capture.
        replica: folders that name a replica or an engine.
        stem: file name without endings and time stamp.
        is_frontend: the name says front end or scheduler.
        capture: number of the step or iteration in the file's name.
    """

    rank: int | None
    host: str | None
    prefix: str | None
    process: tuple[str, int] | None
    indices: tuple[tuple[str, int], ...]
    place: tuple[str, ...]
    window: tuple[int, ...]
    replica: tuple[str, ...]
    stem: str
    is_frontend: bool
    capture: int | None = None

    @property
    def series(self) -> str:
        """The stem without the number that counts captures."""
        return _CAPTURE.sub("#", self.stem)


def read_name(rel: str, member: str | None = None, *, parent: str = "") -> NameFacts:
    """What the relative path of a trace tells.

    Args:
        rel: relative to the run, forward slashes.
        member: file inside a zip; the zip then counts as a folder.
        parent: name of the folder above the run, which may name the rank of a single file.
    """
    parts = rel.split("/")
    if member is not None:
        parts = [
            *parts[:-1],
            _ENDINGS.sub("", parts[-1]),
            *(p for p in member.split("/") if p not in ("", ".", "..")),
        ]
    *folders, file = parts
    full = _ENDINGS.sub("", file)
    handler = _HANDLER.match(full)
    stem = _STAMP.sub("", full)
    rank, prefix, dump_host = _rank_of(stem)
    if rank is not None:
        handler = None
    process = (handler["host"], int(handler["pid"])) if handler is not None else None
    if rank is None:
        rank = _folder_rank([parent, *folders])
    return NameFacts(
        rank=rank,
        host=dump_host or (process[0] if process else None) or _hostlike(prefix),
        prefix=prefix,
        process=process,
        indices=_indices(stem),
        place=tuple(f for f in folders if not _WINDOW_FOLDER.match(f) and not _RANK_FOLDER.match(f)),
        window=tuple(int(m.group(1)) for f in folders if (m := _WINDOW_FOLDER.match(f))),
        replica=tuple(f for f in folders if _REPLICA_FOLDER.match(f)),
        stem=stem if process is None else f"{process[0]}_{process[1]}",
        is_frontend=is_frontend_text(full),
        capture=int(counted.group(1)) if (counted := _CAPTURE.search(stem)) else None,
    )


def _rank_of(stem: str) -> tuple[int | None, str | None, str | None]:
    """(rank, text in front of it, host) as the file name says."""
    dump = _DUMP.match(stem)
    if dump:
        return int(dump["rank"]), None, dump["host"]
    own = [m for m in _RANK.finditer(stem) if not m["of"]]
    if own:
        return int(own[-1]["rank"]), stem[: own[-1].start()].strip("_-.") or None, None
    workers = _WORKER.findall(stem)
    if workers:
        return int(workers[-1]), None, None
    short = _SHORT_RANK.match(stem)
    return (int(short.group(1)), None, None) if short else (None, None, None)


def _folder_rank(folders: list[str]) -> int | None:
    """Rank of the innermost folder that names one (`rank_0/trace.json`)."""
    for folder in reversed(folders):
        match = _RANK_FOLDER.match(folder)
        if match:
            return int(match.group(1))
    return None


def _hostlike(prefix: str | None) -> str | None:
    return prefix if prefix is not None and _HOSTLIKE.match(prefix) else None


def _indices(stem: str) -> tuple[tuple[str, int], ...]:
    found = _SGLANG.findall(stem) or _NAMED_INDEX.findall(stem)
    if not found and _VLLM_NAME.match(stem):
        found = _VLLM.findall(stem)
    return tuple({dim.lower(): int(number) for dim, number in found}.items())


def is_frontend_text(text: str) -> bool:
    """Whether a file's or process's name is one a serving front end or scheduler gives itself."""
    return bool(_FRONTEND.search(text))


_DIGITS = re.compile(r"\d+")


def numbered(stems: list[str]) -> list[int] | None:
    """Numbers of names that differ in exactly one number, when those are 0, 1, ... n-1; else None.

    `trace.0`, `trace.1`, `trace.2` are ranks; `trace_04`, `trace_05` or names of different build are not.

    Args:
        stems: at least two file names without endings.
    """
    found = distinct_numbers(stems)
    return found if found is not None and sorted(found) == list(range(len(stems))) else None


def distinct_numbers(stems: list[str]) -> list[int] | None:
    """The numbers of names that differ in exactly one number, a different one each; else None.

    Args:
        stems: file names without endings.
    """
    shapes = {_DIGITS.sub("#", stem) for stem in stems}
    if len(stems) < 2 or len(shapes) != 1:
        return None
    columns = list(zip(*([int(d) for d in _DIGITS.findall(stem)] for stem in stems), strict=True))
    varying = [column for column in columns if len(set(column)) > 1]
    if len(varying) != 1 or len(set(varying[0])) != len(stems):
        return None
    return list(varying[0])
