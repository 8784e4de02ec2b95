"""How fast and in how much memory a trace is read: gzip -> exact columns in a spool.

    python benchmarks/reader.py              # makes traces of 100 and 300 MB and reads them
    python benchmarks/reader.py --mb 1000    # one of another size
    python benchmarks/reader.py TRACE...     # traces of your own

Prints MB of JSON per CPU second and the peak resident memory, each file in a process of its own. The second
figure must not grow with the file.
"""

from __future__ import annotations

import argparse
import gzip
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017755648}],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1767189312000000000,
  "traceEvents": [
"""
OPERATORS = (
    "aten::mm",
    "aten::add_",
    "aten::layer_norm",
    "aten::gelu",
    "aten::copy_",
    "aten::view",
    "aten::t",
)
SHAPES = (
    "[[4096, 1024], [1024, 1024]]",
    "[[4096, 1024], []]",
    "[[16, 559, 1024], []]",
    "[[4096, 4096], [4096]]",
)


def write_trace(path: Path, megabytes: float) -> int:
    """Write a gzip trace in libkineto's own formatting; returns its bytes of JSON."""
    target = int(megabytes * 1e6)
    chance = random.Random(0)
    written = 0
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8", newline="\n") as out:
        written += out.write(HEAD)
        call = 0
        while written < target:
            text = "".join(_launch(call + i, chance) for i in range(256))
            call += 256
            written += out.write(text)
        written += out.write(
            '  {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}\n  ]\n}\n'
        )
    return written


def _launch(i: int, chance: random.Random) -> str:
    """A Python frame, an operator, its launch call, the arrow and the kernel."""
    ns = 4_460_000_000_000 + i * 11_300 + chance.randrange(5_000)
    op, shape = chance.choice(OPERATORS), chance.choice(SHAPES)
    name = f"void at::native::vectorized_elementwise_kernel<4, {op[6:]}_{i % 97}>(int, std::array<char*, 3>)"
    return (
        f'  {{\n    "ph": "X", "cat": "python_function", "name": "torch/nn/modules/module_{i % 211}.py({i % 997}): forward", "pid": 1, "tid": 1,\n'
        f'    "ts": {_us(ns - 4_000)}, "dur": {_us(9_000)},\n    "args": {{\n      "Python parent id": {i}, "Python id": {i + 1}, "Ev Idx": {3 * i}\n    }}\n  }},\n'
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{op}", "pid": 1, "tid": 1,\n'
        f'    "ts": {_us(ns - 3_000)}, "dur": {_us(7_250)},\n    "args": {{\n      "External id": {i},"Record function id": 0, "Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[1024, 1], [1, 1024]], "Input Dims": {shape}, "Ev Idx": {3 * i + 1}\n    }}\n  }},\n'
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,\n'
        f'    "ts": {_us(ns)}, "dur": {_us(2_125)},\n    "args": {{\n      "External id": {i}, "cbid": 211, "correlation": {i}\n    }}\n  }},\n'
        f'  {{\n    "ph": "s", "id": {i}, "pid": 1, "tid": 1, "ts": {_us(ns)},\n    "cat": "ac2g", "name": "ac2g"\n  }},\n'
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7,\n'
        f'    "ts": {_us(ns + 8_031)}, "dur": {_us(5_000 + i % 3_000)},\n    "args": {{\n      "External id": {i}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {i}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 15.515152, "warps per SM": 62.060608, "grid": [2048, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 100\n    }}\n  }},\n'
        f'  {{\n    "ph": "f", "id": {i}, "pid": 0, "tid": 7, "ts": {_us(ns + 8_031)},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }},\n'
    )


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def measure(path: str) -> str:
    """Read one trace in this process; a line with the figures."""
    from rankscope.ingest.bytesource import open_bytes
    from rankscope.ingest.torch_profiler import read_trace

    with open_bytes(path) as source:
        size = sum(len(chunk) for chunk in source.chunks())
    imported = _peak_mib()
    begin_cpu, begin = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, read_trace(path, spool=Path(folder)) as trace:
        cpu, wall = time.process_time() - begin_cpu, time.perf_counter() - begin
        events = trace.n_events
    return (
        f"{Path(path).name}: {size / 1e6:.0f} MB, {events} events, {trace.scanner}: "
        f"{size / 1e6 / cpu:.0f} MB/s by CPU ({cpu:.2f} s), {size / 1e6 / wall:.0f} MB/s by wall, "
        f"{1e9 * cpu / max(events, 1):.0f} ns/event, peak memory {_peak_mib():.0f} MiB ({imported:.0f} before reading)"
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--mb", type=float, nargs="*", default=[100, 300])
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        print(measure(options.traces[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        traces = list(options.traces)
        for size in [] if traces else options.mb:
            traces.append(str(Path(folder) / f"bench_{size:.0f}MB.json.gz"))
            write_trace(Path(traces[-1]), size)
        for trace in traces:
            subprocess.run([sys.executable, __file__, "--in-process", trace], check=True)


if __name__ == "__main__":
    main()
