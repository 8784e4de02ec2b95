"""From options as a user types them to a config: every option, its meaning, its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rankscope.store.errors import UsageError

from .disturb import ALL, Disturbances, duration, numbers, positive, slow_link, split_pair, stall
from .model import SimulationConfig
from .presets import preset

OPTIONS: dict[str, str] = {
    "preset": "start from a ready-made run; other options change it",
    "tp": "tensor-parallel size",
    "cp": "context-parallel size (ring attention)",
    "dp": "data-parallel size",
    "pp": "pipeline-parallel size",
    "ep": "expert-parallel size, inside the data-parallel axis",
    "fsdp": "shard parameters over the data-parallel axis",
    "sequence_parallel": "with tp: all-gather and reduce-scatter instead of all-reduce",
    "schedule": "gpipe, 1f1b or interleaved",
    "microbatches": "microbatches per step and pipeline",
    "virtual_stages": "chunks per rank of the interleaved schedule",
    "steps": "recorded steps",
    "seed": "seed of all noise",
    "layers": "transformer layers",
    "hidden": "hidden size",
    "ffn": "feed-forward size (of one expert with experts)",
    "heads": "attention heads",
    "kv_heads": "key-value heads",
    "seq": "sequence length",
    "vocab": "vocabulary size",
    "microbatch": "sequences in a microbatch",
    "experts": "experts per layer, 0 for a dense model",
    "topk": "experts per token",
    "gpus_per_host": "ranks on one host",
    "gpu": "device name in the trace",
    "peak_tflops": "peak TFLOP/s of a GPU in bfloat16",
    "detail": "kernel, layer (two kernels per layer and pass) or stage (one per microbatch)",
    "group_names": "mesh, megatron or undefined process-group descriptions",
    "compress": "gz or plain (or true and false)",
    "jitter": "noise of device durations, for example 0.05",
    "slow_rank": "RANK:FACTOR, compute of a rank takes FACTOR times as long",
    "slow_link": "ROLE:FACTOR, ROLE#GROUP:FACTOR or HOST-HOST:FACTOR, transfers take longer",
    "data_stall": "RANKS@STEPS:TIME, the data loader makes ranks wait, for example 1@4-5:30ms",
    "gc_pause": "RANKS@STEPS:TIME, a garbage collection at the start of a step",
    "checkpoint": "RANKS@STEPS:TIME, a checkpoint at the end of a step",
    "host_bound": "FACTOR or RANK:FACTOR, the host is slower",
    "clock_offset": "HOST:TIME, the host's clock is ahead, for example 1:350us",
    "missing_seq": "calls carry no Seq, as before PyTorch 2.12",
    "missing_ranks": "ranks whose files are not written, for example 3,5",
    "truncate": "RANK or RANK:FRACTION, the rank's file ends in the middle of an event",
    "drop_launches": "share of launch records that are lost, for example 0.01",
}
"""Option name: meaning. Options that name a place may be given several times (a list)."""

_LAYOUT = ("tp", "cp", "dp", "pp", "ep", "fsdp", "sequence_parallel")
_MODEL = ("layers", "hidden", "ffn", "heads", "kv_heads", "seq", "vocab", "microbatch", "experts", "topk")
_HARDWARE = ("gpus_per_host", "gpu", "peak_tflops")
_RUN = ("schedule", "microbatches", "virtual_stages", "steps", "seed", "detail", "group_names")
_GROUP_NAMES = ("mesh", "megatron", "undefined")


def config_from_options(**options: Any) -> SimulationConfig:
    """The validated config that the options describe; an option that is None keeps its default.

    Raises:
        UsageError: an unknown option, a value that is not understood, or sizes that do not fit.
    """
    given = {k: v for k, v in options.items() if v is not None}
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise UsageError(f"no option {unknown[0]!r}", hint=f"Options are {', '.join(OPTIONS)}.")
    base = preset(str(given["preset"])) if "preset" in given else SimulationConfig()
    config = replace(
        base,
        layout=replace(base.layout, **_picked(given, _LAYOUT)),
        model=replace(base.model, **_picked(given, _MODEL)),
        hardware=replace(base.hardware, **_picked(given, _HARDWARE)),
        disturbances=_disturbances(base.disturbances, given),
        is_compressed=_compressed(given.get("compress", base.is_compressed)),
        **_picked(given, _RUN),
    )
    if config.group_names not in _GROUP_NAMES:
        raise UsageError(
            f"no group_names {config.group_names!r}", hint=f"Choose from {', '.join(_GROUP_NAMES)}."
        )
    return _shaped(config, given).validated()


def _shaped(config: SimulationConfig, given: Mapping[str, Any]) -> SimulationConfig:
    """Sizes that follow from others when the user did not say them."""
    lay, model = config.layout, config.model
    if "microbatches" not in given and config.microbatches == 1 and lay.pp > 1:
        config = replace(config, microbatches=2 * lay.pp)
    if "schedule" not in given and config.virtual_stages > 1:
        config = replace(config, schedule="interleaved")
    if "virtual_stages" not in given and config.schedule == "interleaved" and config.virtual_stages == 1:
        config = replace(config, virtual_stages=2)
    if "experts" not in given and lay.ep > 1 and not model.experts:
        config = replace(config, model=replace(model, experts=2 * lay.ep))
    if "layers" not in given and model.layers < config.n_stages:
        config = replace(config, model=replace(config.model, layers=2 * config.n_stages))
    if "kv_heads" not in given and model.kv_heads > model.heads:
        config = replace(config, model=replace(config.model, kv_heads=model.heads))
    return config


def _picked(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {n: _typed(n, given[n]) for n in names if n in given}


def _typed(name: str, value: Any) -> Any:
    if name in ("fsdp", "sequence_parallel"):
        return _flag(name, value)
    if name in ("schedule", "detail", "group_names", "gpu"):
        return str(value)
    if name == "peak_tflops":
        return positive(str(value), what=name)
    try:
        return int(str(value))
    except ValueError:
        raise UsageError(f"{name}: {value!r} is no whole number", hint=f"{name}: {OPTIONS[name]}.") from None


def _flag(name: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        return text in ("true", "1", "yes", "on")
    raise UsageError(f"{name}: {value!r} is neither yes nor no", hint="Write true or false.")


def _compressed(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in ("gz", "gzip", "json.gz"):
        return True
    return False if text in ("plain", "none", "json") else _flag("compress", value)


def _share(name: str, value: Any) -> float:
    try:
        share = float(str(value))
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise UsageError(
            f"{name}: {value!r} is no share", hint="Write a number from 0 to less than 1, such as 0.05."
        )
    return share


def _many(value: Any) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list | tuple) else [str(value)]


def _pair(what: str, form: str) -> Callable[[str], tuple[int, float]]:
    def read(text: str) -> tuple[int, float]:
        place, factor = split_pair(text, ":", what=what, form=form)
        return _one(place, what=what), positive(factor, what=what)

    return read


def _one(text: str, *, what: str) -> int:
    if text.strip() in ("all", "*"):
        return ALL
    found = numbers(text, what=what)
    if len(found) != 1:
        raise UsageError(f"{what}: {text!r} is not one number", hint="Give the option again for each.")
    return found[0]


def _host_bound(text: str) -> tuple[int, float]:
    if ":" not in text:
        return ALL, positive(text, what="host_bound")
    return _pair("host_bound", "FACTOR or RANK:FACTOR, for example 2:3")(text)


def _offset(text: str) -> tuple[int, int]:
    host, time = split_pair(text, ":", what="clock_offset", form="HOST:TIME, for example 1:350us")
    return _one(host, what="clock_offset"), duration(time, what="clock_offset", default="us")


def _truncate(text: str) -> tuple[int, float]:
    rank, _, fraction = text.partition(":")
    share = _share("truncate", fraction or 0.6)
    if not share:
        raise UsageError("truncate: nothing would be left", hint="Write RANK:FRACTION, for example 1:0.6.")
    return _one(rank, what="truncate"), share


def _disturbances(base: Disturbances, given: Mapping[str, Any]) -> Disturbances:
    readers: dict[str, tuple[str, Callable[[str], Any]]] = {
        "slow_rank": ("slow_ranks", _pair("slow_rank", "RANK:FACTOR, for example 3:1.5")),
        "slow_link": ("slow_links", slow_link),
        "data_stall": ("data_stalls", lambda t: stall(t, what="data_stall")),
        "gc_pause": ("gc_pauses", lambda t: stall(t, what="gc_pause")),
        "checkpoint": ("checkpoints", lambda t: stall(t, what="checkpoint")),
        "host_bound": ("host_bound", _host_bound),
        "clock_offset": ("clock_offsets", _offset),
        "truncate": ("truncated", _truncate),
    }
    changes: dict[str, Any] = {
        field: tuple(read(t) for t in _many(given[name]))
        for name, (field, read) in readers.items()
        if name in given
    }
    if "jitter" in given:
        changes["jitter"] = _share("jitter", given["jitter"])
    if "drop_launches" in given:
        changes["dropped_launches"] = _share("drop_launches", given["drop_launches"])
    if "missing_seq" in given:
        changes["missing_seq"] = _flag("missing_seq", given["missing_seq"])
    if "missing_ranks" in given:
        found = [numbers(t, what="missing_ranks") for t in _many(given["missing_ranks"])]
        changes["missing_ranks"] = tuple(sorted({r for part in found for r in part}))
    return replace(base, **changes)
