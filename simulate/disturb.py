"""What is wrong with a simulated run: the disturbances, how they are written, and where they act."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope.store.errors import UsageError

ALL = -1
"""In a place (rank or step): everywhere."""


@dataclass(frozen=True)
class Stall:
    """A pause of the host: on these ranks, in these steps (ordinals of the run), this long."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    ns: int

    def applies(self, rank: int, step: int) -> bool:
        """Whether this rank pauses in this step."""
        return (not self.ranks or rank in self.ranks) and (not self.steps or step in self.steps)


@dataclass(frozen=True)
class SlowLink:
    """Transfers of a role (or between two hosts) take `factor` times as long.

    `role` is TP, CP, EP, DP, FSDP, PP or other; `group` picks one group of it by index; `hosts` picks
    every call whose group has members on both hosts.
    """

    factor: float
    role: str | None = None
    group: int | None = None
    hosts: tuple[int, int] | None = None

    def applies(self, role: str, index: int, hosts: frozenset[int]) -> bool:
        """Whether a call of this role, group index and set of hosts is slow."""
        if self.hosts is not None:
            return set(self.hosts) <= hosts
        return role == self.role and self.group in (None, index)


@dataclass(frozen=True)
class Disturbances:
    """All disturbances of a run. Steps are numbers as the trace names them."""

    jitter: float = 0.0
    slow_ranks: tuple[tuple[int, float], ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    data_stalls: tuple[Stall, ...] = ()
    gc_pauses: tuple[Stall, ...] = ()
    checkpoints: tuple[Stall, ...] = ()
    host_bound: tuple[tuple[int, float], ...] = ()
    clock_offsets: tuple[tuple[int, int], ...] = ()
    missing_seq: bool = False
    missing_ranks: tuple[int, ...] = ()
    truncated: tuple[tuple[int, float], ...] = ()
    dropped_launches: float = 0.0

    def compute_factor(self, rank: int) -> float:
        """How many times slower this rank computes."""
        return _factor(self.slow_ranks, rank)

    def host_factor(self, rank: int) -> float:
        """How many times slower this rank's host is."""
        return _factor(self.host_bound, rank)

    def clock_offset(self, host: int) -> int:
        """By how many ns this host's clock is ahead of the true one."""
        return sum(ns for h, ns in self.clock_offsets if h == host)

    def link_factor(self, role: str, index: int, hosts: frozenset[int]) -> float:
        """How many times slower a call of this group is."""
        out = 1.0
        for link in self.slow_links:
            out *= link.factor if link.applies(role, index, hosts) else 1.0
        return out

    def check(self, world: int, hosts: int) -> None:
        """Nothing when every rank and host named exists.

        Raises:
            UsageError: a rank or host outside the run, or a factor that is not positive.
        """
        ranks = {r for r, _ in (*self.slow_ranks, *self.host_bound, *self.truncated)} | set(
            self.missing_ranks
        )
        for stall in (*self.data_stalls, *self.gc_pauses, *self.checkpoints):
            ranks |= set(stall.ranks)
        bad = sorted(r for r in ranks if r != ALL and not 0 <= r < world)
        if bad:
            raise UsageError(f"no rank {bad[0]} in a run of {world}", hint=f"Ranks are 0 to {world - 1}.")
        named = {h for h, _ in self.clock_offsets} | {h for s in self.slow_links for h in s.hosts or ()}
        bad = sorted(h for h in named if not 0 <= h < hosts)
        if bad:
            raise UsageError(f"no host {bad[0]} in a run of {hosts}", hint=f"Hosts are 0 to {hosts - 1}.")
        if len(set(self.missing_ranks)) >= world:
            raise UsageError("every rank is missing", hint="Leave at least one rank's file.")


def _factor(pairs: tuple[tuple[int, float], ...], rank: int) -> float:
    out = 1.0
    for place, factor in pairs:
        out *= factor if place in (ALL, rank) else 1.0
    return out


def numbers(text: str, *, what: str) -> tuple[int, ...]:
    """Whole numbers from text such as `3`, `1,4` or `2-5`; `all` gives none (everywhere).

    Raises:
        UsageError: the text is no such list.
    """
    out: list[int] = []
    if text.strip() in ("all", "*", ""):
        return ()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise UsageError(f"{what}: {part!r} is no number or range", hint="Write for example 3 or 0-2,5.")
        first = int(match[1])
        out += range(first, int(match[2] or first) + 1)
    return tuple(out)


_UNITS = {"": 1_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1, "s": 1_000_000_000}


def duration(text: str, *, what: str, default: str = "ms") -> int:
    """Nanoseconds from text such as `20ms`, `-350us` or `5` (the default unit).

    Raises:
        UsageError: the text is no duration.
    """
    match = re.fullmatch(r"\s*([+-]?\d+(?:\.\d+)?)\s*(ns|us|ms|s|)\s*", text)
    if match is None:
        raise UsageError(f"{what}: {text!r} is no duration", hint="Write for example 20ms or 350us.")
    return round(float(match[1]) * _UNITS[match[2] or default])


def positive(text: str, *, what: str) -> float:
    """A positive number.

    Raises:
        UsageError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise UsageError(f"{what}: {text!r} is no positive number", hint="Write for example 1.5.")
    return value


def split_pair(text: str, mark: str, *, what: str, form: str) -> tuple[str, str]:
    """The two sides of a mark.

    Raises:
        UsageError: the mark is not there.
    """
    left, found, right = text.rpartition(mark)
    if not found or not left.strip() or not right.strip():
        raise UsageError(f"{what}: {text!r} is not understood", hint=f"Write {form}.")
    return left.strip(), right.strip()


def stall(text: str, *, what: str) -> Stall:
    """A pause from `RANKS@STEPS:TIME`, such as `1@4-5:30ms`; `all` for every rank or step.

    Raises:
        UsageError: the text has another form.
    """
    form = "RANKS@STEPS:TIME, for example 1@4:30ms"
    place, time = split_pair(text, ":", what=what, form=form)
    ranks, steps = split_pair(place, "@", what=what, form=form)
    ns = duration(time, what=what)
    if ns < 0:
        raise UsageError(f"{what}: a pause cannot be negative", hint=f"Write {form}.")
    return Stall(numbers(ranks, what=what), numbers(steps, what=what), ns)


ROLES = ("TP", "CP", "EP", "DP", "FSDP", "PP", "other")


def slow_link(text: str) -> SlowLink:
    """A slow link from `ROLE:FACTOR`, `ROLE#GROUP:FACTOR` or `HOST-HOST:FACTOR`.

    Raises:
        UsageError: the text has another form.
    """
    form = "ROLE:FACTOR, ROLE#GROUP:FACTOR or HOST-HOST:FACTOR, for example dp:3, tp#1:2 or 0-1:4"
    place, factor = split_pair(text, ":", what="slow_link", form=form)
    value = positive(factor, what="slow_link")
    if match := re.fullmatch(r"(\d+)-(\d+)", place):
        return SlowLink(value, hosts=(int(match[1]), int(match[2])))
    role, _, group = place.partition("#")
    name = next((r for r in ROLES if r.lower() == role.lower()), None)
    if name is None or (group and not group.isdigit()):
        raise UsageError(f"slow_link: {text!r} is not understood", hint=f"Write {form}.")
    return SlowLink(value, role=name, group=int(group) if group else None)
