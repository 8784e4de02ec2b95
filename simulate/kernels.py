"""Kernels of a transformer layer, named and sized as a bfloat16 training run shows them."""

from __future__ import annotations

import json

from .costs import BETA, attention_ns, gemm_ns, memory_ns
from .instructions import Kernel
from .model import SimulationConfig

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{functor}, std::array<char*, 3ul> >"
    "(int, at::native::{functor}, std::array<char*, 3ul>)"
)
FLASH = (
    "void flash::flash_{way}_kernel<Flash_{way}_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >"
    "(flash::Flash_{way}_params)"
)


def tensor_args(*dims: tuple[int, ...]) -> str:
    """Recorded shapes and types of an operator's inputs, as JSON members."""
    shapes = json.dumps([list(d) for d in dims])
    types = json.dumps(["c10::BFloat16"] * len(dims))
    return f'"Input type": {types}, "Input Dims": {shapes}'


class KernelBook:
    """Makes the kernels of one config; sizes are per tensor- and context-parallel rank."""

    def __init__(self, config: SimulationConfig) -> None:
        lay, model = config.layout, config.model
        self.config = config
        self.hw = config.hardware
        self.tp = lay.tp
        self.tokens = model.tokens // lay.cp
        self.local_tokens = self.tokens // (lay.tp if lay.sequence_parallel else 1)
        self.batch, self.seq, self.local_seq = model.microbatch, model.seq, model.seq // lay.cp
        self.hidden = model.hidden
        self.ffn, self.vocab = max(1, model.ffn // lay.tp), max(1, model.vocab // lay.tp)
        self.width = model.hidden // lay.tp
        self.qkv = (model.hidden + 2 * model.kv_hidden) // lay.tp

    def gemm(self, m: int, n: int, k: int, **extra: str | None) -> Kernel:
        """A matrix product (m x k) (k x n)."""
        tile = "128x256" if n >= 1024 else "128x128"
        return Kernel(
            f"nvjet_tst_{tile}_64x4_2x1_v_bz_coopA_TNN",
            gemm_ns(self.hw, m, n, k),
            op=extra.get("op") or "aten::mm",
            op_args=tensor_args((m, k), (k, n)),
            node=extra.get("node"),
            pair=extra.get("pair"),
            grid=(132, 1, 1),
            block=(384, 1, 1),
            load=extra.get("load"),
        )

    def elementwise(
        self, op: str, elements: int, *, functor: str, passes: int = 3, node: str | None = None
    ) -> Kernel:
        """A kernel that reads and writes `passes` times `elements`."""
        return Kernel(
            ELEMENTWISE.format(functor=functor),
            memory_ns(self.hw, passes * elements * BETA),
            op=op,
            op_args=tensor_args((elements,)),
            node=node,
            grid=(max(1, elements // 1024), 1, 1),
            block=(128, 1, 1),
        )

    def norm(self) -> Kernel:
        """RMSNorm forward."""
        name = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>(int, float)"
        return Kernel(
            name,
            memory_ns(self.hw, 2 * self.local_tokens * self.hidden * BETA),
            op="aten::_fused_rms_norm",
            op_args=tensor_args((self.batch, self.local_tokens // self.batch or 1, self.hidden)),
            grid=(self.local_tokens, 1, 1),
        )

    def norm_backward(self) -> Kernel:
        """RMSNorm backward."""
        name = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float, true>(int)"
        return Kernel(
            name,
            memory_ns(self.hw, 4 * self.local_tokens * self.hidden * BETA),
            op="aten::_fused_rms_norm_backward",
            node="FusedRmsNormBackward0",
            grid=(self.local_tokens, 1, 1),
        )

    def add(self, *, node: str | None = None) -> Kernel:
        """Residual addition."""
        return self.elementwise(
            "aten::add", self.local_tokens * self.hidden, functor="CUDAFunctor_add<c10::BFloat16>", node=node
        )

    def rope(self, *, node: str | None = None) -> Kernel:
        """Rotary embedding of queries and keys."""
        return self.elementwise(
            "aten::mul", self.tokens * self.qkv, functor="BinaryFunctor<c10::BFloat16, MulFunctor>", node=node
        )

    def swiglu(self, *, node: str | None = None) -> Kernel:
        """Gated activation."""
        return self.elementwise(
            "aten::silu", self.tokens * self.ffn, functor="silu_functor<c10::BFloat16>", node=node
        )

    def attention(self, *, keys: int | None = None, pair: str | None = None) -> Kernel:
        """Flash attention forward of the local queries against `keys` keys."""
        keys = self.local_seq if keys is None else keys
        q = (
            self.batch,
            self.config.model.heads // self.tp,
            self.local_seq,
            self.hidden // self.config.model.heads,
        )
        return Kernel(
            FLASH.format(way="fwd"),
            attention_ns(self.hw, self.batch, self.local_seq, keys, width=self.width),
            op="aten::_flash_attention_forward",
            op_args=tensor_args(q, q, q),
            pair=pair,
            grid=(max(1, self.local_seq // 128), q[1], self.batch),
            block=(128, 1, 1),
        )

    def attention_backward(self, *, keys: int | None = None, pair: str | None = None) -> Kernel:
        """Flash attention backward: 2.5 times the forward's FLOPs."""
        forward = self.attention(keys=keys)
        return Kernel(
            FLASH.format(way="bwd_dq_dk_dv_loop_seqk_parallel"),
            round(2.5 * forward.ns),
            op="aten::_flash_attention_backward",
            op_args=forward.op_args,
            node="ScaledDotProductFlashAttentionBackward0",
            pair=pair,
            grid=forward.grid,
            block=(256, 1, 1),
        )

    def copy(self, kind: str, nbytes: int, *, op: str = "aten::copy_") -> Kernel:
        """A copy over PCIe (h2d, d2h at 25 GB/s) or within the device."""
        names = {
            "h2d": "Memcpy HtoD (Pinned -> Device)",
            "d2h": "Memcpy DtoH (Device -> Pageable)",
            "d2d": "Memcpy DtoD (Device -> Device)",
        }
        rate = 25.0 if kind in ("h2d", "d2h") else self.hw.hbm_gbps / 2
        return Kernel(
            names[kind], max(1_200, round(nbytes / rate)), cls="memcpy", op=op, copy=kind, nbytes=nbytes
        )

    def memset(self, nbytes: int) -> Kernel:
        """A memset."""
        return Kernel(
            "Memset (Device)",
            max(1_000, round(nbytes / self.hw.hbm_gbps)),
            cls="memcpy",
            op="aten::zero_",
            copy="memset",
            nbytes=nbytes,
        )

    def fused(self, name: str, kernels: list[Kernel], *, node: str | None = None) -> Kernel:
        """One kernel with the time of several: for coarse programs."""
        return Kernel(
            f"triton_red_fused_{name}_0",
            sum(k.ns for k in kernels),
            op=f"triton_red_fused_{name}_0",
            node=node,
            load=next((k.load for k in kernels if k.load), None),
        )

    def block(self, name: str, ns: int, *, node: str | None = None) -> Kernel:
        """One kernel of a given time."""
        return Kernel(f"triton_poi_fused_{name}_0", ns, op=f"triton_poi_fused_{name}_0", node=node)
