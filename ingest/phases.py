"""Annotations of inference engines: which name an iteration, and whether it is prefill, decode or mixed."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COUNTS = (
    # vLLM: execute_context_2(14721)_generation_0(0), execute_32_context_0(sq0...)_generation_32(sq32...)
    re.compile(r"^execute(?:_\w*?)?_context_(?P<context>\d+)(?:\([^)]*\))?_generation_(?P<generation>\d+)"),
    # vLLM: execute_new_3_cached_12 (requests that are new, requests that already run)
    re.compile(r"^execute_new_(?P<context>\d+)(?:\([^)]*\))?_(?:cached|running|old)_(?P<generation>\d+)"),
    # TensorRT-LLM: [Executor] _forward_step 7: 2 ctx reqs, 30 gen reqs
    re.compile(r"_forward_step \d+: (?P<context>\d+) ctx reqs, (?P<generation>\d+) gen reqs"),
)
_SGLANG = re.compile(r"^step\[(?P<mode>[A-Z_]+)\b[^\]]*\]")
_ATOM = re.compile(r"^(?P<mode>prefill|decode|mixed)\[bs=[^\]]*\]")
_DIFFUSION = re.compile(r"^execute_diffusion_")
_MODES = {
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "PREFILL": "prefill",
    "DECODE": "decode",
    "TARGET_VERIFY": "decode",
    "DRAFT_EXTEND": "decode",
    "MIXED": "mixed",
}


@dataclass(frozen=True)
class Iteration:
    """One forward pass of an inference engine; `phase` is None where the name does not tell it."""

    phase: str | None


def iteration(name: str) -> Iteration | None:
    """The inference iteration an annotation names, None when it names none.

    With counts of context (prompt) and generation requests: prefill when nothing is generated, decode when
    there is no context, else mixed; an iteration of neither (an idle data-parallel peer) has no phase.
    Source: METHOD 1.4 and real traces of vLLM, SGLang, ATOM and xDiT.
    """
    for pattern in _COUNTS:
        counted = pattern.search(name)
        if counted:
            return Iteration(_phase(int(counted["context"][:9]), int(counted["generation"][:9])))
    sglang = _SGLANG.match(name)
    if sglang:
        return Iteration(_MODES.get(sglang["mode"]))
    atom = _ATOM.match(name)
    if atom:
        return Iteration(atom["mode"])
    return Iteration(None) if _DIFFUSION.match(name) else None


def _phase(context: int, generation: int) -> str | None:
    if context and generation:
        return "mixed"
    if context:
        return "prefill"
    return "decode" if generation else None
