"""Names of collectives and element types: one spelling for the many that traces use, and sizes in bytes."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from .columns import I64, Flags, Text, integer_array

_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallsingle": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
    "send": "send",
    "recv": "recv",
    "recvanysource": "recv",
    "barrier": "barrier",
    "monitoredbarrier": "barrier",
}

_HALF_BYTES = {
    2: "byte char bool int8 uint8 i8 u8 qint8 quint8 bits8 float8 fp8 f8 float8e4m3fn float8e5m2 "
    "float8e4m3fnuz float8e5m2fnuz float8e4m3 float8e8m0fnu fp8e4m3 fp8e5m2 signedchar unsignedchar "
    "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7 "
    "quint4x2 quint2x4 bits1x8 bits2x4 bits4x2",
    4: "half short bfloat16 float16 int16 uint16 bf16 fp16 f16 i16 u16 bits16 unsignedshort",
    8: "int float int32 uint32 float32 fp32 f32 i32 u32 qint32 complexhalf complex32 unsigned",
    16: "long double int64 uint64 float64 fp64 f64 i64 u64 complexfloat complex64 longint unsignedlong",
    32: "complexdouble complex128",
    1: "float4 fp4 float4e2m1 float4e2m1fn float4e2m1fnx2",
}
"""Half bytes per element: packed 4-bit floats count as half a byte (METHOD 2.3), everything else whole."""

_SIZES = {name: halves for halves, names in _HALF_BYTES.items() for name in names.split()}


def canonical_operation(name: str | None) -> str | None:
    """`all_reduce`, `all_gather`, `send` ... for any spelling; None for no collective or an unknown one.

    `_allgather_base`, `AllGather`, `nccl:_all_gather_base` and `all_gather_into_tensor_coalesced` are all
    `all_gather`.
    """
    if name is None:
        return None
    plain = re.sub(r"[^a-z]", "", name.rpartition(":")[2].lower()).removesuffix("coalesced")
    return _OPERATIONS.get(plain)


def element_half_bytes(dtype: str | None) -> int | None:
    """Size of an element in half bytes, None when the type is unknown."""
    if dtype is None:
        return None
    plain = re.sub(
        r"[^a-z0-9]", "", dtype.lower().replace("c10::", "").replace("torch.", "").replace("at::", "")
    )
    return _SIZES.get(plain)


def message_bytes(n_elements: I64, known: Flags, dtypes: Text) -> pa.Array:
    """Elements times element size, rounded up to whole bytes; null when either is unknown or negative."""
    sizes = [element_half_bytes(v) for v in dtypes.values]
    halves = np.array([*(s or 0 for s in sizes), 0], dtype=np.int64)[dtypes.codes]
    fits = (n_elements >= 0) & (n_elements <= np.iinfo(np.int64).max // 64)
    total = (np.where(fits, n_elements, 0) * halves + 1) // 2
    return integer_array(total, known & fits & (halves > 0))
