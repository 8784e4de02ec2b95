"""Kernel names as people say them: without return types, namespaces, template and argument lists."""

from __future__ import annotations

import re

MAX_PARSED = 4096
"""Only so much of a hostile name is looked at."""
_ANONYMOUS = "(anonymous namespace)::"
_COPY = re.compile(r"^(Mem(?:cpy|set) \w+) \((.*)\)$")
_FUNCTOR = re.compile(r"\b(?!gpu_kernel_impl)(\w*(?:Functor|functor|Ops?|_impl)\w*)\b")
_WRAPPERS = frozenset({"BinaryFunctor", "UnaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "ReduceOp"})
_WORD = re.compile(r"[A-Za-z_]\w{7,}")
_GENERIC = frozenset({"Kernel", "Kernel2", "kernel", "device_kernel", "globalKernel"})
"""Names that say nothing: what runs is their template argument."""


def short_kernel(name: str) -> str:
    """The telling part of a kernel's or copy's name.

    `void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, ...>(int, ...)` is
    `vectorized_elementwise_kernel<FillFunctor>`, `void cutlass::Kernel2<cutlass_80_...>(...)` is
    `cutlass_80_...`; names that are no C++ stay as they are.
    """
    copy = _COPY.match(name[:MAX_PARSED])
    if copy:
        sides = [side for side in copy.group(2).split(" -> ") if side != "Device"]
        return f"{copy.group(1)} ({sides[0]})" if sides else copy.group(1)
    base, template = _outside(name[:MAX_PARSED].replace(_ANONYMOUS, ""))
    base = base.removeprefix("void ").rpartition("::")[2].strip()
    if not base:
        return name
    if base in _GENERIC and (word := _WORD.search(template)):
        return word.group()
    functor = next((f for f in _FUNCTOR.findall(template) if f not in _WRAPPERS), None)
    return f"{base}<{functor}>" if functor else base


def _outside(name: str) -> tuple[str, str]:
    """The text outside of all template and argument lists; what is inside when the first is a template list."""
    outside: list[str] = []
    template: list[str] = []
    depth = 0
    opened_by = previous = ""
    for char in name:
        is_open = char in "<(" and (depth > 0 or _is_word(previous))
        if is_open:
            opened_by = opened_by or char
            depth += 1
        elif char in ">)" and depth and not (char == ">" and previous == "-"):
            depth -= 1
        elif not depth:
            outside.append(char)
        if depth and opened_by == "<":
            template.append(char)
        previous = char
    return "".join(outside), "".join(template)


def _is_word(char: str) -> bool:
    """Whether a list may follow: after a name or the end of another list."""
    return char.isalnum() or char in ("_", ">", "}")
