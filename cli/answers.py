"""Which questions this capture can answer: yes, only as a bound, or no; why; and what to collect instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from . import text

YES, BOUND, NO = "yes", "bound", "no"


@dataclass(frozen=True)
class Facts:
    """What the capture holds, as far as the answers depend on it.

    Attributes:
        n_ranks: ranks with data. world_size: ranks in all, None when unknown.
        n_device, n_host: ranks on the device timeline, on the host timeline.
        n_comm: communication activities recorded. n_comm_missing: windows in which it was issued only.
        n_linked, n_activities: device activities with a launch record, and all.
        categories: number of events of each category (`cuda_sync`, `python_function` ...).
        step_sources: source of the steps and how many windows it gave.
        flags: `record_shapes`, `with_stack`, `profile_memory` as the files say.
        unsplit_ns: exposed communication whose waiting part is unknown.
        n_p2p: sends and receives recorded.
    """

    n_ranks: int = 0
    world_size: int | None = None
    n_device: int = 0
    n_host: int = 0
    n_comm: int = 0
    n_comm_missing: int = 0
    n_linked: int = 0
    n_activities: int = 0
    categories: Mapping[str, int] = field(default_factory=dict)
    step_sources: Mapping[str, int] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    unsplit_ns: int = 0
    n_p2p: int = 0

    @property
    def has_all_ranks(self) -> bool:
        """Whether every rank of the run has a file."""
        return self.world_size is not None and self.n_ranks >= self.world_size


@dataclass(frozen=True)
class Answer:
    """One line of the table."""

    question: str
    answer: str
    because: str
    collect: str


def answers(facts: Facts) -> list[Answer]:
    """One answer per question a reader brings, in the order they are asked."""
    return [
        _where_time_goes(facts),
        _step_time(facts),
        _hidden(facts),
        _why_idle(facts),
        _waiting(facts),
        _slow_rank(facts),
        _pipeline(facts),
        _python_line(facts),
        _mfu(facts),
        _memory(facts),
    ]


def _where_time_goes(f: Facts) -> Answer:
    question = "Where does GPU time go?"
    if f.n_device and f.n_host:
        because = f"{text.count(f.n_host, 'rank')} without device activity: host times only"
        return Answer(question, BOUND, because, "ProfilerActivity.CUDA on every rank")
    if f.n_device:
        return Answer(question, YES, "device activity is recorded", "")
    because = "no device activity: compute and communication are host times"
    return Answer(question, NO, because, "activities=[CPU, CUDA] on a GPU")


def _step_time(f: Facts) -> Answer:
    question = "How long is a step?"
    sources = sorted(f.step_sources, key=lambda s: (-f.step_sources[s], s))
    if not sources or sources == ["none"]:
        return Answer(
            question, NO, "no step marks: the whole capture is one step", "prof.step() after every step"
        )
    if sources[0] == "sequence":
        because = "inferred from repeating kernels"
        return Answer(question, BOUND, because, "prof.step(), or --step-regex")
    return Answer(question, YES, f"steps from {sources[0].replace('_', ' ')}", "")


def _hidden(f: Facts) -> Answer:
    question = "Is communication hidden?"
    if f.n_comm and f.n_comm_missing:
        because = f"not recorded on the device in {text.count(f.n_comm_missing, 'window')}"
        return Answer(question, BOUND, because, "a capture that starts before the step")
    if f.n_comm:
        where = "" if f.n_device else " on the host timeline"
        return Answer(
            question,
            YES,
            f"{text.count(f.n_comm, 'communication activity', 'communication activities')} recorded{where}",
            "",
        )
    if f.n_comm_missing:
        return Answer(
            question,
            NO,
            "communication was issued, none was recorded",
            "ProfilerActivity.CUDA, newer driver tools",
        )
    return Answer(question, NO, "no communication in this capture", "a rank of a multi-GPU run")


def _why_idle(f: Facts) -> Answer:
    question = "Why is the GPU idle?"
    if not f.n_device:
        return Answer(question, NO, "no device activity", "activities=[CPU, CUDA]")
    if not f.n_linked:
        return Answer(
            question, NO, "no launch calls: idle time stays unattributed", "ProfilerActivity.CPU as well"
        )
    if f.n_linked * 2 < f.n_activities:
        because = f"only {text.percent(f.n_linked, f.n_activities)} of activities have their launch"
        return Answer(question, BOUND, because, "a capture that starts before the step")
    return Answer(
        question, YES, f"{text.percent(f.n_linked, f.n_activities)} of activities have their launch", ""
    )


def _ranks_because(f: Facts) -> str:
    if f.world_size is None:
        return f"{text.count(f.n_ranks, 'rank')} here, the world size is not known"
    return f"{f.n_ranks} of {text.count(f.world_size, 'rank')} here"


def _waiting(f: Facts) -> Answer:
    question = "How much exposed comm is waiting?"
    if not f.n_comm:
        return Answer(question, NO, "no communication recorded", "a rank of a multi-GPU run")
    if not f.unsplit_ns:
        return Answer(question, YES, "every exposed call is split into wait and transfer", "")
    if f.has_all_ranks:
        return Answer(question, BOUND, "calls are not matched across ranks: a range is given", "")
    return Answer(question, BOUND, f"{_ranks_because(f)}: a range is given", "a trace from every rank")


def _slow_rank(f: Facts) -> Answer:
    question = "Which rank is slow?"
    if f.n_ranks <= 1 and f.world_size == 1:
        return Answer(question, NO, "the run has one rank", "")
    if f.n_ranks <= 1:
        return Answer(question, BOUND, f"{_ranks_because(f)}: only its own times", "a trace from every rank")
    if not f.has_all_ranks:
        return Answer(question, BOUND, _ranks_because(f), "a trace from every rank")
    if f.unsplit_ns:
        return Answer(question, BOUND, f"{_ranks_because(f)}; who waits for whom is not told", "")
    return Answer(question, YES, _ranks_because(f), "")


def _pipeline(f: Facts) -> Answer:
    question = "How large is the pipeline bubble?"
    if not f.n_p2p:
        return Answer(question, NO, "no sends or receives between stages recorded", "a pipeline-parallel run")
    if f.has_all_ranks and not f.unsplit_ns:
        return Answer(question, YES, "all stages are here", "")
    because = (
        "sends and receives are not split into wait and transfer" if f.has_all_ranks else _ranks_because(f)
    )
    return Answer(question, BOUND, because, "" if f.has_all_ranks else "a trace from every stage")


def _python_line(f: Facts) -> Answer:
    question = "Which line of Python?"
    if f.categories.get("python_function"):
        return Answer(question, YES, "Python frames are recorded", "")
    if f.categories.get("cpu_op"):
        return Answer(question, BOUND, "operators only, no Python frames", "with_stack=True (slower)")
    return Answer(question, NO, "no host events", "ProfilerActivity.CPU, with_stack=True")


def _mfu(f: Facts) -> Answer:
    question = "How many FLOP/s (MFU)?"
    if "record_shapes" in f.flags:
        return Answer(question, YES, "operator shapes are recorded", "")
    return Answer(question, NO, "operator shapes are not recorded", "record_shapes=True")


def _memory(f: Facts) -> Answer:
    question = "Where does memory go?"
    if f.categories.get("cpu_instant_event") or "profile_memory" in f.flags:
        return Answer(question, YES, "allocations are recorded", "")
    return Answer(question, NO, "allocations are not recorded", "profile_memory=True")
