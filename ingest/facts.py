"""What the user knows about a run: `run.toml` beside the traces, and `--set key=value`.

Stated facts are never silently preferred to what the files say: where they disagree, `contradictions`
gives quality rows, and nothing is derived from them (see `ranks.coordinates`).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from typing import Any

from rankscope.store.errors import UnreadableFile, UsageError
from rankscope.store.schema import Quality, Severity

FACTS_FILE = "run.toml"
MAX_FACTS_BYTES = 1 << 20
"""A facts file is a page of text; anything larger is some other file."""

DEFAULT_ORDER = ("tp", "cp", "ep", "fsdp", "dp", "pp")
"""Megatron's default `tp-cp-ep-dp-pp`, fastest first; shards of a hybrid data group are its inner part."""

SECTIONS: dict[str, tuple[str, ...]] = {
    "parallel": ("tp", "cp", "ep", "etp", "dp", "fsdp", "pp", "order", "world_size", "gpus_per_host"),
    "pipeline": ("schedule", "microbatches", "virtual_stages"),
    "model": (
        "hidden",
        "layers",
        "heads",
        "kv_heads",
        "seq",
        "vocab",
        "ffn",
        "experts",
        "topk",
        "dtype",
    ),
    "run": ("step_time_ms", "hosts"),
}
"""Keys may stand alone (`tp = 8`) or under their section (`[parallel]`)."""

_TEXT = frozenset({"order", "schedule", "dtype"})


@dataclass(frozen=True)
class RunFacts:
    """Facts the user stated; None where nothing was said.

    Attributes:
        tp, cp, ep, etp, dp, fsdp, pp: sizes of the parallel dimensions (`dp` replicas of `fsdp` shards each;
            `ep` and `etp` lie inside them and do not multiply into the world size).
        order: dimensions from the fastest to the slowest, as `tp-cp-ep-dp-pp`.
        world_size: number of ranks.
        gpus_per_host: ranks per host.
        schedule: pipeline schedule by name. microbatches: per step. virtual_stages: chunks per rank.
        hidden, layers, heads, kv_heads, seq, vocab, ffn, experts, topk, dtype: model dimensions.
        step_time_ms: step time without the profiler.
        hosts: host names in rank order of hosts, when given as a list.
        host_of: (rank, host) pairs, when given as a table.
    """

    tp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    dp: int | None = None
    fsdp: int | None = None
    pp: int | None = None
    order: str | None = None
    world_size: int | None = None
    gpus_per_host: int | None = None
    schedule: str | None = None
    microbatches: int | None = None
    virtual_stages: int | None = None
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    seq: int | None = None
    vocab: int | None = None
    ffn: int | None = None
    experts: int | None = None
    topk: int | None = None
    dtype: str | None = None
    step_time_ms: float | None = None
    hosts: tuple[str, ...] = ()
    host_of: tuple[tuple[int, str], ...] = ()

    def stated(self) -> dict[str, Any]:
        """Only what was said, JSON-able, in the order of the fields."""
        return {key: value for key, value in asdict(self).items() if value is not None and value != ()}

    def dims(self) -> tuple[str, ...]:
        """Dimensions from the fastest to the slowest; those not named in `order` follow in default order."""
        named = tuple(self.order.split("-")) if self.order else ()
        return named + tuple(d for d in DEFAULT_ORDER if d not in named)

    def size(self, dim: str) -> int | None:
        """Stated size of a dimension."""
        value = getattr(self, dim)
        return value if isinstance(value, int) else None


NO_FACTS = RunFacts()


def load_facts(
    path: str | None = None, sets: Iterable[str] = (), *, storage_options: dict[str, Any] | None = None
) -> RunFacts:
    """Facts from a `run.toml` and from `key=value` settings, which win.

    Args:
        path: the facts file (path or URL), or None.
        sets: `key=value` texts; keys may be dotted (`model.hidden=4096`), values are TOML or bare words.
        storage_options: for fsspec.

    Raises:
        UsageError: the file is no TOML, a key is unknown (the nearest known one is named), a value has the
            wrong type, or a text has no `=`.
        UnreadableFile: the file cannot be read.
    """
    facts = NO_FACTS
    if path is not None:
        facts = _merged(facts, _flat(_read(path, storage_options), path), where=path)
    for text in sets:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"--set {text}: expected key=value", hint="For example --set tp=8")
        facts = _merged(facts, [(key.strip(), _value(value.strip()))], where=f"--set {text}")
    return facts


def _read(path: str, storage_options: dict[str, Any] | None) -> dict[str, Any]:
    import fsspec

    try:
        with fsspec.open(path, "rb", **(storage_options or {})) as file:
            data = file.read(MAX_FACTS_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(f"cannot be read ({error.strerror or error})", path=path) from error
    if len(data) > MAX_FACTS_BYTES:
        raise UsageError("larger than a facts file can be", path=path, hint="Is it a run.toml at all?")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"not valid TOML: {error}", path=path, hint="See the guide's page on run.toml."
        ) from error


