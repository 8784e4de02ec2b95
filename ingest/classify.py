"""Class of device activity: compute, comm or memcpy, and the rule that said so.

Metadata decides first, then one ordered table of name rules (`rules.toml` and user files before it).
Each distinct combination of category, name and evidence is decided once.
Source of the order: the public contract, section 3.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from rankscope.store.errors import UsageError
from rankscope.store.schema import Class, CopyKind

from .columns import I32, I64, Flags, Text
from .operations import canonical_operation

EVIDENCE = (
    None,
    "metadata:collective_name",
    "metadata:inside record_param_comms",
    "metadata:inside nccl annotation",
    "metadata:inside symmetric-memory operator",
    "metadata:launched by c10d operator",
)
"""What metadata may say about an activity; the position in this tuple is its code."""

KERNEL, MEMCPY, MEMSET = 0, 1, 2
"""Codes of the device categories, in the order of `store.schema.DEVICE_CATEGORIES`."""

LOOKS_LIKE_COMM = re.compile(
    r"nccl|rccl|hccl|msccl|shmem|all.?reduce|all.?gather|all.?to.?all|all2all|reduce.?scatter|send.?recv"
    r"|(?<![a-z])broadcast(?!ing)|cross_device|multimem|symm_?mem|lamport",
    re.IGNORECASE,
)
"""Names that make a reader think of communication; undecided ones are reported, never reclassed."""

_COPY_KINDS = (
    (CopyKind.P2P, re.compile(r"PtoP|P2P|peer.?to.?peer", re.IGNORECASE)),
    (CopyKind.H2D, re.compile(r"Hto[DA]\b|H2D|host.?to.?device", re.IGNORECASE)),
    (CopyKind.D2H, re.compile(r"[DA]toH\b|D2H|device.?to.?host", re.IGNORECASE)),
    (CopyKind.D2D, re.compile(r"[DA]to[DA]\b|D2D|device.?to.?device", re.IGNORECASE)),
    (CopyKind.H2H, re.compile(r"HtoH\b|H2H|host.?to.?host", re.IGNORECASE)),
)

_LONGEST_NAME = 8_192
"""Names are matched up to this length: a trace is untrusted, and a pattern's time grows with the name."""

_FIELDS = {"id", "pattern", "class", "role", "operation", "copy_kind", "description", "source"}


@dataclass(frozen=True)
class Rule:
    """One name rule: the first whose pattern is found in a name decides."""

    id: str
    pattern: re.Pattern[str]
    klass: Class
    role: str | None = None
    operation: str | None = None
    copy_kind: CopyKind | None = None
    description: str = ""
    is_user: bool = False

    def operation_of(self, match: re.Match[str]) -> str | None:
        """The rule's operation, else what its named group caught, in canonical spelling."""
        caught = match.groupdict().get("operation")
        return self.operation or canonical_operation(caught)


@dataclass(frozen=True)
class Rules:
    """An ordered table of name rules."""

    rules: tuple[Rule, ...]

    @classmethod
    def load(cls, texts: Sequence[str] = ()) -> Rules:
        """The shipped table, with user tables in front; a user rule replaces a shipped one of its id.

        Args:
            texts: contents of user rule files, the first wins.

        Raises:
            UsageError: a text is no TOML, or a rule lacks a field or has an impossible one.
        """
        mine = [
            rule for i, text in enumerate(texts) for rule in _parse(text, f"rules file {i + 1}", is_user=True)
        ]
        shipped = resources.files(__package__).joinpath("rules.toml").read_text("utf-8")
        taken: set[str] = set()
        kept: list[Rule] = []
        for rule in (*mine, *_parse(shipped, "rules.toml", is_user=False)):
            if rule.id not in taken:
                taken.add(rule.id)
                kept.append(rule)
        return cls(tuple(kept))

    def match(self, name: str) -> tuple[Rule, re.Match[str]] | None:
        """The first rule whose pattern is found in the name, with its match."""
        head = name[:_LONGEST_NAME]
        for rule in self.rules:
            found = rule.pattern.search(head)
            if found:
                return rule, found
        return None


