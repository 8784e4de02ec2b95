"""Forward and backward of a transformer layer as instructions, with the communication of TP, CP and EP."""

from __future__ import annotations

from collections.abc import Iterator

from .costs import BETA
from .instructions import Comm, Instruction, Join, Kernel, Sync
from .kernels import KernelBook
from .model import SimulationConfig

RING = "ring"


class LayerBook:
    """Makes the instructions of one layer; the same objects serve every microbatch and rank."""

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config
        self.book = KernelBook(config)
        self.lay = config.layout
        self.activation = self.book.tokens * config.model.hidden * BETA

    def forward(self, layer: int) -> list[Instruction]:
        """Forward of one layer."""
        if self.config.detail != "kernel":
            return self._coarse(layer, "F")
        mlp = self._moe_forward(layer) if self.config.model.experts else self._mlp_forward(layer)
        return [*self._attention_forward(layer), *mlp]

    def backward(self, layer: int) -> list[Instruction]:
        """Backward of one layer."""
        if self.config.detail != "kernel":
            return self._coarse(layer, "B")
        mlp = self._moe_backward(layer) if self.config.model.experts else self._mlp_backward(layer)
        return [*mlp, *self._attention_backward(layer)]

    # tensor parallelism

    def _tp(self, op: str, tag: str, *, is_async: bool = False) -> list[Instruction]:
        if self.lay.tp == 1:
            return []
        return [Comm("tp", op, self.activation, tag, is_async=is_async)]

    def gather(self) -> list[Instruction]:
        """With sequence parallelism, the input of a column-parallel product is gathered first."""
        return self._tp("all_gather", "tp") if self.lay.sequence_parallel else []

    def reduce(self) -> list[Instruction]:
        """The output of a row-parallel product is summed over the tensor-parallel group."""
        return self._tp("reduce_scatter" if self.lay.sequence_parallel else "all_reduce", "tp")

    def _column_backward(self, m: int, n: int, k: int, pair: str) -> list[Instruction]:
        """Backward of a column-parallel product: the input's gradient is reduced under the weight's product."""
        b = self.book
        data = b.gemm(m, k, n, node="MmBackward0", pair=pair)
        weight = b.gemm(k, n, m, node="MmBackward0")
        if self.lay.tp == 1:
            return [data, weight]
        if not self.lay.sequence_parallel:
            return [data, *self._tp("all_reduce", "tp.bwd", is_async=True), weight, Join("tp.bwd")]
        again = self._tp("all_gather", "tp.again", is_async=True)
        reduced = self._tp("reduce_scatter", "tp.bwd", is_async=True)
        return [*again, data, *reduced, Join("tp.again"), weight, Join("tp.bwd")]

    def _row_backward(self, m: int, n: int, k: int, pair: str) -> list[Instruction]:
        b = self.book
        return [
            *self.gather(),
            b.gemm(m, k, n, node="MmBackward0", pair=pair),
            b.gemm(k, n, m, node="MmBackward0"),
        ]

    # attention

    def _attention_forward(self, layer: int) -> Iterator[Instruction]:
        b, h = self.book, self.config.model.hidden
        yield b.norm()
        yield from self.gather()
        yield b.gemm(b.tokens, b.qkv, h, pair=f"{layer}.qkv")
        yield b.rope()
        yield from self._ring(
            b.attention(pair=f"{layer}.attn"), b.attention(), lane="KF", nbytes=self._kv_bytes()
        )
        yield b.gemm(b.tokens, h, b.width, pair=f"{layer}.proj")
        yield from self.reduce()
        yield b.add()

    def _attention_backward(self, layer: int) -> Iterator[Instruction]:
        b, h = self.book, self.config.model.hidden
        yield from self._row_backward(b.tokens, h, b.width, f"{layer}.proj")
        first = b.attention_backward(pair=f"{layer}.attn")
        yield from self._ring(first, b.attention_backward(), lane="KB", nbytes=2 * self._kv_bytes())
        yield b.rope(node="MulBackward0")
        yield from self._column_backward(b.tokens, b.qkv, h, f"{layer}.qkv")
        yield b.norm_backward()
        yield b.add(node="AddBackward0")

    def _kv_bytes(self) -> int:
        """Keys and values of one context-parallel rank."""
        return 2 * self.book.tokens * (self.config.model.kv_hidden // self.lay.tp or 1) * BETA

    def _ring(self, first: Kernel, other: Kernel, *, lane: str, nbytes: int) -> Iterator[Instruction]:
        """Ring attention: while one block is computed, keys and values move on to the next rank."""
        n = self.lay.cp
        for j in range(n):
            if j < n - 1:
                yield Comm("cp", "send", nbytes, RING, lane=lane, peer=1)
                yield Comm("cp", "recv", nbytes, RING, lane=lane, peer=-1)
            yield first if j == 0 else other
            if j < n - 1:
                yield Join(RING)

    # dense feed-forward

    def _mlp_forward(self, layer: int) -> Iterator[Instruction]:
        b, h = self.book, self.config.model.hidden
        yield b.norm()
        yield from self.gather()
        yield b.gemm(b.tokens, 2 * b.ffn, h, pair=f"{layer}.up")
        yield b.swiglu()
        yield b.gemm(b.tokens, h, b.ffn, pair=f"{layer}.down")
        yield from self.reduce()
        yield b.add()

    def _mlp_backward(self, layer: int) -> Iterator[Instruction]:
        b, h = self.book, self.config.model.hidden
        yield from self._row_backward(b.tokens, h, b.ffn, f"{layer}.down")
        yield b.swiglu(node="SiluBackward0")
        yield from self._column_backward(b.tokens, 2 * b.ffn, h, f"{layer}.up")
        yield b.norm_backward()
        yield b.add(node="AddBackward0")

    # mixture of experts

    @property
    def _routed(self) -> int:
        return self.book.tokens * self.config.model.topk

    def _exchange(self, layer: int, way: str) -> list[Instruction]:
        if self.lay.ep == 1:
            return []
        nbytes = self._routed * self.config.model.hidden * BETA
        return [Comm("ep", "all_to_all", nbytes, "ep", is_async=False, uneven=f"{way}{layer}")]

    def _experts(self, layer: int, *, node: str | None = None) -> list[Instruction]:
        b, h, load = self.book, self.config.model.hidden, f"{layer}"
        out: list[Instruction] = []
        passes = 1 if node is None else 2
        for n, k in ((2 * b.ffn, h), (h, b.ffn)):
            out += [b.gemm(self._routed, n, k, op="aten::_grouped_mm", load=load, node=node)] * passes
        return out

    def _moe_forward(self, layer: int) -> Iterator[Instruction]:
        b, h, m = self.book, self.config.model.hidden, self.config.model
        yield b.norm()
        yield b.gemm(b.tokens, m.experts, h, pair=f"{layer}.router")
        yield b.elementwise("aten::topk", b.tokens * m.experts, functor="topk_functor", passes=2)
        if self.lay.ep > 1 and self.config.moe_host_sync:
            yield b.copy("d2h", 8 * m.experts, op="aten::_to_copy")
            yield Sync()
        yield b.elementwise("aten::index", self._routed * h, functor="index_functor<c10::BFloat16>", passes=2)
        yield from self._exchange(layer, "d")
        yield from self._experts(layer)
        yield from self._exchange(layer, "c")
        yield b.elementwise("aten::index_add", self._routed * h, functor="CUDAFunctor_add<c10::BFloat16>")
        yield from self.reduce()

    def _moe_backward(self, layer: int) -> Iterator[Instruction]:
        b, h, m = self.book, self.config.model.hidden, self.config.model
        yield b.elementwise(
            "aten::index", self._routed * h, functor="index_functor<c10::BFloat16>", node="IndexAddBackward0"
        )
        yield from self._exchange(layer, "d")
        yield from self._experts(layer, node="GroupedMmBackward0")
        yield from self._exchange(layer, "c")
        yield b.elementwise(
            "aten::index_add",
            self._routed * h,
            functor="CUDAFunctor_add<c10::BFloat16>",
            node="IndexBackward0",
        )
        yield b.gemm(b.tokens, h, m.experts, node="MmBackward0", pair=f"{layer}.router")
        yield from self._tp("all_reduce", "tp.bwd", is_async=True)
        yield b.norm_backward()
        yield from [Join("tp.bwd")] if self.lay.tp > 1 else []

    # coarse programs

    def _coarse(self, layer: int, way: str) -> list[Instruction]:
        """The same communication, with the kernels between two calls fused into one."""
        mlp = self._moe_forward if self.config.model.experts else self._mlp_forward
        parts: list[Iterator[Instruction]] = [self._attention_forward(layer), mlp(layer)]
        if way == "B":
            back = self._moe_backward if self.config.model.experts else self._mlp_backward
            parts = [back(layer), self._attention_backward(layer)]
        out: list[Instruction] = []
        for name, part in zip(
            ("attention", "mlp") if way == "F" else ("mlp", "attention"), parts, strict=True
        ):
            out += self._fused(name, list(part), node=None if way == "F" else "CompiledFunctionBackward")
        return out

    def _fused(self, name: str, part: list[Instruction], *, node: str | None) -> Iterator[Instruction]:
        held: list[Kernel] = []
        for item in part:
            if (
                isinstance(item, Kernel)
                and item.cls == "compute"
                and (not held or held[-1].load == item.load)
            ):
                held.append(item)
                continue
            if held:
                yield self.book.fused(name, held, node=node)
                held = []
            if isinstance(item, Kernel) and item.cls == "compute":
                held = [item]
            else:
                yield item
        if held:
            yield self.book.fused(name, held, node=node)

    # parameters

    def parameters(self) -> tuple[int, int]:
        """Parameters of one layer on one rank: shared by all data-parallel ranks, and of its experts."""
        m, tp = self.config.model, self.lay.tp
        attention = m.hidden * (m.hidden + 2 * m.kv_hidden) // tp + m.hidden * m.hidden // tp + 2 * m.hidden
        feed = 3 * m.hidden * self.book.ffn
        if not m.experts:
            return attention + feed, 0
        return attention + m.hidden * m.experts, feed * (m.experts // self.lay.ep)
