"""One rank-file's events as numpy columns: what linking, classing and stepping look at, computed once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from rankscope.store.schema import DEVICE_CATEGORIES

from .columns import I64, Flags, Text, flags, ints, saturating_end, text, threads

RUNTIME = re.compile(r"^(cuda|hip|xpu|musa|privateuse1)_(runtime|driver)$")
"""Categories of host calls that can put work on a device."""

MARK = re.compile(r"^(ProfilerStep\s?#|Optimizer\.\w+#|enumerate\(DataLoader\)#)")
"""Ranges that PyTorch itself puts around work. They are annotations, also where a trace (before 2022, or of another
vendor's profiler) files them under the operators.
"""

_NOT_RANGES = frozenset("stfMCiIENODPRcvabne")
"""Phases that never are a range of time: flows, metadata, counters, instants, objects, ends."""


@dataclass(frozen=True)
class Frame:
    """Events of one rank, any order; `table` keeps the columns that few look at.

    Attributes:
        start, has_start: absolute start in ns (0 where unknown) and whether it is known.
        end, fits: start + duration (the start for unknown or negative durations), and whether it fits int64.
        valid: a range whose time may enter sums.
    """

    table: pa.Table
    cat: Text
    name: Text
    thread: Text
    start: I64
    has_start: Flags
    dur: I64
    has_dur: Flags
    end: I64
    fits: Flags
    valid: Flags
    is_range: Flags

    @classmethod
    def of(cls, events: pa.Table) -> Frame:
        """The frame of an EVENTS table (identity and place columns are not needed)."""
        start, has_start = ints(events, "start_ns")
        dur, has_dur = ints(events, "dur_ns")
        end, fits = saturating_end(start, np.where(has_dur, dur, 0))
        phase = text(events, "ph")
        can_range = phase.codes < 0
        can_range |= phase.where(np.array([p not in _NOT_RANGES for p in phase.values], dtype=np.bool_))
        sound = flags(events, "valid") & has_start & has_dur & (dur >= 0) & fits
        return cls(
            table=events,
            cat=text(events, "cat"),
            name=text(events, "name"),
            thread=threads(events),
            start=start,
            has_start=has_start,
            dur=dur,
            has_dur=has_dur,
            end=end,
            fits=fits,
            valid=sound & can_range,
            is_range=can_range,
        )

    def in_category(self, *cats: str) -> Flags:
        """Rows of these categories."""
        return self.cat.where(np.array([c in cats for c in self.cat.values], dtype=np.bool_))

    def named(self, test: Callable[[str], bool]) -> Flags:
        """Rows whose name passes the test; each distinct name is tested once."""
        return self.name.where(np.array([bool(test(n)) for n in self.name.values], dtype=np.bool_))

    @cached_property
    def is_device(self) -> Flags:
        """Device activity (kernels, copies, memsets), valid or not."""
        return self.in_category(*DEVICE_CATEGORIES) & self.is_range

    @cached_property
    def is_runtime(self) -> Flags:
        """Valid CUDA, HIP, XPU runtime and driver calls."""
        known = np.array([bool(RUNTIME.match(c)) for c in self.cat.values], dtype=np.bool_)
        return self.cat.where(known) & self.valid

    @cached_property
    def is_operator(self) -> Flags:
        """Valid host operators."""
        return self.in_category("cpu_op") & self.valid & ~self._is_mark

    @cached_property
    def is_annotation(self) -> Flags:
        """Valid host annotations."""
        return (self.in_category("user_annotation") | self._is_mark) & self.valid

    @cached_property
    def _is_mark(self) -> Flags:
        return self.in_category("cpu_op") & self.named(lambda n: bool(MARK.match(n)))

    @cached_property
    def correlation(self) -> tuple[I64, Flags]:
        """Correlation ids and whether they are known."""
        return ints(self.table, "correlation")

    @cached_property
    def external_id(self) -> tuple[I64, Flags]:
        """External ids and whether they are known."""
        return ints(self.table, "external_id")

    @cached_property
    def collective(self) -> Text:
        """`Collective name` arguments."""
        return text(self.table, "collective")

    @cached_property
    def is_comm_record(self) -> Flags:
        """`record_param_comms` calls that are collectives: a `wait` repeats the call it waits for, and an `init`
        makes a group.
        """
        record = self.is_operator & self.named(lambda n: n == "record_param_comms")
        others = np.array([c in ("wait", "init") for c in self.collective.values], dtype=np.bool_)
        return record & ~self.collective.where(others)