def _parse(text: str, where: str, *, is_user: bool) -> list[Rule]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: not TOML: {error}", hint="see docs/inputs.md for the form") from error
    entries = document.get("rule", [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise UsageError(f"{where}: rules are [[rule]] tables", hint="see docs/inputs.md for the form")
    return [_rule(entry, f"{where}, rule {i + 1}", is_user) for i, entry in enumerate(entries)]


def _rule(entry: dict[str, Any], where: str, is_user: bool) -> Rule:
    wrong = [k for k in entry if k not in _FIELDS or not isinstance(entry[k], str)]
    missing = [k for k in ("id", "pattern", "class") if k not in entry]
    if wrong or missing:
        what = f"unknown or not text: {', '.join(sorted(wrong))}" if wrong else f"lacks {', '.join(missing)}"
        raise UsageError(
            f"{where}: {what}",
            hint="a rule has id, pattern and class, and may have role, operation, copy_kind, description",
        )
    try:
        kind = entry.get("copy_kind")
        return Rule(
            id=entry["id"],
            pattern=re.compile(entry["pattern"]),
            klass=Class(entry["class"]),
            role=entry.get("role"),
            operation=entry.get("operation"),
            copy_kind=CopyKind(kind) if kind is not None else None,
            description=entry.get("description", ""),
            is_user=is_user,
        )
    except (re.error, ValueError) as error:
        raise UsageError(
            f"{where} ({entry['id']}): {error}", hint="class is compute, comm or memcpy"
        ) from error


@dataclass(frozen=True)
class Verdict:
    """What was decided about one combination of category, name and evidence."""

    klass: Class
    rule: str
    copy_kind: CopyKind | None = None
    role: str | None = None
    operation: str | None = None


@dataclass(frozen=True)
class Classes:
    """Verdicts of many activities: `verdicts[codes[i]]` is that of row i."""

    codes: I64
    verdicts: tuple[Verdict, ...]
    unclassified: tuple[tuple[str, int], ...]
    """Names that look like communication and that no rule decided, with their counts."""

    def text(self, field: str) -> Text:
        """One field of the verdicts (`klass`, `rule`, `copy_kind`, `role`, `operation`) as a column."""
        found = [getattr(v, field) for v in self.verdicts]
        values = tuple(sorted({str(v) for v in found if v is not None}))
        place = {v: i for i, v in enumerate(values)}
        recode = np.array([-1 if v is None else place[str(v)] for v in found], dtype=np.int32)
        return Text(recode[self.codes] if len(recode) else np.empty(0, np.int32), values)

    def is_class(self, klass: Class) -> Flags:
        """Rows of that class."""
        flags = np.array([v.klass is klass for v in self.verdicts], dtype=np.bool_)
        return flags[self.codes] if len(flags) else np.empty(0, np.bool_)


def classify(cats: I32, names: Text, *, kinds: Text, evidence: I32, rules: Rules) -> Classes:
    """Class, copy kind, rule, role and operation of device activities.

    Args:
        cats: KERNEL, MEMCPY or MEMSET of each activity.
        names: names.
        kinds: the `kind` argument of ROCm's copies, null elsewhere.
        evidence: what metadata says of each, a position in `EVIDENCE`.
        rules: the table of name rules.

    Returns:
        One verdict per distinct combination, and its code per row.
    """
    parts = np.stack([cats, names.codes, kinds.codes, evidence]).astype(np.int64)
    distinct, codes, counts = np.unique(parts, axis=1, return_inverse=True, return_counts=True)
    verdicts = []
    undecided: dict[str, int] = {}
    for (cat, name, kind, said), count in zip(distinct.T.tolist(), counts.tolist(), strict=True):
        words = names.values[name] if name >= 0 else ""
        verdict = decide(
            cat, words, kind=kinds.values[kind] if kind >= 0 else None, evidence=said, rules=rules
        )
        verdicts.append(verdict)
        if verdict.rule == "default:compute" and LOOKS_LIKE_COMM.search(words[:_LONGEST_NAME]):
            undecided[words] = undecided.get(words, 0) + count
    return Classes(codes.reshape(-1).astype(np.int64), tuple(verdicts), tuple(sorted(undecided.items())))


def decide(cat: int, name: str, *, kind: str | None, evidence: int, rules: Rules) -> Verdict:
    """The verdict on one activity; see `classify` for the arguments.

    A user's rule decides whatever it matches. Otherwise: memsets and copies by category (a peer copy under a
    communication call is comm); kernels that metadata calls communication are comm unless a compute or memcpy
    rule matches their name; then the name rules; then compute.
    """
    found = rules.match(name)
    if found and (found[0].is_user or cat == KERNEL):
        rule, match = found
        if rule.is_user or rule.klass is not Class.COMM or not EVIDENCE[evidence]:
            return Verdict(rule.klass, f"name:{rule.id}", rule.copy_kind, rule.role, rule.operation_of(match))
        return Verdict(Class.COMM, f"{EVIDENCE[evidence]}", None, rule.role, rule.operation_of(match))
    if cat == KERNEL:
        said = EVIDENCE[evidence]
        return Verdict(Class.COMM, said) if said else Verdict(Class.COMPUTE, "default:compute")
    if cat == MEMSET:
        return Verdict(Class.MEMCPY, "category:gpu_memset", CopyKind.MEMSET)
    copied = copy_kind(name) or copy_kind(kind or "")
    if copied is CopyKind.P2P and EVIDENCE[evidence]:
        return Verdict(Class.COMM, f"{EVIDENCE[evidence]}", copied)
    return Verdict(Class.MEMCPY, "category:gpu_memcpy", copied)


def copy_kind(text: str) -> CopyKind | None:
    """The direction that a copy's name or `kind` argument tells, None when it does not."""
    return next((kind for kind, pattern in _COPY_KINDS if pattern.search(text)), None)
