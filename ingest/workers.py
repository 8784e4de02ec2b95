"""Running one function over many sources: in process, in a pool of our own, or on the caller's executor."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from rankscope.store.keep_out import keep_out

T = TypeVar("T")
R = TypeVar("R")

WORTH_A_POOL = 48 << 20
"""Estimated bytes of JSON from which starting worker processes (about half a second each) pays."""

GZIP_RATIO = 12
"""Traces shrink about this much; only for the estimate."""


class ExecutorLike(Protocol):
    """What is asked of an executor: `submit`, as in `concurrent.futures` (Dask's `get_executor()` has it)."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Schedule a call and give its future."""
        ...


def default_jobs() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0)) or 1
    except AttributeError:  # not every system has it
        return os.cpu_count() or 1


def estimated_bytes(path: str, size: int | None) -> int:
    """About how many bytes of JSON a file holds."""
    packed = path.lower().endswith((".gz", ".zst", ".zip", ".gzip", ".zstd"))
    return (size or 0) * (GZIP_RATIO if packed else 1)


def mapped(
    call: Callable[[T], R],
    items: Sequence[T],
    *,
    executor: ExecutorLike | None = None,
    jobs: int = 1,
    lost: Callable[[T], R],
) -> Iterator[tuple[T, R]]:
    """Each item with `call(item)`, as they become ready.

    Args:
        call: picklable; must not raise for an item's own fault.
        items: what to run over.
        executor: the caller's; used and left open.
        jobs: size of a pool of our own; 1 runs in this process.
        lost: result of an item whose worker process died (killed for its memory, say).

    Raises:
        Whatever `call` raises; the calls that have not begun are cancelled.
    """
    if executor is not None:
        yield from _completed({executor.submit(call, item): item for item in items})
    elif jobs <= 1 or len(items) < 2:
        yield from ((item, call(item)) for item in items)
    else:
        yield from _pooled(call, items, jobs=jobs, lost=lost)


def _pooled(
    call: Callable[[T], R], items: Sequence[T], *, jobs: int, lost: Callable[[T], R]
) -> Iterator[tuple[T, R]]:
    left: list[T] = []
    with _pool(min(jobs, len(items))) as pool:
        futures = _submitted(pool, call, items)
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except BrokenProcessPool:
                left.append(futures[future])
    # One death breaks the whole pool: each item left gets a process of its own, so the guilty one is found.
    for item in left:
        with _pool(1) as pool:
            (future,) = _submitted(pool, call, [item])
            try:
                result = future.result()
            except BrokenProcessPool:
                result = lost(item)
        yield item, result


def _completed(futures: dict[Future[R], T]) -> Iterator[tuple[T, R]]:
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes; what has not begun is dropped when the block is left by an error."""
    # spawn: a fork of a process with threads (pyarrow has some) can deadlock.
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=keep_out, initargs=("pandas",))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, call: Callable[[T], R], items: Sequence[T]) -> dict[Future[R], T]:
    """Futures of all calls. Worker processes start here, without the caller's script.

    A spawned process runs the main script again to find what it defines; ours need nothing of it, and a
    script without the `if __name__ == "__main__"` guard would ingest in every worker. So it is hidden.
    """
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        for name in hidden:
            setattr(main, name, None)
        return {pool.submit(call, item): item for item in items}
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)
