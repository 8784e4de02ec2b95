"""The vocabulary of a rank's host program. Instructions are immutable and shared between ranks."""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE = 7
"""Number of the compute stream (PyTorch's default stream is 7 in Kineto's records)."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The host enters a recorded range on the present thread.

    Attributes:
        rule: what the range means to the idle rules (`data`, `checkpoint`, `gc`, `sync`), else None.
        pair: key that ties a forward operator to its backward one (fwdbwd flow and sequence number).
        is_backward: the range is the backward half of that pair.
        on_gpu: the profiler repeats the range on the device (gpu_user_annotation).
    """

    name: str
    cat: str = "user_annotation"
    args: str = ""
    rule: str | None = None
    pair: str | None = None
    is_backward: bool = False
    on_gpu: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The host leaves the innermost open range."""


@dataclass(frozen=True, slots=True)
class Thread:
    """The host goes on with another thread (`main` or `autograd`); the first one blocks meanwhile."""

    name: str


@dataclass(frozen=True, slots=True)
class Spend:
    """Host time in which nothing is recorded (or which fills the open range)."""

    ns: int
    is_scaled: bool = True


@dataclass(frozen=True, slots=True)
class Kernel:
    """A device activity and the call that launches it.

    Attributes:
        ns: duration before slowness and jitter.
        cls: `compute` or `memcpy`.
        op: operator around the launch, or None when a range is open already.
        copy: `h2d`, `d2h`, `d2d` or `memset` for cls memcpy.
        load: scales the duration by the tokens this rank received (expert layers).
    """

    name: str
    ns: int
    cls: str = "compute"
    op: str | None = "aten::mul"
    op_args: str = ""
    node: str | None = None
    pair: str | None = None
    copy: str | None = None
    nbytes: int = 0
    grid: tuple[int, int, int] = (1024, 1, 1)
    block: tuple[int, int, int] = (256, 1, 1)
    load: str | None = None


@dataclass(frozen=True, slots=True)
class Comm:
    """A collective or a point-to-point call.

    Attributes:
        axis: group axis it runs on.
        op: all_reduce, all_gather, reduce_scatter, all_to_all, send, recv.
        nbytes: message size S (all_gather: output, reduce_scatter and all_to_all: input).
        tag: name under which `Join` finds it; calls with one tag are joined together.
        is_async: own stream; otherwise the caller's stream (when the config says so) or joined at once.
        lane: point-to-point: which FIFO of the pair (`F`, `B`, ...), also part of its stream.
        peer: point-to-point: +1 next or -1 previous member of the group (cyclic).
        after_compute: the call waits for what the compute stream was given before it.
        uneven: all_to_all with splits that differ per rank, drawn under this name.
    """

    axis: str
    op: str
    nbytes: int
    tag: str
    is_async: bool = True
    dtype: str = "BFloat16"
    itemsize: int = 2
    lane: str = ""
    peer: int = 0
    after_compute: bool = True
    uneven: str | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """`Work.wait()` for every call with this tag: the compute stream waits for their ends."""

    tag: str


@dataclass(frozen=True, slots=True)
class Sync:
    """The host blocks until the compute stream (`stream`) or the whole device (`device`) is idle."""

    kind: str = "stream"


@dataclass(frozen=True, slots=True)
class Stall:
    """A place where the host may be made to pause: `data`, `gc` or `checkpoint`."""

    kind: str


@dataclass(frozen=True, slots=True)
class Act:
    """A pipeline action begins (kind `F` or `B`) or ends (kind empty)."""

    kind: str = ""
    stage: int = 0
    microbatch: int = 0


@dataclass(frozen=True, slots=True)
class StepMark:
    """A step begins (`number`), or the last one ends (`number` None)."""

    number: int | None


Instruction = Begin | End | Thread | Spend | Kernel | Comm | Join | Sync | Stall | Act | StepMark
