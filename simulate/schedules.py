"""Pipeline schedules: in which order a rank runs the forwards and backwards of its chunks."""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """Forward (`F`) or backward (`B`) of one microbatch through one chunk of this rank."""

    kind: str
    chunk: int
    microbatch: int


def gpipe(m: int) -> list[Action]:
    """All forwards, then all backwards, in order of microbatch."""
    return [Action("F", 0, i) for i in range(m)] + [Action("B", 0, i) for i in range(m)]


def one_f_one_b(p: int, s: int, m: int) -> list[Action]:
    """1F1B on stage s of p: p-1-s forwards first, then one forward and one backward in turn."""
    warmup = min(m, p - 1 - s)
    out = [Action("F", 0, i) for i in range(warmup)]
    for i in range(m - warmup):
        out += [Action("F", 0, warmup + i), Action("B", 0, i)]
    return out + [Action("B", 0, i) for i in range(m - warmup, m)]


def interleaved(p: int, s: int, m: int, v: int) -> list[Action]:
    """Interleaved 1F1B with v chunks on rank s of p: warm-up of 2(p-1-s) + (v-1)p forwards.

    Microbatches go in rounds of p through one chunk after another; backwards take the chunks in reverse.
    """
    total = m * v
    order = [(k % (p * v) // p, k // (p * v) * p + k % p) for k in range(total)]
    forward = [Action("F", c, i) for c, i in order]
    backward = [Action("B", v - 1 - c, i) for c, i in order]
    warmup = min(total, 2 * (p - 1 - s) + (v - 1) * p)
    out = forward[:warmup]
    for k in range(total - warmup):
        out += [forward[warmup + k], backward[k]]
    return out + backward[total - warmup :]


def actions(schedule: str, *, p: int, s: int, m: int, v: int) -> list[Action]:
    """The actions of pipeline rank s, in the order it issues them."""
    if schedule == "gpipe":
        return gpipe(m)
    if schedule == "interleaved":
        return interleaved(p, s, m, v)
    return one_f_one_b(p, s, m)


def ideal_bubble_to_ideal(schedule: str, *, p: int, m: int, v: int) -> float:
    """Bubble over ideal time when stages are equal and messages free: (p-1)/m, or (p-1)/(v m)."""
    return (p - 1) / (m * (v if schedule == "interleaved" else 1))
