"""What things cost, in whole ns: kernels by FLOPs and bytes, messages by alpha and beta."""

from __future__ import annotations

from math import isinf

from .model import Hardware, Link

BETA = 2
"""Bytes of a bfloat16 element."""


def gemm_ns(hw: Hardware, m: int, n: int, k: int) -> int:
    """Time of an m x k by k x n product: 2mnk FLOPs at the reached rate."""
    return max(hw.min_kernel_ns, round(2 * m * n * k / (hw.peak_tflops * hw.gemm_efficiency * 1e3)))


def attention_ns(hw: Hardware, batch: int, queries: int, keys: int, *, width: int) -> int:
    """Time of causal attention: half of 4 b s_q s_k d FLOPs (`width` = heads x head size on this rank)."""
    flops = 2 * batch * queries * keys * width
    return max(hw.min_kernel_ns, round(flops / (hw.peak_tflops * hw.attention_efficiency * 1e3)))


def memory_ns(hw: Hardware, nbytes: int) -> int:
    """Time of a kernel that only moves bytes through HBM."""
    return max(hw.min_kernel_ns, round(nbytes / hw.hbm_gbps))


def bus_factor(op: str, n: int) -> float:
    """Bytes on the wire per rank as a share of the message (nccl-tests' factors)."""
    if n < 2:
        return 0.0
    if op == "all_reduce":
        return 2 * (n - 1) / n
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (n - 1) / n
    return 1.0


def message_ns(link: Link, op: str, n: int, nbytes: int) -> int:
    """Transfer time of a call: alpha + bytes x factor / bandwidth."""
    if n < 2 and op not in ("send", "recv"):
        return link.alpha_ns
    wire = 0 if isinf(link.gbps) else round(nbytes * bus_factor(op, n) / link.gbps)
    return link.alpha_ns + wire


_MASK = (1 << 64) - 1


def mix(*values: int) -> int:
    """A 64-bit hash of whole numbers: noise that does not depend on order of execution."""
    h = 0x9E3779B97F4A7C15
    for v in values:
        h = (h ^ (v & _MASK)) * 0xBF58476D1CE4E5B9 & _MASK
        h ^= h >> 27
        h = h * 0x94D049BB133111EB & _MASK
        h ^= h >> 31
    return h


def unit(*values: int) -> float:
    """A number in [0, 1) from whole numbers."""
    return (mix(*values) >> 11) / (1 << 53)


def jittered(ns: int, amount: float, *key: int) -> int:
    """A duration made up to `amount` longer or shorter, by the key."""
    if amount <= 0 or ns <= 0:
        return ns
    return max(1, round(ns * (1 + amount * (2 * unit(*key) - 1))))