def _value(text: str) -> Any:
    """A TOML value; a bare word is text."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        return text


def _flat(table: Mapping[str, Any], where: str) -> list[tuple[str, Any]]:
    """(dotted key, value) pairs of a two-level table."""
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict) and key != "hosts":
            if key not in SECTIONS:
                raise _unknown(key, where, [*SECTIONS, "hosts"])
            pairs.extend((f"{key}.{inner}", v) for inner, v in value.items())
        else:
            pairs.append((key, value))
    return pairs


def _merged(facts: RunFacts, pairs: Iterable[tuple[str, Any]], *, where: str) -> RunFacts:
    for dotted, value in pairs:
        key, rest = _field(dotted, where)
        if key == "hosts":
            facts = _with_hosts(facts, value, rank=rest, where=where)
        else:
            facts = replace(facts, **{key: _typed(key, value, where)})
    return facts


def _field(dotted: str, where: str) -> tuple[str, str | None]:
    """The field a key means, and for `hosts.3` the rank."""
    parts = [part.strip().replace("-", "_") for part in dotted.split(".")]
    if len(parts) > 1 and parts[0] in SECTIONS:
        section = parts.pop(0)
        if parts[0] not in SECTIONS[section]:
            raise _unknown(dotted, where, [f"{section}.{key}" for key in SECTIONS[section]])
    if parts[0] == "hosts" and len(parts) <= 2:
        return "hosts", parts[1] if len(parts) == 2 else None
    known = [key for keys in SECTIONS.values() for key in keys]
    if len(parts) != 1 or parts[0] not in known:
        raise _unknown(dotted, where, known)
    return parts[0], None


def _unknown(key: str, where: str, known: list[str]) -> UsageError:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    return UsageError(f"unknown fact '{key}'", path=where, hint=f"Did you mean '{near[0]}'?")


def _typed(key: str, value: Any, where: str) -> Any:
    if key == "step_time_ms":
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise UsageError(f"{key} must be a positive number, not {value!r}", path=where)
        return float(value)
    if key in _TEXT:
        if not isinstance(value, str) or not value:
            raise UsageError(f"{key} must be text, not {value!r}", path=where)
        return _order(value, where) if key == "order" else value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise UsageError(f"{key} must be a whole number of at least 1, not {value!r}", path=where)
    return value


def _order(text: str, where: str) -> str:
    dims = text.replace(",", "-").replace(" ", "").split("-")
    for dim in dims:
        if dim not in DEFAULT_ORDER:
            raise UsageError(
                f"order names an unknown dimension '{dim}'",
                path=where,
                hint=f"Known: {', '.join(DEFAULT_ORDER)}.",
            )
    if len(set(dims)) != len(dims):
        raise UsageError(f"order names a dimension twice: {text}", path=where)
    return "-".join(dims)


def _with_hosts(facts: RunFacts, value: Any, *, rank: str | None, where: str) -> RunFacts:
    if rank is not None:
        value = {rank: value}
    if isinstance(value, list) and value and all(isinstance(h, str) and h for h in value):
        return replace(facts, hosts=tuple(value), host_of=())
    if isinstance(value, dict) and all(_is_rank(k) and isinstance(h, str) and h for k, h in value.items()):
        pairs = dict(facts.host_of) | {int(k): h for k, h in value.items()}
        return replace(facts, host_of=tuple(sorted(pairs.items())))
    raise UsageError(
        "hosts must be a list of names or a table rank = name",
        path=where,
        hint='For example hosts = ["node0", "node1"].',
    )


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def world_product(facts: RunFacts) -> int | None:
    """Product of the stated sizes of tp, cp, dp, fsdp and pp; None when none is stated (ep lies inside)."""
    sizes = [s for s in (facts.tp, facts.cp, facts.dp, facts.fsdp, facts.pp) if s is not None]
    return prod(sizes) if sizes else None


def contradictions(facts: RunFacts, world_size: int | None, hosts: Mapping[int, str]) -> list[Quality]:
    """Where stated facts and the traces disagree.

    The product of the stated dimensions must divide the world size, and equal it when a data dimension is
    among them; ep*etp*pp must divide it; stated host names must be those in the traces.

    Args:
        facts: what was stated.
        world_size: of the default world, as the traces say; None when unknown.
        hosts: host by rank, as the traces say.

    Returns:
        Quality rows of code `fact_contradicted`.
    """
    found: list[tuple[str, str]] = []
    if world_size is not None:
        found += _size_contradictions(facts, world_size)
    for rank, stated in facts.host_of:
        if rank in hosts and hosts[rank] != stated:
            found.append(
                (
                    f"host of rank {rank} stated {stated}, the trace says {hosts[rank]}",
                    "the stated name is used",
                )
            )
    unknown = sorted(set(hosts.values()) - set(facts.hosts)) if facts.hosts else []
    if unknown:
        found.append(
            (f"hosts stated {', '.join(facts.hosts)}, a trace says {unknown[0]}", "the stated names are used")
        )
    return [
        Quality("fact_contradicted", Severity.WARNING, None, 1, example, effect, FACTS_FILE)
        for example, effect in found
    ]


def _size_contradictions(facts: RunFacts, world_size: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if facts.world_size is not None and facts.world_size != world_size:
        found.append(
            (f"world_size stated {facts.world_size}, the traces say {world_size}", "the traces' is used")
        )
    product = world_product(facts)
    sized = [
        f"{f.name}={getattr(facts, f.name)}"
        for f in fields(facts)
        if f.name in ("tp", "cp", "dp", "fsdp", "pp")
    ]
    text = " ".join(t for t in sized if not t.endswith("None"))
    is_whole = facts.dp is not None
    if product is not None and (
        product > world_size or world_size % product or (is_whole and product != world_size)
    ):
        found.append(
            (f"{text} gives {product} ranks, the traces say {world_size}", "no coordinates are derived")
        )
    if facts.ep is not None:
        expert = facts.ep * (facts.etp or facts.tp or 1) * (facts.pp or 1)
        if expert > world_size or world_size % expert:
            found.append(
                (f"ep*etp*pp = {expert} does not divide {world_size} ranks", "no coordinates are derived")
            )
    return found
