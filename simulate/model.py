"""What is simulated: the model, the machines, the layout of ranks and the settings of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from rankscope.store.errors import UsageError

from .disturb import Disturbances

Schedule = Literal["gpipe", "1f1b", "interleaved"]
Detail = Literal["kernel", "layer", "stage"]
SCHEDULES: tuple[str, ...] = ("gpipe", "1f1b", "interleaved")
DETAILS: tuple[str, ...] = ("kernel", "layer", "stage")


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a decoder-only transformer; activations, weights and gradients are bfloat16."""

    layers: int = 8
    hidden: int = 2048
    ffn: int = 5632
    heads: int = 16
    kv_heads: int = 8
    seq: int = 2048
    vocab: int = 32000
    microbatch: int = 1
    experts: int = 0
    topk: int = 2

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch."""
        return self.seq * self.microbatch

    @property
    def kv_hidden(self) -> int:
        """Width of the keys (and of the values)."""
        return self.hidden // self.heads * self.kv_heads


@dataclass(frozen=True)
class Link:
    """Alpha-beta cost of a link: `alpha_ns` per message, `gbps` decimal GB/s per rank."""

    alpha_ns: int
    gbps: float


@dataclass(frozen=True)
class Hardware:
    """Rates of one GPU and of its links; efficiencies are the share of the peak that is reached."""

    gpu: str = "NVIDIA H100 80GB HBM3"
    peak_tflops: float = 989.0
    gemm_efficiency: float = 0.6
    attention_efficiency: float = 0.4
    hbm_gbps: float = 2600.0
    min_kernel_ns: int = 2_000
    intra: Link = Link(alpha_ns=9_000, gbps=360.0)
    inter: Link = Link(alpha_ns=22_000, gbps=42.0)
    gpus_per_host: int = 8
    kernel_gap_ns: int = 900
    event_latency_ns: int = 1_400


@dataclass(frozen=True)
class HostCosts:
    """What the host pays, in ns: these make a run host-bound or not."""

    op_ns: int = 2_200
    launch_ns: int = 3_200
    launch_latency_ns: int = 5_500
    call_ns: int = 700
    python_ns: int = 1_500
    sync_return_ns: int = 4_000
    thread_switch_ns: int = 12_000
    data_ns: int = 180_000
    step_ns: int = 25_000
    jitter: float = 0.15


@dataclass(frozen=True)
class Layout:
    """Sizes of the axes; ranks are numbered tp fastest, then cp, dp, pp. EP lies inside the dp axis."""

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    fsdp: bool = False
    sequence_parallel: bool = False

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.dp * self.pp

    def place(self, rank: int) -> dict[str, int]:
        """Coordinates of a rank on the axes tp, cp, dp, pp and ep."""
        tp, rest = rank % self.tp, rank // self.tp
        cp, rest = rest % self.cp, rest // self.cp
        dp, pp = rest % self.dp, rest // self.dp
        return {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": dp % self.ep}

    def coords(self, rank: int) -> str:
        """Coordinates as text, such as tp1.pp0.dp3; cp and ep only where they exist."""
        p = self.place(rank)
        text = f"tp{p['tp']}.pp{p['pp']}.dp{p['dp']}"
        text += f".cp{p['cp']}" if self.cp > 1 else ""
        return text + (f".ep{p['ep']}" if self.ep > 1 else "")


@dataclass(frozen=True)
class SimulationConfig:
    """Everything that decides a simulated run; two equal configs give the same bytes.

    Attributes:
        steps: recorded steps; the first is named `ProfilerStep#<first_step>`.
        detail: `kernel` (every kernel of a layer), `layer` (two per layer and pass), `stage` (one per action).
        fixed_ns: forward and backward time of one microbatch on one rank (all its chunks), instead of the
            cost model; only with `detail="stage"`.
        group_names: `mesh` (DeviceMesh descriptions), `megatron`, or `undefined` (no descriptions).
        sync_on_current_stream: synchronous collectives run on the compute stream, as PyTorch does now.
        moe_host_sync: the host reads the split sizes before each dispatch.
        is_compressed: `.json.gz` files rather than `.json`.
        end_spread_ns: members of a collective end up to this much after the transfer.
    """

    name: str = "simulated"
    layout: Layout = Layout()
    model: ModelShape = ModelShape()
    hardware: Hardware = Hardware()
    host: HostCosts = HostCosts()
    schedule: Schedule = "1f1b"
    microbatches: int = 1
    virtual_stages: int = 1
    steps: int = 4
    first_step: int = 3
    seed: int = 0
    detail: Detail = "kernel"
    fixed_ns: tuple[int, int] | None = None
    group_names: Literal["mesh", "megatron", "undefined"] = "mesh"
    bucket_mib: float = 25.0
    has_grad_norm: bool = True
    has_loss_item: bool = True
    sync_on_current_stream: bool = True
    moe_host_sync: bool = True
    is_compressed: bool = True
    end_spread_ns: int = 0
    p2p_buffer_bytes: int = 0
    disturbances: Disturbances = field(default_factory=Disturbances)

    @cached_property
    def n_stages(self) -> int:
        """Pipeline stages: ranks of the pipeline times chunks per rank."""
        return self.layout.pp * self.virtual_stages

    def layers_of(self, stage: int) -> int:
        """Layers of a stage; what does not divide evenly goes to the first stages."""
        whole, rest = divmod(self.model.layers, self.n_stages)
        return whole + (1 if stage < rest else 0)

    def host_of(self, rank: int) -> int:
        """Host index of a rank."""
        return rank // self.hardware.gpus_per_host

    def host_name(self, rank: int) -> str:
        """Host name of a rank."""
        return f"node{self.host_of(rank):02d}"

    def validated(self) -> SimulationConfig:
        """The config itself.

        Raises:
            UsageError: sizes that do not fit together.
        """
        for bad, message, hint in _rules(self):
            if bad:
                raise UsageError(message, hint=hint)
        self.disturbances.check(self.layout.world, self.host_of(self.layout.world - 1) + 1)
        return self


def _rules(c: SimulationConfig) -> list[tuple[bool, str, str]]:
    lay, m = c.layout, c.model
    sizes = {
        "tp": lay.tp, "pp": lay.pp, "dp": lay.dp, "cp": lay.cp, "ep": lay.ep, "steps": c.steps,
        "microbatches": c.microbatches, "virtual_stages": c.virtual_stages, "layers": m.layers,
        "hidden": m.hidden, "heads": m.heads, "kv_heads": m.kv_heads, "seq": m.seq, "vocab": m.vocab,
        "microbatch": m.microbatch, "ffn": m.ffn, "gpus_per_host": c.hardware.gpus_per_host,
    }  # fmt: skip
    small = [k for k, v in sizes.items() if v < 1]
    return [
        (bool(small), f"{', '.join(small)} must be at least 1", "Sizes are positive whole numbers."),
        (c.schedule not in SCHEDULES, f"no schedule {c.schedule!r}", f"Choose from {', '.join(SCHEDULES)}."),
        (c.detail not in DETAILS, f"no detail {c.detail!r}", f"Choose from {', '.join(DETAILS)}."),
        (
            not small and m.layers < c.n_stages,
            f"{m.layers} layers do not fill {lay.pp} x {c.virtual_stages} stages",
            "Raise layers, or lower pp or virtual_stages.",
        ),
        (
            c.virtual_stages > 1 and c.schedule != "interleaved",
            f"virtual_stages={c.virtual_stages} needs the interleaved schedule",
            "Say schedule=interleaved.",
        ),
        (
            c.schedule == "interleaved" and (c.virtual_stages < 2 or lay.pp < 2),
            "the interleaved schedule needs pp and virtual_stages of at least 2",
            "Say for example pp=2 virtual_stages=2.",
        ),
        (
            c.schedule == "interleaved" and not small and c.microbatches % lay.pp != 0,
            f"{c.microbatches} microbatches are not a multiple of pp={lay.pp}",
            "The interleaved schedule needs microbatches divisible by pp.",
        ),
        (not small and m.heads % (lay.tp * 1) != 0, f"{m.heads} heads do not divide by tp={lay.tp}",
         "Choose heads as a multiple of tp."),
        (not small and m.hidden % m.heads != 0, f"hidden={m.hidden} does not divide by heads={m.heads}",
         "Choose hidden as a multiple of heads."),
        (not small and m.seq % (lay.cp * lay.tp) != 0, f"seq={m.seq} does not divide by cp x tp",
         "Choose seq as a multiple of cp x tp."),
        (not small and lay.dp % lay.ep != 0, f"dp={lay.dp} does not divide by ep={lay.ep}",
         "Expert parallelism lies inside the data-parallel axis: dp must be a multiple of ep."),
        (lay.ep > 1 and m.experts < lay.ep, f"ep={lay.ep} needs at least as many experts, not {m.experts}",
         "Set experts, for example experts=8."),
        (m.experts > 0 and lay.ep > 0 and m.experts % lay.ep != 0, f"experts={m.experts} do not divide by ep={lay.ep}",
         "Choose experts as a multiple of ep."),
        (m.experts > 0 and not 1 <= m.topk <= m.experts, f"topk={m.topk} is not in 1..{m.experts}",
         "A token goes to at least one expert."),
        (lay.fsdp and lay.ep > 1, "fsdp with ep is not modelled", "Use ep with plain data parallelism."),
        (c.fixed_ns is not None and c.detail != "stage", "fixed_ns needs detail=stage", "Set detail to stage."),
    ]  # fmt: skip
