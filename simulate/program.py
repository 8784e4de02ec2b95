"""What a rank's host does in a step: data, forwards and backwards by schedule, reduction, optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from . import instructions as do
from .costs import BETA, memory_ns
from .groups import grad_axis
from .layers import LayerBook
from .model import SimulationConfig
from .schedules import Action, actions

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, 1> >"
)
END = do.End()


class StepProgram:
    """Makes the programs of all ranks of one config; bodies of actions are made once per stage."""

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config
        self.layers = LayerBook(config)
        self.book = self.layers.book
        self._bodies: dict[tuple[str, int, bool], tuple[do.Instruction, ...]] = {}

    # the step

    def step(self, rank: int, number: int) -> Iterator[do.Instruction]:
        """All instructions of one step of one rank."""
        place = self.config.layout.place(rank)
        yield do.StepMark(number)
        yield do.Begin(f"ProfilerStep#{number}", on_gpu=True)
        yield from self._opening(place["pp"])
        yield from self._pipeline(place["pp"])
        yield from self._closing(place["pp"])
        yield END
        yield do.Spend(self.config.host.step_ns)

    def _opening(self, pp: int) -> Iterator[do.Instruction]:
        yield do.Stall("gc")
        yield do.Begin(LOADER, rule="data")
        yield do.Spend(self.config.host.data_ns)
        yield do.Stall("data")
        yield END
        if pp in (0, self.config.layout.pp - 1) and self.config.detail != "stage":
            tokens = self.book.batch * self.book.local_seq * self.config.microbatches
            yield self.book.copy("h2d", 8 * tokens, op="aten::_to_copy")
        if self.config.detail == "kernel":
            yield do.Begin("Optimizer.zero_grad#AdamW.zero_grad")
            yield self.book.memset(min(1 << 26, BETA * self._params(pp)[0]))
            yield END

    def _pipeline(self, pp: int) -> Iterator[do.Instruction]:
        c = self.config
        order = actions(c.schedule, p=c.layout.pp, s=pp, m=c.microbatches, v=c.virtual_stages)
        for action in order:
            yield from self._action(pp, action)
        yield do.Join("sends")

    def _action(self, pp: int, action: Action) -> Iterator[do.Instruction]:
        c = self.config
        stage, last = action.chunk * c.layout.pp + pp, c.n_stages - 1
        way, mb = action.kind, action.microbatch
        source, target = (stage - 1, stage + 1) if way == "F" else (stage + 1, stage - 1)
        yield do.Act(way, stage, mb)
        if 0 <= source <= last:
            yield from self._message("recv", way, stage, mb, toward=source - stage)
        yield from self._labeled(way, stage, mb, self.body(way, stage, is_last=mb == c.microbatches - 1))
        if 0 <= target <= last:
            yield from self._message("send", way, stage, mb, toward=target - stage)
        yield do.Act()

    def _labeled(
        self, way: str, stage: int, mb: int, body: tuple[do.Instruction, ...]
    ) -> Iterator[do.Instruction]:
        """The body under the annotation PyTorch's runtime gives it (the plain 1F1B schedule gives none)."""
        name = {
            "interleaved": f"PP:{stage}{way}{mb}",
            "gpipe": f"{'Forward' if way == 'F' else 'Backward'} {mb}",
        }.get(self.config.schedule if self.config.layout.pp > 1 else "")
        if name:
            yield do.Begin(name)
        yield from body
        if name:
            yield END

    def _message(self, op: str, way: str, stage: int, mb: int, *, toward: int) -> Iterator[do.Instruction]:
        named = self.config.schedule == "interleaved"
        if named:
            yield do.Begin(f"PP:{stage}{op.upper()}_{way}{mb}")
        yield self._message_call(op, way, toward)
        if op == "recv":
            yield do.Join("recv")
        if named:
            yield END

    def _message_call(self, op: str, way: str, toward: int) -> do.Comm:
        lay = self.config.layout
        nbytes = self.layers.activation // (lay.tp if lay.sequence_parallel else 1)
        return do.Comm("pp", op, nbytes, "sends" if op == "send" else "recv", lane=way, peer=toward)

    # bodies of actions

    def body(self, way: str, stage: int, *, is_last: bool) -> tuple[do.Instruction, ...]:
        """What a forward or backward of this stage does; `is_last`: gradients are complete after it."""
        key = (way, stage, is_last)
        if key not in self._bodies:
            forward = way == "F"
            self._bodies[key] = tuple(
                self._forward(stage) if forward else self._backward(stage, is_last=is_last)
            )
        return self._bodies[key]

    def _first_layer(self, stage: int) -> int:
        return sum(self.config.layers_of(s) for s in range(stage))

    def _forward(self, stage: int) -> Iterator[do.Instruction]:
        if self.config.detail == "stage":
            yield self._whole("forward", stage)
            return
        units = self._units(stage)
        yield from self._gather(units, 0)
        for i, unit in enumerate(units):
            yield from self._unit_ready(units, i, i + 1)
            yield from self._unit_forward(unit)

    def _unit_forward(self, unit: str) -> list[do.Instruction]:
        b, m = self.book, self.config.model
        if unit == "embed":
            look = b.elementwise(
                "aten::embedding", b.local_tokens * m.hidden, functor="indexSelectLargeIndex", passes=2
            )
            return [look, *self.layers.reduce()]
        if unit == "head":
            loss = b.elementwise(
                "aten::_log_softmax", b.tokens * b.vocab, functor="cunn_SoftMaxForward", passes=2
            )
            small = [
                do.Comm("tp", "all_reduce", b.tokens * 4, "tp", is_async=False, dtype="Float", itemsize=4)
            ] * 3
            head = b.gemm(b.tokens, b.vocab, m.hidden, pair="head")
            return [
                b.norm(),
                *self.layers.gather(),
                head,
                loss,
                *(small if self.config.layout.tp > 1 else []),
            ]
        return self.layers.forward(int(unit))

    def _backward(self, stage: int, *, is_last: bool) -> Iterator[do.Instruction]:
        yield do.Thread("autograd")
        bucket, units = Bucket(self), self._units(stage)[::-1]
        if self.config.detail == "stage":
            yield self._whole("backward", stage)
            for unit in units if is_last else ():
                yield from bucket.add(unit)
        else:
            yield from self._gather(units, 0)
            for i, unit in enumerate(units):
                yield from self._unit_ready(units, i, i + 1)
                yield from self._unit_backward(unit)
                yield from self._unit_reduced(unit)
                yield from bucket.add(unit) if is_last else ()
        yield from bucket.flush() if is_last else ()
        yield do.Thread("main")

    def _unit_backward(self, unit: str) -> list[do.Instruction]:
        b, m = self.book, self.config.model
        if unit == "embed":
            return [b.elementwise("aten::embedding_dense_backward", b.local_tokens * m.hidden, functor="embedding_backward",
                                  node="EmbeddingBackward0")]  # fmt: skip
        if unit == "head":
            loss = b.elementwise("aten::_log_softmax_backward_data", b.tokens * b.vocab, functor="cunn_SoftMaxBackward",
                                 node="LogSoftmaxBackward0")  # fmt: skip
            data = b.gemm(b.tokens, m.hidden, b.vocab, node="MmBackward0", pair="head")
            return [
                loss,
                data,
                *self.layers.reduce(),
                b.gemm(m.hidden, b.vocab, b.tokens, node="MmBackward0"),
            ]
        return self.layers.backward(int(unit))

    def _whole(self, name: str, stage: int) -> do.Kernel:
        fixed = self.config.fixed_ns
        node = "CompiledFunctionBackward" if name == "backward" else None
        if fixed is not None:
            ns = (fixed[0] if name == "forward" else fixed[1]) // self.config.virtual_stages
            return self.book.block(name, ns, node=node)
        make = self._unit_forward if name == "forward" else self._unit_backward
        kernels = [k for u in self._units(stage) for k in make(u) if isinstance(k, do.Kernel)]
        return self.book.fused(name, kernels, node=node)

    # units of parameters: layers, and embedding and head on the outer stages

    def _units(self, stage: int) -> list[str]:
        first = self._first_layer(stage)
        out = [str(first + i) for i in range(self.config.layers_of(stage))]
        if stage == 0:
            out.insert(0, "embed")
        return [*out, "head"] if stage == self.config.n_stages - 1 else out

    def unit_params(self, unit: str) -> tuple[int, int]:
        """Parameters of a unit on one rank before sharding: shared, and of experts."""
        if unit in ("embed", "head"):
            return self.book.vocab * self.config.model.hidden, 0
        return self.layers.parameters()

    def _params(self, pp: int) -> tuple[int, int]:
        """Parameters of a pipeline rank: shared, and of experts."""
        stages = range(pp, self.config.n_stages, self.config.layout.pp)
        both = [self.unit_params(u) for s in stages for u in self._units(s)]
        return sum(a for a, _ in both), sum(b for _, b in both)

    # sharded parameters

    @cached_property
    def _is_sharded(self) -> bool:
        lay = self.config.layout
        return lay.fsdp and lay.dp * lay.cp > 1 and self.config.detail != "stage"

    def _gather(self, units: list[str], i: int) -> list[do.Instruction]:
        if not self._is_sharded or i >= len(units):
            return []
        nbytes = BETA * self.unit_params(units[i])[0]
        return [do.Comm(grad_axis(self.config.layout), "all_gather", nbytes, f"fsdp.{units[i]}")]

    def _unit_ready(self, units: list[str], i: int, prefetch: int) -> list[do.Instruction]:
        """The unit's parameters are awaited, and the next unit's are asked for before it computes."""
        if not self._is_sharded:
            return []
        return [do.Join(f"fsdp.{units[i]}"), *self._gather(units, prefetch)]

    def _unit_reduced(self, unit: str) -> list[do.Instruction]:
        if not self._is_sharded:
            return []
        nbytes = BETA * self.unit_params(unit)[0]
        return [do.Comm(grad_axis(self.config.layout), "reduce_scatter", nbytes, "grads")]

    # the end of the step

    def _closing(self, pp: int) -> Iterator[do.Instruction]:
        c, b = self.config, self.book
        params = sum(self._params(pp)) // (c.layout.dp * c.layout.cp if self._is_sharded else 1)
        yield do.Join("grads")
        if c.detail == "stage" and c.fixed_ns is not None:
            yield from self._item() if c.has_loss_item else ()
            return
        if c.has_grad_norm:
            yield b.elementwise("aten::_foreach_norm", params, functor="LpNormFunctor", passes=1)
            if c.layout.world > 1:
                yield do.Comm("world", "all_reduce", 4, "norm", is_async=False, dtype="Float", itemsize=4)
            yield b.elementwise("aten::_foreach_mul_", params, functor="MulFunctor", passes=2)
        yield do.Begin("Optimizer.step#AdamW.step", on_gpu=True)
        pieces = 4 if c.detail == "kernel" else 1
        for _ in range(pieces):
            yield do.Kernel(
                ADAM,
                memory_ns(b.hw, 28 * params // pieces),
                op="aten::_fused_adamw_",
                grid=(320, 1, 1),
                block=(512, 1, 1),
            )
        yield END
        if c.has_loss_item:
            yield from self._item()
        yield do.Stall("checkpoint")

    def _item(self) -> Iterator[do.Instruction]:
        """`.item()`: a small copy to the host, and the wait for it."""
        yield do.Begin("aten::item", "cpu_op", rule="sync")
        yield do.Begin("aten::_local_scalar_dense", "cpu_op", rule="sync")
        yield self.book.copy("d2h", 4, op="")
        yield do.Sync()
        yield END
        yield END


class Bucket:
    """Gradients of finished units, reduced over data-parallel ranks when enough have gathered."""

    def __init__(self, program: StepProgram) -> None:
        lay = program.config.layout
        self.program = program
        self.limit = int(program.config.bucket_mib * (1 << 20))
        self.is_needed = lay.dp * lay.cp > 1 and not lay.fsdp
        self.axis = grad_axis(lay)
        self.has_expert_group = lay.ep > 1 and lay.dp * lay.cp // lay.ep > 1
        self.held = [0, 0]

    def add(self, unit: str) -> Iterator[do.Instruction]:
        """A unit's gradients join the bucket."""
        if not self.is_needed:
            return
        shared, experts = self.program.unit_params(unit)
        self.held[0] += BETA * (shared + (0 if self.program.config.layout.ep > 1 else experts))
        self.held[1] += BETA * experts if self.has_expert_group else 0
        if max(self.held) >= self.limit:
            yield from self.flush()

    def flush(self) -> Iterator[do.Instruction]:
        """What is in the bucket is sent."""
        for i, axis in enumerate((self.axis, "edp")):
            if self.held[i]:
                yield do.Comm(axis, "all_reduce", self.held[i], "grads")
                self.held[i] = 0
