"""Trace files: the header Kineto writes, events streamed line by line, plain or gzip, cut short on request."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from .costs import mix
from .groups import Group
from .model import SimulationConfig
from .record import BASE_NS

FLUSH_CHARS = 1 << 16
"""Text gathered per rank before it is compressed and appended."""

MANY_RANKS = 64
"""From here on a rank's compressor gets a small window, so that a thousand of them fit into memory."""


class RankFile:
    """One rank's trace file; opened only to append, so that a thousand ranks need no thousand open files."""

    def __init__(self, path: Path, *, is_compressed: bool, is_one_of_many: bool = False) -> None:
        self.path = path
        self._lines: list[str] = []
        self._size = 0
        self._is_first = True
        window, memory = (12, 5) if is_one_of_many else (15, 8)
        self._zip = zlib.compressobj(6, zlib.DEFLATED, 16 + window, memory) if is_compressed else None
        path.write_bytes(b"")

    def head(self, text: str) -> None:
        """Everything before the first event."""
        self._add(text)

    def write(self, line: str) -> None:
        """One event."""
        self._add(line if self._is_first else ",\n" + line)
        self._is_first = False

    def close(self, tail: str) -> None:
        """Everything after the last event; the file is whole after this."""
        self._add(tail)
        self._flush()
        if self._zip is not None:
            self._append(self._zip.flush())

    def _add(self, text: str) -> None:
        self._lines.append(text)
        self._size += len(text)
        if self._size >= FLUSH_CHARS:
            self._flush()

    def _flush(self) -> None:
        data = "".join(self._lines).encode()
        self._lines, self._size = [], 0
        self._append(self._zip.compress(data) if self._zip is not None else data)

    def _append(self, data: bytes) -> None:
        if data:
            with self.path.open("ab") as f:
                f.write(data)


def cut(path: Path, fraction: float) -> None:
    """Cut a file short in the middle of an event, as a crash while writing does."""
    data = path.read_bytes()
    keep = max(1, min(len(data) - 2, int(len(data) * fraction)))
    if not path.name.endswith(".gz"):  # the middle of the line that holds the place
        start, end = data.rfind(b"\n", 0, keep) + 1, data.find(b"\n", keep)
        keep = max(1, (start + (len(data) if end < 0 else end)) // 2)
    path.write_bytes(data[:keep])


def file_name(config: SimulationConfig, rank: int) -> str:
    """Name of a rank's trace file."""
    return f"rank{rank}.json" + (".gz" if config.is_compressed else "")


def header(config: SimulationConfig, rank: int, groups: list[Group]) -> str:
    """The file's opening up to the first event, as PyTorch 2.12 and later write it."""
    local = min(config.hardware.gpus_per_host, config.layout.world)
    fields: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [_device(config, i) for i in range(local)],
        "trace_id": f"{mix(config.seed, rank, 1):016X}{mix(config.seed, rank, 2):016X}",
        "record_shapes": 1,
        "distributedInfo": _distributed(config, rank, groups),
        "cuda_driver_version": 13000,
        "cuda_runtime_version": 13000,
        "cupti_version": 130001,
        "host_name": config.host_name(rank),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
    }
    body = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in fields.items())
    return "{\n" + body + ',\n  "traceEvents": [\n'


def footer(config: SimulationConfig, rank: int) -> str:
    """What follows the last event."""
    name = file_name(config, rank).removesuffix(".gz")
    return f'\n  ],\n  "traceName": "{name}"\n}}\n'


def _device(config: SimulationConfig, index: int) -> dict[str, Any]:
    return {
        "id": index,
        "name": config.hardware.gpu,
        "totalGlobalMem": 85_017_493_504,
        "computeMajor": 9,
        "computeMinor": 0,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 32,
        "sharedMemPerBlock": 49152,
        "numSms": 132,
        "regsPerMultiprocessor": 65536,
        "sharedMemPerBlockOptin": 232448,
        "sharedMemPerMultiprocessor": 233472,
    }


def _distributed(config: SimulationConfig, rank: int, groups: list[Group]) -> dict[str, Any]:
    return {
        "backend": "nccl",
        "rank": rank,
        "world_size": config.layout.world,
        "pg_count": len(groups),
        "pg_config": [
            {
                "pg_name": g.pg_name,
                "pg_desc": g.pg_desc,
                "backend_config": "cuda:nccl",
                "pg_size": g.size,
                "ranks": list(g.ranks),
            }
            for g in groups
            if rank in g.ranks
        ],
        "nccl_version": "2.29.7",
    }
